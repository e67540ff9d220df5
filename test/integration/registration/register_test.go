/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package registration tests the registration of a server, and the manifests of an installation, on a real control plane.
//
// The server itself is played by a small HTTPS server with certificates of package servingcert: what is tested is whether a
// cluster finds and trusts it.
package registration

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/register"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

const apiService = "v1alpha1.metacontroller.k8s.io"

// unregister cleans up after a test, whose context may have ended.
func unregister(t *testing.T) string {
	t.Helper()
	var progress strings.Builder
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
	defer cancel()
	if err := registration.Unregister(ctx, cluster.Shared(t).Config(t), io.MultiWriter(t.Output(), &progress)); err != nil {
		t.Error(err)
	}
	return progress.String()
}

// exists tells whether kubectl finds something.
func exists(t *testing.T, object string) bool {
	t.Helper()
	return field(t, cluster.Shared(t), object, "{.metadata.name}") != ""
}

// field is what kubectl prints of an object, given as kind/name, that is in the server's namespace or in none: nothing where it is not there.
func field(t *testing.T, plane *cluster.Cluster, object, path string) string {
	t.Helper()
	printed, err := fieldOf(t.Context(), plane, object, path)
	if err != nil {
		t.Fatal(err)
	}
	return printed
}

func fieldOf(ctx context.Context, plane *cluster.Cluster, object, path string) (string, error) {
	printed, err := plane.Field(ctx, "metacontroller", object, path)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return printed, err
}

func TestCommandsRegisterAndUnregister(t *testing.T) {
	plane, server := cluster.Shared(t), newStandIn(t)
	t.Cleanup(func() { unregister(t) })
	run := func(name string, arguments ...string) string {
		t.Helper()
		cmd := register.NewRegisterCommand()
		if name == "unregister" {
			cmd = register.NewUnregisterCommand()
		}
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"--kubeconfig", plane.Kubeconfig}, arguments...))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out.String())
		}
		return out.String()
	}
	port := "--port=" + (&net.TCPAddr{Port: server.port}).String()[1:]

	for range 2 { // Registering again changes nothing and succeeds.
		output := run("register", "--data-dir", server.dataDir, "--host", "localhost", port)
		if want := "APIService " + apiService + " is available"; !strings.Contains(output, want) {
			t.Errorf("register does not say %q:\n%s", want, output)
		}
		if output := plane.Kubectl(t, "get", "apiservice", apiService); !strings.Contains(output, "True") {
			t.Errorf("the cluster does not say that it is available:\n%s", output)
		}
	}
	plane.AwaitServed(t, cluster.Limit, v1alpha1.SchemeGroupVersion)
	if output := plane.Kubectl(t, "api-resources", "--api-group=metacontroller.k8s.io"); !strings.Contains(output, "compositecontrollers") {
		t.Errorf("kubectl does not find the kinds:\n%s", output)
	}

	for range 2 {
		run("unregister")
		for _, gone := range []string{
			"apiservice/" + apiService, "service/metacontroller-apiserver", "clusterrole/metacontroller-apiserver", "clusterrole/metacontroller-controllers",
			"clusterrole/aggregate-metacontroller-view", "clusterrole/aggregate-metacontroller-edit", "role/metacontroller-apiserver:leader-election",
		} {
			if exists(t, gone) {
				t.Errorf("%s is still there", gone)
			}
		}
	}
	if !exists(t, "namespace/metacontroller") {
		t.Error("the namespace was deleted, and with it what others may have put there")
	}
}

func TestRegistrationFollowsTheServer(t *testing.T) {
	for range 2 { // With another port and another authority.
		if err := registration.Register(t.Context(), newStandIn(t).options(t)); err != nil {
			t.Fatal(err)
		}
		output, err := cluster.Shared(t).TryKubectl(t.Context(), "", "get", "--raw", "/apis/metacontroller.k8s.io/v1alpha1")
		if err != nil || !strings.Contains(output, "CompositeController") {
			t.Errorf("the cluster does not reach the server: %v\n%s", err, output)
		}
	}
}

func TestUnreachableServersAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		change func(t *testing.T, o *registration.Options)
		want   string
	}{
		"NobodyListens": {
			reason: "The server may have died, or be behind a firewall.",
			change: func(t *testing.T, o *registration.Options) {
				t.Helper()
				o.Port = freeport.Find(t)
			},
			want: "connection refused",
		},
		"AnotherAuthority": {
			reason: "The data directory may have been replaced after the registration.",
			change: func(t *testing.T, o *registration.Options) {
				t.Helper()
				o.CABundle = newStandIn(t).options(t).CABundle
			},
			want: "certificate signed by unknown authority",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newStandIn(t).options(t)
			o.Timeout = 5 * time.Second
			test.change(t, &o)
			// On a busy machine the cluster may look at the server later than this waits, and say something else until then.
			cluster.Eventually(t, cluster.Limit, "registering to tell why: "+test.reason, func(context.Context) (bool, string) {
				err := registration.Register(t.Context(), o)
				var unavailable *registration.UnavailableError
				if !errors.As(err, &unavailable) {
					t.Fatalf("%s\ngot %v, want an UnavailableError", test.reason, err)
				}
				return unavailable.Reason == "FailedDiscoveryCheck" && strings.Contains(unavailable.Message, test.want),
					fmt.Sprintf("reason %q and message %q, want %q in it", unavailable.Reason, unavailable.Message, test.want)
			})
		})
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	o := newStandIn(t).options(t)
	o.Port = 1 // Nobody listens there.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := registration.Register(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestDefinitionsOfTheGroupAreNotShadowed(t *testing.T) {
	plane, server := cluster.Shared(t), newStandIn(t)
	o := server.options(t)
	plane.KubectlInput(t, definition("CompositeController", "compositecontrollers", "metacontroller.k8s.io", "v1alpha1"), "apply", "-f", "-")
	removed := false
	remove := func() {
		if !removed {
			removed = true
			plane.Kubectl(t, "delete", "crd", "compositecontrollers.metacontroller.k8s.io")
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		_, _ = plane.TryKubectl(ctx, "", "delete", "--ignore-not-found", "crd", "compositecontrollers.metacontroller.k8s.io")
	})
	cluster.Eventually(t, cluster.Limit, "kube-apiserver makes the APIService of the definition", func(context.Context) (bool, string) {
		return exists(t, "apiservice/"+apiService), "there is none"
	})

	err := registration.Register(t.Context(), o)
	var served *registration.ServedByDefinitionsError
	if !errors.As(err, &served) {
		t.Fatalf("got %v, want a ServedByDefinitionsError", err)
	}
	if !strings.Contains(err.Error(), "compositecontrollers.metacontroller.k8s.io") {
		t.Errorf("the error does not name the definition: %v", err)
	}
	if exists(t, "clusterrole/metacontroller-apiserver") {
		t.Error("something was applied")
	}
	if err := registration.Unregister(t.Context(), o.Config, nil); !errors.As(err, &served) {
		t.Errorf("unregistering: got %v, want a ServedByDefinitionsError", err)
	}

	remove()
	cluster.Eventually(t, cluster.Limit, "kube-apiserver removes the APIService of the definition", func(context.Context) (bool, string) {
		return !exists(t, "apiservice/"+apiService), "it is there"
	})
	if err := registration.Register(t.Context(), o); err != nil {
		t.Errorf("registering after the definitions are gone: %v", err)
	}
}

