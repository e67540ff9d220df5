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

// Package inspection checks what the subresources of controllers say against what the controllers do: parents, request, plan, resync and
// syncs, of both kinds, asked for by kubectl and by the generated client, by administrators and by users with rights in one namespace.
package inspection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, cluster.Audit)) }

const limit = cluster.Limit

// TestInspection has one server for all.
func TestInspection(t *testing.T) {
	if server.OnDefinitions() {
		t.Skip("no definition has subresources of its own")
	}
	e := fixture.SetUp(t, fixture.Options{Limit: limit})
	roles, err := os.ReadFile(filepath.Join(cluster.Root(), "artifacts", "base", "clusterroles-users.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e.Apply(t, string(roles))
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"PlansOfManyParents", plansOfManyParents},
		{"ParentsAreListedWithHowTheyAreDoing", parentsAreListed},
		{"RequestsAndPlans", requestsAndPlans},
		{"Rollbacks", rollbacks},
		{"SyncsNameTheirTriggers", syncsNameTheirTriggers},
		{"SyncsNameWhoChangesChildrenBack", syncsNameWhoChangesChildrenBack},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

// A stage is one test of a controller of either kind, whose hook wants a ConfigMap with the data spec.data for each name in spec.names.
type stage struct {
	*fixture.Test

	kind       fixture.Kind
	script     *fixture.Script
	definition fixture.Definition
	// inline says that the hooks are inline ones, which do what the script does.
	inline bool
	// finalize is the finalize hook, which a test may add to the definition.
	finalize   *v1alpha1.Hook
	controller *controllers.Controller
}

// tests runs a table whose rows may be of both kinds of controllers.
func tests(t *testing.T, e *fixture.Environment, table fixture.Table[*stage]) {
	t.Helper()
	table.Stage = func(t *testing.T, kind fixture.Kind, inline bool) *stage {
		s := newStage(t, e, kind)
		if inline {
			s.inlined()
		}
		return s
	}
	table.Run(t)
}

func newStage(t *testing.T, e *fixture.Environment, kind fixture.Kind) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), kind: kind, script: e.NewScript(kind)}
	s.script.Respond(wanted)
	s.Handle("/hook", s.script)
	s.definition = fixture.Definition{
		Kind: kind, Sync: s.At("/hook"), Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	}
	s.finalize = s.At("/hook")
	return s
}

// inlined has inline hooks do what wanted does.
func (s *stage) inlined() {
	s.T.Helper()
	s.inline = true
	s.definition.Sync = fixture.Inline(s.T, s.kind, `
children:
- forEach: [{name: name, in: "parent.?spec.?names.orValue('').split(' ').filter(n, n != '')"}]
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${name}"}, data: {data: "${parent.?spec.?data.orValue('')}"}}
status: {data: "${parent.?spec.?fails.hasValue() ? {'': ''}[parent.spec.fails] : parent.?spec.?data.orValue('')}"}
resyncAfterSeconds: "${parent.?spec.?resync.orValue(0.0)}"
`)
	s.finalize = fixture.Inline(s.T, s.kind, `
finalized: "parent.?spec.?fails.hasValue() ? {'': true}[parent.spec.fails] : children.configmaps.size() == 0 && !parent.?spec.?keep.hasValue()"
`)
}

// behaves has the sync hook respond in another way: the script as respond says, or an inline hook as its text.
func (s *stage) behaves(respond func(*fixture.Call) (*fixture.Reply, error), text string) {
	s.T.Helper()
	if !s.inline {
		s.script.Respond(respond)
		return
	}
	s.definition.Sync = fixture.Inline(s.T, s.kind, text)
	if s.controller == nil {
		return
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"hooks": map[string]any{"sync": s.definition.Sync}}})
	if err != nil {
		s.T.Fatal(err)
	}
	s.controller.Patch(string(patch))
	s.controller.AwaitObserved()
}

// wanted wants what the parent says. It fails with spec.fails, and does not finalize a parent with spec.keep.
func wanted(c *fixture.Call) (*fixture.Reply, error) {
	if text := fixture.Value(c.Parent, "spec", "fails"); text != "" {
		return nil, errors.New(text)
	}
	reply := &fixture.Reply{Status: map[string]any{"data": fixture.Value(c.Parent, "spec", "data")}}
	reply.ResyncAfterSeconds, _, _ = unstructured.NestedFloat64(c.Parent.Object, "spec", "resync")
	for name := range strings.FieldsSeq(fixture.Value(c.Parent, "spec", "names")) {
		reply.Children = append(reply.Children, fixture.ConfigMap(name, map[string]any{"data": fixture.Value(c.Parent, "spec", "data")}))
	}
	if c.Finalizing {
		reply.Children, reply.Finalized = []*hook.Object{}, len(c.Children["ConfigMap.v1"]) == 0 && fixture.Value(c.Parent, "spec", "keep") == ""
	}
	return reply, nil
}

