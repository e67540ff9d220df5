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
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// plan asks for a plan.
func (s *stage) plan(as typedv1alpha1.MetacontrollerV1alpha1Interface, spec v1alpha1.ControllerPlanSpec) (*v1alpha1.ControllerPlan, error) {
	asked := &v1alpha1.ControllerPlan{Spec: spec}
	if s.kind == fixture.Decorator {
		return as.DecoratorControllers().Plan(s.T.Context(), s.controller.Name, asked, metav1.CreateOptions{})
	}
	return as.CompositeControllers().Plan(s.T.Context(), s.controller.Name, asked, metav1.CreateOptions{})
}

// planned returns the plan of an administrator.
func (s *stage) planned(spec v1alpha1.ControllerPlanSpec) *v1alpha1.ControllerPlanStatus {
	s.T.Helper()
	plan, err := s.plan(s.admin(), spec)
	if err != nil {
		s.T.Fatalf("planning: %v", err)
	}
	return &plan.Status
}

// A scenario is what happened to parents and children while the controller was paused.
type scenario struct {
	method v1alpha1.ChildUpdateMethod
	// edit changes the definition.
	edit func(*stage)
	// change is done while the controller is paused, for the parent "a" with the children "one" and "two".
	change func(*stage)
	// want is what the plan says of children of the parent a, by their names: action and reason.
	want map[string]string
	// failing is a part of the error of the plan of a.
	failing string
}

func plansAreWhatTheNextSyncDoes(t *testing.T, e *fixture.Environment) {
	data := func(value string) func(*stage) {
		return func(s *stage) { s.Patch(fixture.Things, "a", `{"spec":{"data":"`+value+`"}}`) }
	}
	drift := func(s *stage) { s.Patch(fixture.ConfigMaps, "one", `{"data":{"data":"drifted"}}`) }
	scenarios := map[string]scenario{
		"nothing": {v1alpha1.ChildUpdateInPlace, nil, func(*stage) {}, map[string]string{"one": "Leave Same", "two": "Leave Same"}, ""},
		"create": {v1alpha1.ChildUpdateInPlace, nil, func(s *stage) {
			s.Patch(fixture.Things, "a", `{"spec":{"names":"one two three"}}`)
		}, map[string]string{"one": "Leave Same", "two": "Leave Same", "three": "Create"}, ""},
		"update": {v1alpha1.ChildUpdateInPlace, nil, data("y"), map[string]string{"one": "Update", "two": "Update"}, ""},
		"drift":  {v1alpha1.ChildUpdateInPlace, nil, drift, map[string]string{"one": "Update", "two": "Leave Same"}, ""},
		"delete": {v1alpha1.ChildUpdateInPlace, nil, func(s *stage) {
			s.Patch(fixture.Things, "a", `{"spec":{"names":"one"}}`)
		}, map[string]string{"one": "Leave Same", "two": "Delete"}, ""},
		"recreate":  {v1alpha1.ChildUpdateRecreate, nil, data("y"), map[string]string{"one": "Recreate", "two": "Recreate"}, ""},
		"on delete": {v1alpha1.ChildUpdateOnDelete, nil, data("y"), map[string]string{"one": "Leave OnDelete", "two": "Leave OnDelete"}, ""},
		"a name that is taken": {v1alpha1.ChildUpdateInPlace, nil, func(s *stage) {
			s.CreateIn(s.Name, fixture.ConfigMaps, "three", map[string]any{"data": map[string]any{"by": "others"}}, nil)
			s.Patch(fixture.Things, "a", `{"spec":{"names":"one two three"}}`)
		}, map[string]string{"one": "Leave Same", "two": "Leave Same", "three": "Refuse Conflict"}, "exists and is not controlled by"},
		"a finalizer": {v1alpha1.ChildUpdateInPlace, func(s *stage) { s.definition.Finalize = s.At("/hook") }, func(s *stage) {
			s.Parent("b", map[string]any{"names": "four", "data": "x"})
		}, map[string]string{"one": "Leave Same", "two": "Leave Same"}, ""},
		"server-side apply": {v1alpha1.ChildUpdateInPlace, serverSide, func(s *stage) {
			drift(s)
			s.Patch(fixture.Things, "a", `{"spec":{"names":"one three"}}`)
		}, map[string]string{"one": "Update", "two": "Delete", "three": "Create"}, ""},
		"server-side apply that recreates": {
			v1alpha1.ChildUpdateRecreate, serverSide, data("y"), map[string]string{"one": "Recreate", "two": "Recreate"}, "",
		},
		"deletions that are held": {v1alpha1.ChildUpdateInPlace, guarded, func(s *stage) {
			s.Patch(fixture.Things, "a", `{"spec":{"names":"three"}}`)
		}, map[string]string{"one": "Refuse DeletionsHeld", "two": "Refuse DeletionsHeld", "three": "Create"}, ""},
	}
	all := map[string]func(*stage){}
	for name, sc := range scenarios {
		all[name] = sc.play
	}
	tests(t, e, all)
}

// serverSide has the children applied.
func serverSide(s *stage) {
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) {
		for i := range spec.ChildResources {
			spec.ChildResources[i].UpdateStrategy.Apply = v1alpha1.ChildApplyServerSide
		}
	}
	s.definition.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) {
		for i := range spec.Attachments {
			spec.Attachments[i].UpdateStrategy.Apply = v1alpha1.ChildApplyServerSide
		}
	}
}