func TestOtherRegistrationsAreNotTouched(t *testing.T) {
	plane := cluster.Shared(t)
	for name, test := range map[string]struct{ reason, manifest, remove string }{
		"ServerInTheCluster": {
			reason: "Turning its Service into a name would cut off the server that is there.",
			manifest: `{apiVersion: v1, kind: Service, metadata: {name: metacontroller-apiserver, namespace: metacontroller},
				spec: {ports: [{port: 443}]}}`,
			remove: "service/metacontroller-apiserver",
		},
		"AnotherServer": {
			reason: "Its objects would vanish from the cluster.",
			manifest: `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1alpha1.metacontroller.k8s.io},
				spec: {group: metacontroller.k8s.io, version: v1alpha1, groupPriorityMinimum: 1, versionPriority: 1,
				insecureSkipTLSVerify: true, service: {name: other, namespace: default}}}`,
			remove: "apiservice/v1alpha1.metacontroller.k8s.io",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newStandIn(t).options(t)
			ensureNamespace(t)
			plane.KubectlInput(t, test.manifest, "create", "-f", "-")
			var occupied *registration.OccupiedError
			if err := registration.Register(t.Context(), o); !errors.As(err, &occupied) {
				t.Errorf("%s\ngot %v, want an OccupiedError", test.reason, err)
			}
			if err := registration.Unregister(t.Context(), o.Config, nil); !errors.As(err, &occupied) {
				t.Errorf("%s\nunregistering: got %v, want an OccupiedError", test.reason, err)
			}
			if exists(t, "clusterrole/metacontroller-apiserver") {
				t.Error("something was applied")
			}
			plane.Kubectl(t, "delete", "-n", "metacontroller", test.remove)
		})
	}
}

func TestTrustingAnAuthorityChangesNothingElse(t *testing.T) {
	plane := cluster.Shared(t)
	o := newStandIn(t).options(t)
	trust, err := registration.NewTrust(o.Config, types.NamespacedName{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := trust.Trusted(t.Context()); !errors.Is(err, servingcert.ErrNotRegistered) {
		t.Errorf("without a registration: got %v", err)
	}
	if err := trust.Trust(t.Context(), o.CABundle, "1"); err == nil || exists(t, "apiservice/"+apiService) {
		t.Fatalf("trusting an authority made a registration, error %v", err)
	}
	wrong := o
	wrong.CABundle, wrong.Timeout = newStandIn(t).options(t).CABundle, 0
	if err := registration.Register(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	spec := func() string {
		return field(t, plane, "apiservice/"+apiService, "{.spec.service}{.spec.groupPriorityMinimum}{.metadata.labels}")
	}
	before := spec()
	// The cluster writes the status meanwhile, which is a conflict.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, version, err := trust.Trusted(t.Context())
		if err != nil {
			return err
		}
		return trust.Trust(t.Context(), o.CABundle, version)
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := spec(); after != before {
		t.Errorf("the registration changed from %s to %s", before, after)
	}
	plane.Kubectl(t, "wait", "--for=condition=Available", "--timeout=60s", "apiservice", apiService)
}

// ensureNamespace makes the namespace of the installation. It is never deleted: no test could use it until it is gone.
func ensureNamespace(t *testing.T) {
	t.Helper()
	cluster.Shared(t).Apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: metacontroller}}`)
}

// definition returns a CustomResourceDefinition that takes everything.
func definition(kind, plural, group, version string) string {
	return `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural + `.` + group + `,
		annotations: {api-approved.kubernetes.io: unapproved}},
		spec: {group: ` + group + `, scope: Namespaced, names: {kind: ` + kind + `, plural: ` + plural + `},
		versions: [{name: ` + version + `, served: true, storage: true,
		schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}` + "\n"
}

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// A standIn serves the discovery of the group, and nothing else.
type standIn struct {
	dataDir string
	port    int
	caFile  string
}

// newStandIn starts a server that ends with the test.
func newStandIn(t *testing.T) standIn {
	t.Helper()
	s := standIn{dataDir: t.TempDir()}
	files, err := servingcert.Ensure(t.Context(), servingcert.Directory(s.dataDir))
	if err != nil {
		t.Fatal(err)
	}
	s.caFile = files.CAFile
	certificate, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/metacontroller.k8s.io/v1alpha1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		verbs := []string{"create", "delete", "get", "list", "watch"}
		if err := json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "metacontroller.k8s.io/v1alpha1",
			APIResources: []metav1.APIResource{
				{Name: "compositecontrollers", SingularName: "compositecontroller", Kind: "CompositeController", Verbs: verbs},
				{Name: "controllerrevisions", SingularName: "controllerrevision", Kind: "ControllerRevision", Verbs: verbs, Namespaced: true},
				{Name: "decoratorcontrollers", SingularName: "decoratorcontroller", Kind: "DecoratorController", Verbs: verbs},
			},
		}); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(t.Output(), "server: ", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	s.port = server.Listener.Addr().(*net.TCPAddr).Port
	return s
}

