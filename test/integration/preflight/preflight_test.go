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

// Package preflight tests the command preflight: the server's binary, on a real control plane with what is in its way.
package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const limit = cluster.Limit

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// A finding is one of the report.
type finding struct {
	Check   string   `json:"check"`
	Result  string   `json:"result"`
	Message string   `json:"message"`
	Next    string   `json:"next"`
	Details []string `json:"details"`
}

// A report is what the command prints as JSON, and its exit status.
type report struct {
	Result   string    `json:"result"`
	Findings []finding `json:"findings"`
	status   int
}

// run runs the command.
func run(t *testing.T, args ...string) report {
	t.Helper()
	command := exec.CommandContext(t.Context(), server.Binary(t),
		append([]string{"preflight", "--kubeconfig", cluster.Shared(t).Kubeconfig, "-o", "json"}, args...)...)
	command.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	var complaint strings.Builder
	command.Stderr = &complaint
	output, err := command.Output()
	var r report
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(output, &r); err != nil {
		t.Fatalf("the command printed %q and %q: %v", output, complaint.String(), err)
	}
	return r
}

// of returns the findings of a check.
func (r report) of(check string) []finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f finding) bool { return f.Check != check })
}

// expect looks for a finding, and says how the command has ended.
func (r report) expect(t *testing.T, status int, check, result, text string) finding {
	t.Helper()
	if r.status != status {
		t.Errorf("the exit status is %d, want %d: %+v", r.status, status, r.Findings)
	}
	found := r.of(check)
	for _, f := range found {
		if f.Result == result && strings.Contains(f.Message+"\n"+strings.Join(f.Details, "\n"), text) {
			return f
		}
	}
	t.Errorf("check %s came to %+v, want %s and %q", check, found, result, text)
	return finding{}
}

// remove deletes objects when the test ends, and waits until they are gone.
func remove(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		output, err := cluster.Shared(t).TryKubectl(ctx, "", append([]string{"delete", "--ignore-not-found"}, args...)...)
		if err != nil {
			t.Errorf("deleting %v: %v\n%s", args, err, output)
		}
	})
}

func TestNothingIsInTheWayOfAnEmptyCluster(t *testing.T) {
	r := run(t)
	for _, check := range []string{
		"cluster", "version", "aggregation", "rights-server", "rights-delegation", "rights-aggregation",
		"rights-engine", "rights-leader-election", "rights-kinds", "group", "metacontroller",
	} {
		r.expect(t, 0, check, "ok", "")
	}
	r.expect(t, 0, "certificate", "skipped", "makes its own")
	r.expect(t, 0, "etcd", "skipped", "an etcd of its own")
	if r.Result != "ok" {
		t.Errorf("the result is %q", r.Result)
	}
}

func TestMissingRightsOfTheServiceAccountAreNamed(t *testing.T) {
	plane := cluster.Shared(t)
	base := filepath.Join(cluster.Root(), "artifacts", "base")
	account := []string{"--service-account", "metacontroller/metacontroller-apiserver"}
	remove(t, "-k", base)

	// Before the installation.
	r := run(t, account...)
	missing := r.expect(t, 1, "rights-server", "failed", "watch namespaces")
	if !slices.Contains(missing.Details, "create, get, patch apiservices.apiregistration.k8s.io v1alpha1.metacontroller.k8s.io") {
		t.Errorf("got the rights %q", missing.Details)
	}
	r.expect(t, 1, "aggregation", "skipped", "cannot be read with the server's rights")
	r.expect(t, 1, "rights-kinds", "warning", "may not read every kind")

	plane.Kubectl(t, "apply", "--server-side", "-k", base)
	eventually(t, "all rights", func(r report) bool { return r.status == 0 && r.Result == "ok" }, account...)

	// What it says to do is what helps.
	for check, role := range map[string]struct{ kind, namespace, name, lacks string }{
		"rights-server":     {"clusterrolebinding", "", "metacontroller-apiserver", "patch, update flowschemas.flowcontrol.apiserver.k8s.io/status"},
		"rights-delegation": {"clusterrolebinding", "", "metacontroller-apiserver:auth-delegator", "create tokenreviews.authentication.k8s.io"},
		"rights-aggregation": {
			"rolebinding", "kube-system", "metacontroller-apiserver:authentication-reader",
			"get, list, watch configmaps kube-system/extension-apiserver-authentication",
		},
		"rights-leader-election": {
			"rolebinding", "metacontroller", "metacontroller-apiserver:leader-election",
			"create, get, update, watch leases.coordination.k8s.io in namespace metacontroller",
		},
	} {
		plane.Kubectl(t, "delete", role.kind, role.name, "--namespace", role.namespace)
		// All rights include these.
		plane.Kubectl(t, "delete", "clusterrolebinding", "metacontroller-controllers")
		r := eventually(t, "a missing right", func(r report) bool { return len(r.of(check)) == 1 && r.of(check)[0].Result == "failed" }, account...)
		told := r.expect(t, 1, check, "failed", role.lacks)
		follow(t, told.Next)
		follow(t, r.expect(t, 1, "rights-engine", "failed", "list, watch customresourcedefinitions.apiextensions.k8s.io").Next)
		eventually(t, "all rights again", func(r report) bool { return r.status == 0 && r.Result == "ok" }, account...)
	}
}