// run creates the controller.
func (s *stage) run() {
	s.T.Helper()
	s.controller = s.Run(s.definition)
}

// pause has the controller do nothing until resume is called.
func (s *stage) pause() {
	s.T.Helper()
	s.controller.Patch(`{"spec":{"paused":true}}`)
	s.controller.AwaitCondition(v1alpha1.ConditionPaused, "to be True", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue
	})
}

func (s *stage) resume() {
	s.T.Helper()
	s.controller.Patch(`{"spec":{"paused":false}}`)
}

// resource is that of the controller.
func (s *stage) resource() string { return strings.ToLower(string(s.kind)) + "s" }

// as returns a client of a user without groups but system:authenticated, who may see what a RoleBinding to a ClusterRole in the stage's
// namespace lets him see, and use the subresources.
func (s *stage) as(name, role string) typedv1alpha1.MetacontrollerV1alpha1Interface {
	s.T.Helper()
	s.Bind(s.T, name, role, s.Name, name)
	s.Bind(s.T, s.Name+"-"+name, "metacontroller-inspection", "", name)
	s.AwaitRole(s.T, name, role, s.Name)
	s.AwaitRole(s.T, name, "metacontroller-inspection", "")
	config := rest.CopyConfig(s.Config(s.T))
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	return cluster.NewClients(s.T, config).Versioned.MetacontrollerV1alpha1()
}

// role makes a ClusterRole of the stage that allows the verbs for objects of the resources, and returns its name. It goes with the test.
func (s *stage) role(suffix string, verbs []string, resources ...schema.GroupVersionResource) string {
	s.T.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + suffix}}
	for _, r := range resources {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{r.Group}, Resources: []string{r.Resource}})
	}
	roles := s.Kube.RbacV1().ClusterRoles()
	if _, err := roles.Create(s.T.Context(), role, metav1.CreateOptions{}); err != nil {
		s.T.Fatalf("creating the ClusterRole %s: %v", role.Name, err)
	}
	s.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.T.Context()), limit)
		defer cancel()
		if err := roles.Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			s.T.Errorf("deleting the ClusterRole %s: %v", role.Name, err)
		}
	})
	return role.Name
}

// related creates the Service that customize hooks select.
func (s *stage) related() {
	s.T.Helper()
	s.CreateIn(s.Name, fixture.Services, "related", map[string]any{"spec": map[string]any{"type": "ExternalName", "externalName": "example.com"}}, nil)
}

func (s *stage) admin() typedv1alpha1.MetacontrollerV1alpha1Interface {
	return s.Versioned.MetacontrollerV1alpha1()
}

// subresources reads those of controllers of a kind.
func subresources(as typedv1alpha1.MetacontrollerV1alpha1Interface, kind fixture.Kind) typedv1alpha1.ControllerSubresources {
	if kind == fixture.Decorator {
		return as.DecoratorControllers()
	}
	return as.CompositeControllers()
}

// parents asks for the parents of the controller.
func (s *stage) parents(as typedv1alpha1.MetacontrollerV1alpha1Interface, o v1alpha1.ControllerParentOptions) (*v1alpha1.ControllerParentList, error) {
	return subresources(as, s.kind).GetParents(s.T.Context(), s.controller.Name, o)
}

// awaitParent waits until a parent is in a state.
func (s *stage) awaitParent(name string, is func(v1alpha1.ControllerParent) bool) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, "the parent "+name, func(context.Context) (bool, string) {
		list, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{Namespace: s.Name, Name: name})
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprint(list.Items, err)
		}
		return is(list.Items[0]), fmt.Sprintf("%+v", list.Items[0])
	})
}

// requests asks what the hooks would be sent about a parent.
func (s *stage) requests(as typedv1alpha1.MetacontrollerV1alpha1Interface, o v1alpha1.HookRequestOptions) (*v1alpha1.HookRequestList, error) {
	return subresources(as, s.kind).GetRequest(s.T.Context(), s.controller.Name, o)
}

// resync asks for syncs of parents.
func (s *stage) resync(as typedv1alpha1.MetacontrollerV1alpha1Interface, of *v1alpha1.ParentSelection) (*v1alpha1.ControllerResync, error) {
	asked := &v1alpha1.ControllerResync{Spec: v1alpha1.ControllerResyncSpec{Parents: of}}
	if s.kind == fixture.Decorator {
		return as.DecoratorControllers().Resync(s.T.Context(), s.controller.Name, asked, metav1.CreateOptions{})
	}
	return as.CompositeControllers().Resync(s.T.Context(), s.controller.Name, asked, metav1.CreateOptions{})
}
