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

package inspection

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

func parentsAreListed(t *testing.T, e *fixture.Environment) {
	tests(t, e, fixture.Table[*stage]{
		Both: map[string]func(*stage){
			"states":                states,
			"being finalized":       beingFinalized,
			"pages":                 pages,
			"one namespace":         oneNamespace,
			"a table":               table,
			"what cannot be served": notServed,
		},
		Webhooks: map[string]string{"states": "an inline hook does not fail, and then work, while what it is shown is the same"},
	})
}

// states lets a parent be synced, fail, wait for a pause and be synced again.
func states(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one two", "data": "x"})
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool {
		return p.State == v1alpha1.ParentSynced && p.Children != nil && p.Children.Total == 2 && p.Children.Ready == nil && p.LastSyncTime != nil &&
			p.Resource == "things" && p.Group == fixture.Group && p.Namespace == s.Name
	})
	s.script.Respond(func(*fixture.Call) (*fixture.Reply, error) { return nil, errors.New("the hook has a bad day") })
	s.Patch(fixture.Things, "a", `{"spec":{"data":"y"}}`)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool {
		return p.State == v1alpha1.ParentFailing && p.Retries > 3 && p.NextSyncTime != nil && strings.Contains(p.LastError, "the hook has a bad day")
	})
	s.eventually("it to be listed by its state", func() bool { // It is being synced at times.
		failing, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{State: "Failing"})
		synced, errSynced := s.parents(s.admin(), v1alpha1.ControllerParentOptions{State: "Synced"})
		return err == nil && errSynced == nil && len(failing.Items) == 1 && len(synced.Items) == 0
	})
	s.script.Respond(wanted)
	if done, err := s.resync(s.admin(), &v1alpha1.ParentSelection{Name: "a"}); err != nil || done.Status.Parents != 1 {
		s.T.Errorf("resynced: %v, error %v", done, err)
	}
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool {
		return p.State == v1alpha1.ParentSynced && p.Retries == 0 && p.LastError == ""
	})
	s.pause()
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentPaused })
	s.resume()
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
}

// beingFinalized lets a parent be deleted that its finalize hook keeps.
func beingFinalized(s *stage) {
	finalized(s)
	s.run()
	s.Parent("a", map[string]any{"names": "one", "keep": "it"})
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Delete(fixture.Things, "a")
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool {
		return p.State == v1alpha1.ParentWaiting && p.Message == `waiting for the finalize hook to return "finalized": true`
	})
	s.Patch(fixture.Things, "a", `{"spec":{"keep":null}}`)
	s.Await(fixture.Things, "a", "to be gone", cluster.Gone)
}

// pages reads five parents two by two.
func pages(s *stage) {
	s.run()
	for _, name := range []string{"e", "d", "c", "b", "a"} {
		s.Parent(name, nil)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		s.awaitParent(name, func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	}
	var names []string
	options := v1alpha1.ControllerParentOptions{Namespace: s.Name, Limit: 2}
	for _, remaining := range []int64{3, 1, 0} {
		list, err := s.parents(s.admin(), options)
		if err != nil {
			s.T.Fatal(err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		if got := list.RemainingItemCount; remaining > 0 && (got == nil || *got != remaining) || (remaining > 0) != (list.Continue != "") {
			s.T.Errorf("after %v the rest is %v, %q", names, got, list.Continue)
		}
		options.Continue = list.Continue
	}
	if !slices.Equal(names, []string{"a", "b", "c", "d", "e"}) {
		s.T.Errorf("the parents are %v", names)
	}
	for selector, want := range map[string]int{fixture.Label + "=" + s.Name: 5, fixture.Label + "!=" + s.Name: 0} {
		if list, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{Namespace: s.Name, LabelSelector: selector}); err != nil || len(list.Items) != want {
			s.T.Errorf("%s selects %d parents, want %d, error %v", selector, len(list.Items), want, err)
		}
	}
	if _, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{LabelSelector: "!!"}); !apierrors.IsBadRequest(err) {
		s.T.Errorf("a wrong selector: %v", err)
	}
	if _, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{Continue: "?"}); !apierrors.IsBadRequest(err) {
		s.T.Errorf("a wrong token: %v", err)
	}
	if _, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{State: "Happy"}); !apierrors.IsBadRequest(err) {
		s.T.Errorf("a wrong state: %v", err)
	}
}

