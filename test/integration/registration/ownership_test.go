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
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
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
	cluster.Eventually(t, time.Minute, "hooks to be admitted", func(ctx context.Context) (bool, string) {
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
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
