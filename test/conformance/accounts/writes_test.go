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

package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// TestControllersActAsTheirAccounts runs them under a server that may write nothing itself.
func TestControllersActAsTheirAccounts(t *testing.T) {
	e := setUp(t)
	t.Run("AComposite", func(t *testing.T) { composite(t, e) })
	t.Run("ADecorator", func(t *testing.T) { decorator(t, e) })
	t.Run("ARollout", func(t *testing.T) { rollout(t, e) })
	t.Run("AFinalizerThatIsReleased", func(t *testing.T) { releases(t, e) })
	t.Run("AnotherAccountWhileItRuns", func(t *testing.T) { changes(t, e) })
	t.Run("NoAccount", func(t *testing.T) { withoutAccount(t, e) })

	t.Run("ReadsThatAreTakenAndGivenBack", func(t *testing.T) { reads(t, e) })
	t.Run("WritesThatAreTakenAndGivenBack", func(t *testing.T) { refusedWrites(t, e) })
	t.Run("AnAccountThatIsDeleted", func(t *testing.T) { deleted(t, e) })
	t.Run("AServerThatMayNotActAsTheAccount", func(t *testing.T) { notImpersonated(t, e) })
	t.Run("CredentialsOfHooks", func(t *testing.T) { credentials(t, e) })
	t.Run("RelatedObjects", func(t *testing.T) { related(t, e) })
	t.Run("TwoAccountsOnOneKind", func(t *testing.T) { two(t, e) })
}

// composite is the HelloWorld: a child and a status, a change, and the end.
func composite(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.definition.Finalize = s.At("/hook")
	s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.greeted("a", "Bob")
	s.Await(fixture.Things, "a", "to have the status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "greeted") == "Bob" })
	wide := s.Kubectl(t, "get", "compositecontroller", s.Name, "-o", "wide")
	if !strings.Contains(wide, "SERVICE ACCOUNT") || !strings.Contains(wide, s.Name+"/worker") {
		t.Errorf("kubectl get -o wide shows\n%s", wide)
	}
	s.Kubectl(t, "wait", "--for=condition=Permitted", "--timeout=60s", "compositecontroller", s.Name)
	// What is printed for the controller that exists is what was printed for its manifest.
	if before, now := s.rbac(s.manifest(s.as(s.account)), "-f", "-"), s.rbac("", "compositecontroller/"+s.Name); before != now {
		t.Errorf("for the manifest\n%s\nfor the controller\n%s", before, now)
	}
	s.Delete(fixture.Things, "a")
	s.Await(fixture.Things, "a", "to be gone", cluster.Gone)
	s.wrote("worker", "create configmaps", "update configmaps", "delete configmaps", "patch things", "patch things/status")
}

func decorator(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Decorator)
	s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	s.Await(fixture.Things, "a", "to have the label", func(o *unstructured.Unstructured) bool {
		return o != nil && o.GetLabels()["greeted"] == "Alice"
	})
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.greeted("a", "Bob")
	s.Await(fixture.Things, "a", "to have the status", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "greeted") == "Bob" })
	s.wrote("worker", "create configmaps", "update configmaps", "patch things", "patch things/status")
}

// rollout moves children one by one. The revisions are in the server's own store, and are its own.
func rollout(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.definition.Children[0].Method = v1alpha1.ChildUpdateRollingInPlace
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) {
		greeting := map[string]any{"greeting": "Hello, " + fixture.Value(c.Parent, "spec", "who") + "!"}
		return &fixture.Reply{Children: []*hook.Object{fixture.ConfigMap("one", greeting), fixture.ConfigMap("two", greeting)}}, nil
	})
	s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	for _, who := range []string{"Alice", "Bob"} {
		s.Patch(fixture.Things, "a", `{"spec":{"who":"`+who+`"}}`)
		s.greeted("one", who)
		s.greeted("two", who)
	}
	if revisions := s.Kubectl(t, "-n", s.Name, "get", "controllerrevisions.metacontroller.k8s.io", "-o", "name"); !strings.Contains(revisions, "things.") {
		t.Errorf("the revisions are %q", revisions)
	}
	s.wrote("worker", "create configmaps", "update configmaps", "patch things/status")
}

// releases deletes a controller whose finalizer is on a parent.
func releases(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	s.definition.Finalize = s.At("/hook")
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	finalizer := s.Finalizer(s.definition)
	s.Await(fixture.Things, "a", "to have the finalizer", func(o *unstructured.Unstructured) bool { return fixture.HasFinalizer(o, finalizer) })
	s.greeted("a", "Alice")
	c.Delete()
	c.AwaitGone()
	if o := s.Get(fixture.Things, "a"); fixture.HasFinalizer(o, finalizer) {
		t.Errorf("the finalizers are %v", o.GetFinalizers())
	}
	s.wrote("worker", "patch things")
}

// changes gives the controller another account while it runs.
func changes(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	c := s.run()
	s.Parent("a", map[string]any{"who": "Alice"})
	s.greeted("a", "Alice")
	other := s.as("other")
	other.Name = s.Name + "-other" // Of the roles.
	s.grant("other", other)
	c.Patch(`{"spec":{"serviceAccountRef":{"name":"other"}}}`)
	c.AwaitReady()
	s.Patch(fixture.Things, "a", `{"spec":{"who":"Bob"}}`)
	s.greeted("a", "Bob")
	s.wrote("worker", "create configmaps")
	s.wrote("other", "update configmaps")
	for _, w := range s.writes() {
		if strings.HasSuffix(w.ImpersonatedUser.Username, ":other") && cluster.AuditedRequest(&w) == "create configmaps" {
			t.Error("the second account did what the first one did")
		}
	}
}

// withoutAccount shows that the server has none of the rights that the accounts have.
func withoutAccount(t *testing.T, e *fixture.Environment) {
	s := newStage(t, e, fixture.Composite)
	c := s.Run(s.definition)
	awaitPermitted(c, "True", v1alpha1.ReasonServerRights)
	s.Parent("a", map[string]any{"who": "Alice"})
	s.AwaitEvent("a", "Warning", "SyncError", `User "`+serverUser+`" cannot create resource "configmaps"`)
	// The kube-apiserver logs a request after it has answered.
	cluster.Eventually(t, limit, "a refusal in the audit log", func(context.Context) (bool, string) {
		writes := s.writes()
		return slices.ContainsFunc(writes, func(e auditv1.Event) bool {
			return e.ImpersonatedUser == nil && e.ResponseStatus != nil && e.ResponseStatus.Code == 403
		}), fmt.Sprint(writes)
	})
}