// follow runs the command of kubectl in what is said to do next.
func follow(t *testing.T, next string) {
	t.Helper()
	for line := range strings.Lines(next) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl "); ok {
			cluster.Shared(t).Kubectl(t, strings.Fields(command)...)
			return
		}
	}
	t.Errorf("there is no command of kubectl in %q", next)
}

// eventually runs the command until its report is as wanted: roles take effect a moment after they were written.
func eventually(t *testing.T, what string, wanted func(r report) bool, args ...string) report {
	t.Helper()
	var r report
	cluster.EventuallyEvery(t, 500*time.Millisecond, limit, what, func(context.Context) (bool, string) {
		r = run(t, args...)
		printed, err := json.Marshal(r.Findings)
		return err == nil && wanted(r), string(printed)
	})
	return r
}

func TestLeastPrivilegeIsNoProblem(t *testing.T) {
	plane := cluster.Shared(t)
	overlay := filepath.Join(cluster.Root(), "artifacts", "overlays", "least-privilege")
	remove(t, "-k", overlay)
	plane.Kubectl(t, "apply", "--server-side", "-k", overlay)
	r := eventually(t, "all rights but those on kinds", func(r report) bool { return r.status == 0 && r.Result == "ok" },
		"--service-account", "metacontroller/metacontroller-apiserver")
	r.expect(t, 0, "rights-kinds", "ok", "may read every kind, and not write all")
}

func TestDefinitionsOfMetacontrollerAreInTheWay(t *testing.T) {
	plane := cluster.Shared(t)
	const name = "compositecontrollers.metacontroller.k8s.io"
	remove(t, "crd", name)
	plane.DefineManifests(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: `+name+`,
		annotations: {api-approved.kubernetes.io: unapproved}},
		spec: {group: metacontroller.k8s.io, scope: Cluster, names: {kind: CompositeController, plural: compositecontrollers},
		versions: [{name: v1alpha1, served: true, storage: true,
		schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	told := run(t).expect(t, 1, "group", "failed", name)
	if !strings.Contains(told.Next, "metacontroller-apiserver migrate") || !strings.Contains(told.Next, "docs/operations/migrate.md") {
		t.Errorf("it is not said how to migrate: %q", told.Next)
	}
}

func TestAMetacontrollerThatRunsIsInTheWay(t *testing.T) {
	plane := cluster.Shared(t)
	namespace := plane.Namespace(t)
	plane.Kubectl(t, "create", "deployment", "old", "--image=example.org/metacontroller/metacontroller:v4.17.2", "--namespace", namespace)
	run(t).expect(t, 1, "metacontroller", "failed", "Deployment "+namespace+"/old")
	plane.Kubectl(t, "scale", "deployment", "old", "--replicas=0", "--namespace", namespace)
	run(t).expect(t, 0, "metacontroller", "ok", "No Metacontroller runs.")
}

func TestRegistrationsAreFound(t *testing.T) {
	plane := cluster.Shared(t)
	remove(t, "apiservice", "v1alpha1.metacontroller.k8s.io")
	plane.KubectlInput(t, `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1alpha1.metacontroller.k8s.io},
		spec: {group: metacontroller.k8s.io, version: v1alpha1, groupPriorityMinimum: 2000, versionPriority: 100,
		insecureSkipTLSVerify: true, service: {namespace: elsewhere, name: wardle}}}`, "create", "-f", "-")
	run(t).expect(t, 1, "group", "failed", "Service wardle in namespace elsewhere")
	run(t, "--namespace=elsewhere", "--service=wardle").expect(t, 0, "group", "warning", "is not available")
}

func TestExpiredCertificatesAreFound(t *testing.T) {
	files := expired(t)
	run(t, "--tls-cert-file", files.CertFile, "--tls-private-key-file", files.KeyFile).expect(t, 1, "certificate", "failed", "is valid from ")
	made, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run(t, "--tls-cert-file", made.CertFile, "--tls-private-key-file", made.KeyFile, "--ca-file", made.CAFile).expect(t, 0, "certificate", "ok", "has its key")
}

func TestEtcdIsAsked(t *testing.T) {
	plane := cluster.Shared(t)
	r := run(t, "--etcd-servers", plane.EtcdServers+",http://127.0.0.1:1", "--timeout=2s")
	r.expect(t, 1, "etcd", "failed", "etcd at http://127.0.0.1:1 does not answer")
	r.expect(t, 1, "etcd", "warning", "answers, without encryption")
	r.expect(t, 1, "etcd-keys", "failed", "the etcd of a kube-apiserver")
}

func TestARunningServerIsFound(t *testing.T) {
	s := server.Start(t, cluster.Shared(t), server.Options{})
	r := run(t, "--data-dir", s.DataDir())
	r.expect(t, 0, "group", "ok", "registered already, and available")
	r.expect(t, 0, "certificate", "ok", "has its key")
}

// expired returns a certificate that has expired.
func expired(t *testing.T) servingcert.Files {
	t.Helper()
	year := 365 * 24 * time.Hour
	files := servingcert.FilesIn(t.TempDir())
	manager := servingcert.New(files, servingcert.Options{Clock: clocktesting.NewFakeClock(time.Now().Add(-year))})
	if err := manager.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return files
}