// options registers the stand-in at the shared control plane, and takes that back at the end of the test.
func (s standIn) options(t *testing.T) registration.Options {
	t.Helper()
	bundle, err := os.ReadFile(filepath.Clean(s.caFile))
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.Shared(t).Config(t)
	t.Cleanup(func() { unregister(t) })
	return registration.Options{
		Config: config, Host: "localhost", Port: s.port, CABundle: bundle, Timeout: time.Minute, Progress: t.Output(),
	}
}

// earlier is what an earlier version of register applied.
const earlier = `
apiVersion: v1
kind: Namespace
metadata:
  name: metacontroller
  labels: {app.kubernetes.io/name: metacontroller-apiserver, pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: aggregate-metacontroller-edit, labels: {rbac.authorization.k8s.io/aggregate-to-edit: "true"}}
rules: [{apiGroups: [metacontroller.k8s.io], resources: [controllerrevisions], verbs: ["*"]}]
`

// rootPod is a Pod that the level restricted keeps out, as most hooks of Metacontroller's examples are.
const rootPod = `{apiVersion: v1, kind: Pod, metadata: {name: hook, namespace: metacontroller}, spec: {containers: [{name: hook, image: hook}]}}`

// register registers a stand-in without waiting, and returns the progress.
func (s standIn) register(t *testing.T, change func(o *registration.Options)) string {
	t.Helper()
	var progress strings.Builder
	o := s.options(t)
	o.Timeout, o.Progress = 0, &progress
	change(&o)
	if err := registration.Register(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return progress.String()
}

func rules(t *testing.T, role string) string {
	t.Helper()
	return field(t, cluster.Shared(t), "clusterrole/"+role, "{.rules}")
}

func TestNamespacesOfOthersAreNotChanged(t *testing.T) {
	plane, server := cluster.Shared(t), newStandIn(t)
	ensureNamespace(t)
	labels := func() string {
		t.Helper()
		return field(t, plane, "namespace/metacontroller", "{.metadata.labels}")
	}
	plane.Kubectl(t, "label", "namespace", "metacontroller", "pod-security.kubernetes.io/enforce=privileged", "team=hooks")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		_, _ = plane.TryKubectl(ctx, "", "label", "namespace", "metacontroller", "pod-security.kubernetes.io/enforce-", "team-")
	})
	before := labels()
	progress := server.register(t, func(*registration.Options) {})
	if after := labels(); after != before {
		t.Errorf("register changed the labels from %s to %s", before, after)
	}
	if want := "Namespace metacontroller exists and is not changed\n"; !strings.Contains(progress, want) || strings.Contains(progress, "take it off") {
		t.Errorf("register does not say %q alone:\n%s", want, progress)
	}
	unregister(t)
	if after := labels(); after != before {
		t.Errorf("unregister changed the labels from %s to %s", before, after)
	}
}

func TestWhatEarlierVersionsAppliedIsTakenBack(t *testing.T) {
	plane, server := cluster.Shared(t), newStandIn(t)
	plane.KubectlInput(t, earlier, "apply", "--server-side", "--force-conflicts", "--field-manager="+registration.FieldManager, "-f", "-")
	plane.Kubectl(t, "label", "namespace", "metacontroller", "team=hooks")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		_, _ = plane.TryKubectl(ctx, "", "label", "namespace", "metacontroller", "team-")
	})
	if output, err := plane.TryKubectl(t.Context(), rootPod, "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(output, "violates PodSecurity") {
		t.Fatalf("the level is not enforced: %v\n%s", err, output)
	}
	progress := server.register(t, func(*registration.Options) {})
	if want := "kubectl label namespace metacontroller pod-security.kubernetes.io/enforce-"; !strings.Contains(progress, want) {
		t.Errorf("register does not say how the label goes:\n%s", progress)
	}
	if got := rules(t, "aggregate-metacontroller-edit"); strings.Contains(got, `"*"`) {
		t.Errorf("a role of an earlier version keeps its rules: %s", got)
	}
	unregister(t)
	labels := field(t, plane, "namespace/metacontroller", "{.metadata.labels}")
	if strings.Contains(labels, "pod-security") || !strings.Contains(labels, `"team":"hooks"`) {
		t.Errorf("after unregister the namespace has the labels %s", labels)
	}
	// The account of Pods is made a moment after the namespace.
	cluster.Eventually(t, cluster.Limit, "hooks to be admitted", func(ctx context.Context) (bool, string) {
		output, err := plane.TryKubectl(ctx, rootPod, "create", "--dry-run=server", "-f", "-")
		return err == nil, output
	})
}