// guarded allows one deletion a minute.
func guarded(s *stage) {
	guard := &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(1))}
	s.definition.EditComposite = func(spec *v1alpha1.CompositeControllerSpec) { spec.DeletionGuard = guard }
	s.definition.EditDecorator = func(spec *v1alpha1.DecoratorControllerSpec) { spec.DeletionGuard = guard }
}

// play lets the controller sync, pauses it, changes something, plans, and compares what is written when it goes on.
func (sc scenario) play(s *stage) {
	s.definition.Children[0].Method = sc.method
	if sc.edit != nil {
		sc.edit(s)
	}
	s.run()
	s.Parent("a", map[string]any{"names": "one two", "data": "x"})
	s.Await(fixture.ConfigMaps, "two", "to be there", cluster.Exists)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Idle(s.controller)
	s.pause()
	sc.change(s)
	s.settlePaused("a")

	plans := s.planTwice()
	at := slices.IndexFunc(plans.Parents, func(p v1alpha1.ParentPlan) bool { return p.Name == "a" })
	if at < 0 {
		s.T.Fatalf("there is no plan of a: %+v", plans)
	}
	a := plans.Parents[at]
	if diff := cmp.Diff(sc.want, actions(&a)); diff != "" {
		s.T.Errorf("the plan of the children (-want +got):\n%s", diff)
	}
	if (a.Error != "") != (sc.failing != "") || !strings.Contains(a.Error, sc.failing) {
		s.T.Errorf("the error of the plan is %q, want %q", a.Error, sc.failing)
	}
	before := withoutEvents(s.written())
	s.resume()
	s.awaitWritten(before, plans)
	s.Idle(s.controller)
	if diff := cmp.Diff(writesOf(plans.Parents), added(before, withoutEvents(s.written()))); diff != "" {
		s.T.Errorf("what was written is not what was planned (-planned +written):\n%s", diff)
	}
}

// awaitWritten waits until what was planned was written since before, and nothing else.
func (s *stage) awaitWritten(before []string, plans *v1alpha1.ControllerPlanStatus) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, "what was planned to be written", func(context.Context) (bool, string) {
		diff := cmp.Diff(writesOf(plans.Parents), added(before, withoutEvents(s.written())))
		return diff == "", diff
	})
}

// settlePaused waits until the paused controller has seen the latest state: a second controller, which shares its informers, has seen a
// change of a parent that was made later.
func (s *stage) settlePaused(parent string) {
	s.T.Helper()
	seen := s.NewScript(fixture.Decorator)
	seen.Want()
	s.Handle("/witness", seen)
	d := fixture.Definition{Kind: fixture.Decorator, Name: s.Name + "-witness", Sync: s.At("/witness"), Children: []fixture.Child{{Resource: fixture.ConfigMaps}}}
	witness := s.Run(d)
	s.Patch(fixture.Things, parent, `{"metadata":{"annotations":{"seen":"now"}}}`)
	s.eventually("the witness to see the last change", func() bool {
		last := seen.Last()
		return last != nil && last.Parent.GetAnnotations()["seen"] == "now"
	})
	witness.Delete()
	witness.AwaitGone()
}

// planTwice plans all parents, and checks that a plan leaves no trace and is the same when it is made again.
func (s *stage) planTwice() *v1alpha1.ControllerPlanStatus {
	s.T.Helper()
	return s.planTwiceOf(1)
}

// transition is when a condition of a rollout changed, which is when it is planned.
var transition = regexp.MustCompile(`"lastTransitionTime":"[^"]*"`)

// transitions compares the values of fields but for the times of transitions: the second plan may be made a second later.
var transitions = cmp.Transformer("transitions", func(c v1alpha1.FieldChange) [3]string {
	return [3]string{c.Path, ptr.Deref(c.Observed, "absent"), transition.ReplaceAllString(ptr.Deref(c.Desired, "absent"), "")}
})

// planTwiceOf is planTwice of parents of which there are so many revisions, for each of which the hook is called.
func (s *stage) planTwiceOf(revisions int) *v1alpha1.ControllerPlanStatus {
	s.T.Helper()
	written, remembered, calls := s.written(), s.remembered(), s.script.Count()
	first := s.planned(v1alpha1.ControllerPlanSpec{})
	second := s.planned(v1alpha1.ControllerPlanSpec{DryRun: true})
	if diff := cmp.Diff(first, second, transitions); diff != "" {
		s.T.Errorf("the second plan is another one (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(written, s.written()); diff != "" {
		s.T.Errorf("plans wrote (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(remembered, s.remembered()); diff != "" {
		s.T.Errorf("plans left something behind (-before +after):\n%s", diff)
	}
	for name, n := range s.script.Count() {
		if want := calls[name] + 2*revisions; n != want {
			s.T.Errorf("the hook was called %d times for %s, want %d", n, name, want)
		}
	}
	return first
}

// actions are those of the children by their names, with the reasons.
func actions(p *v1alpha1.ParentPlan) map[string]string {
	of := map[string]string{}
	for _, c := range p.Children {
		of[c.Name] = strings.TrimSpace(of[c.Name] + " " + strings.TrimSpace(string(c.Action)+" "+c.Reason))
	}
	return of
}

// added returns what is in after and not in before, both sorted.
func added(before, after []string) []string {
	counts := map[string]int{}
	for _, each := range before {
		counts[each]++
	}
	list := []string{}
	for _, each := range after {
		if counts[each]--; counts[each] < 0 {
			list = append(list, each)
		}
	}
	return list
}
