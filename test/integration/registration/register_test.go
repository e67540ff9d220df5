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

package registration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/register"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

const apiService = "v1alpha1.metacontroller.k8s.io"

// unregister cleans up after a test, whose context may have ended.
func unregister(t *testing.T) string {
	t.Helper()
	var progress strings.Builder
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
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
	plane.AwaitServed(t, time.Minute, v1alpha1.SchemeGroupVersion)
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
			cluster.Eventually(t, time.Minute, "registering to tell why: "+test.reason, func(context.Context) (bool, string) {
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_, _ = plane.TryKubectl(ctx, "", "delete", "--ignore-not-found", "crd", "compositecontrollers.metacontroller.k8s.io")
	})
	cluster.Eventually(t, time.Minute, "kube-apiserver makes the APIService of the definition", func(context.Context) (bool, string) {
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
	if err := registration.PublishAuthority(t.Context(), o.Config, o.CABundle); !errors.As(err, &served) {
		t.Errorf("publishing an authority: got %v, want a ServedByDefinitionsError", err)
	}
	if err := registration.Unregister(t.Context(), o.Config, nil); !errors.As(err, &served) {
		t.Errorf("unregistering: got %v, want a ServedByDefinitionsError", err)
	}

	remove()
	cluster.Eventually(t, time.Minute, "kube-apiserver removes the APIService of the definition", func(context.Context) (bool, string) {
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

func TestPublishingAnAuthorityChangesNothingElse(t *testing.T) {
	plane := cluster.Shared(t)
	o := newStandIn(t).options(t)
	if err := registration.PublishAuthority(t.Context(), o.Config, o.CABundle); err == nil {
		t.Error("published an authority without a registration")
	}
	if exists(t, "apiservice/"+apiService) {
		t.Fatal("publishing an authority made a registration")
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
	if err := registration.PublishAuthority(t.Context(), o.Config, o.CABundle); err != nil {
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