func TestNarrowedRolesStayNarrow(t *testing.T) {
	plane, server := cluster.Shared(t), newStandIn(t)
	const role = "metacontroller-controllers"
	server.register(t, func(*registration.Options) {})
	whole := rules(t, role)
	plane.Kubectl(t, "patch", "clusterrole", role, "--type=json", "-p",
		`[{"op":"replace","path":"/rules","value":[{"apiGroups":["example.com"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["/metrics"],"verbs":["get"]}]}]`)
	narrow := rules(t, role)
	for range 2 {
		progress := server.register(t, func(*registration.Options) {})
		if got := rules(t, role); got != narrow {
			t.Fatalf("register changed the rules to %s", got)
		}
		for _, want := range []string{
			"ClusterRole " + role + " was written by kubectl-patch and is not changed; --restore-roles replaces it\n",
			"  it lacks: * * in *\n", "  it lacks: create, patch, update events in events.k8s.io\n", "  it has besides: get /metrics\n",
			"applied ClusterRole metacontroller-apiserver\n", "applied Role metacontroller/metacontroller-apiserver:leader-election\n",
		} {
			if !strings.Contains(progress, want) {
				t.Errorf("register does not say %q:\n%s", want, progress)
			}
		}
	}
	progress := unregister(t)
	if want := "ClusterRole " + role + " was written by kubectl-patch and stays\n"; !strings.Contains(progress, want) {
		t.Errorf("unregister does not say %q:\n%s", want, progress)
	}
	if !exists(t, "clusterrole/"+role) || rules(t, role) != narrow {
		t.Fatal("unregister deleted a role that was narrowed")
	}
	progress = server.register(t, func(o *registration.Options) { o.RestoreRoles = true })
	if got := rules(t, role); got != whole || !strings.Contains(progress, "applied ClusterRole "+role+"\n") {
		t.Errorf("register --restore-roles left the rules %s:\n%s", got, progress)
	}
	unregister(t)
	if exists(t, "clusterrole/"+role) {
		t.Error("unregister left a role of register")
	}
}

func TestRolesOfOthersStay(t *testing.T) {
	plane, server := cluster.Shared(t), newStandIn(t)
	const role = "metacontroller-controllers"
	plane.Kubectl(t, "create", "clusterrole", role, "--verb=get", "--resource=pods")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.Limit)
		defer cancel()
		_, _ = plane.TryKubectl(ctx, "", "delete", "--ignore-not-found", "clusterrole", role)
	})
	before := rules(t, role)
	server.register(t, func(*registration.Options) {})
	unregister(t)
	if !exists(t, "clusterrole/"+role) || rules(t, role) != before {
		t.Error("a role that others wrote was changed or deleted")
	}
}

func TestRolesAreAppliedAlone(t *testing.T) {
	var progress strings.Builder
	config := cluster.Shared(t).Config(t)
	t.Cleanup(func() { unregister(t) })
	if err := registration.ApplyRoles(t.Context(), registration.Options{Config: config, Progress: &progress}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"metacontroller-apiserver", "metacontroller-controllers", "aggregate-metacontroller-view", "aggregate-metacontroller-edit"} {
		if !exists(t, "clusterrole/"+role) || !strings.Contains(progress.String(), "applied ClusterRole "+role+"\n") {
			t.Errorf("there is no %s:\n%s", role, progress.String())
		}
	}
	if exists(t, "apiservice/"+apiService) {
		t.Error("there is a registration")
	}
}