// oneNamespace lets a user see what he may see.
func oneNamespace(s *stage) {
	other := s.Environment.Namespace(s.T)
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.CreateIn(other, fixture.Things, "b", map[string]any{"spec": map[string]any{"names": "one", "data": "x"}}, map[string]string{fixture.Label: s.Name})
	s.Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	s.In(other).Await(fixture.ConfigMaps, "one", "to be there", cluster.Exists)
	role := s.role("reader", []string{"get"}, fixture.Things)
	jane := s.as("jane-"+s.Name, role)
	list, err := s.parents(jane, v1alpha1.ControllerParentOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Namespace != s.Name || list.Hidden != 1 {
		s.T.Fatalf("she sees %+v, error %v", list, err)
	}
	list, err = s.parents(jane, v1alpha1.ControllerParentOptions{Namespace: other})
	if err != nil || len(list.Items) != 0 || list.Hidden != 1 {
		s.T.Errorf("in the other namespace she sees %+v, error %v", list, err)
	}
	// As the plugin does, before it asks for subresources.
	if err := jane.RESTClient().Get().Resource(s.resource()).Name(s.controller.Name).Do(s.T.Context()).Error(); err != nil {
		s.T.Errorf("she reads the controller: %v", err)
	}
	s.Idle(s.controller)
	calls := s.calls(other, "b")
	if done, err := s.resync(jane, nil); err != nil || done.Status.Parents != 1 || done.Status.Hidden != 1 {
		s.T.Errorf("she resynced %+v, error %v", done, err)
	}
	s.Settle()
	if now := s.calls(other, "b"); now != calls {
		s.T.Errorf("the hook was called %d times for the parent in the other namespace", now-calls)
	}
	// A user who may not use the subresource is told so by the kube-apiserver's rules.
	bindings, name := s.Kube.RbacV1().ClusterRoleBindings(), s.Name+"-jane-"+s.Name
	patch := []byte(`[{"op":"remove","path":"/subjects"}]`)
	if _, err := bindings.Patch(s.T.Context(), name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		s.T.Fatalf("taking the user out of the binding %s: %v", name, err)
	}
	s.eventually("it to be forbidden", func() bool {
		_, err := s.parents(jane, v1alpha1.ControllerParentOptions{})
		return apierrors.IsForbidden(err)
	})
}

// calls returns how often the hook was called about a parent, or how many syncs of it there were where a hook is inline.
func (s *stage) calls(namespace, name string) int {
	s.T.Helper()
	if !s.inline {
		return s.script.Calls(name)
	}
	list, err := s.syncs(s.admin(), s.kind, s.controller.Name, v1alpha1.ControllerSyncOptions{Namespace: namespace, Name: name})
	if err != nil || len(list.Items) == 0 {
		s.T.Fatalf("the syncs of %s/%s are %v, error %v", namespace, name, list, err)
	}
	return len(list.Items)
}

// table is what kubectl and the server's printing show.
func table(s *stage) {
	s.run()
	s.Parent("a", map[string]any{"names": "one", "data": "x"})
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	path := "/apis/metacontroller.k8s.io/v1alpha1/" + s.resource() + "/" + s.controller.Name + "/parents"
	raw := s.Kubectl(s.T, "get", "--raw", path+"?namespace="+s.Name)
	for _, part := range []string{`"kind":"ControllerParentList"`, `"apiVersion":"metacontroller.k8s.io/v1alpha1"`, `"name":"a"`, `"state":"Synced"`} {
		if !strings.Contains(raw, part) {
			s.T.Errorf("no %s in %s", part, raw)
		}
	}
	printed := &metav1.Table{}
	err := s.admin().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(s.T.Context()).Into(printed)
	if err != nil || len(printed.Rows) != 1 || printed.Rows[0].Cells[2] != "Synced" || printed.Rows[0].Cells[3] != "1" {
		s.T.Errorf("the table is %+v, error %v", printed, err)
	}
}

// notServed asks about controllers that are not there or do not run.
func notServed(s *stage) {
	broken := s.definition
	broken.Parents = nil
	broken.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.ParentResource.Resource = "nothings" }
	broken.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) { spec.Resources[0].Resource = "nothings" }
	s.controller = s.Declare(broken)
	if _, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{}); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "condition Ready") {
		s.T.Errorf("a controller that does not run: %v", err)
	}
	_, err := s.admin().CompositeControllers().GetParents(s.T.Context(), "nobody", v1alpha1.ControllerParentOptions{})
	if !apierrors.IsNotFound(err) {
		s.T.Errorf("a controller that is not there: %v", err)
	}
}

// eventually waits for a condition.
func (s *stage) eventually(what string, holds func() bool) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, what, func(context.Context) (bool, string) { return holds(), "" })
}
