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

// held plans deletions that the guard holds. What else a plan may say is compared with the next sync for each state of parents, see crowds.
func held(s *stage) {
	guarded(s)
	s.run()
	s.Parent("a", map[string]any{"names": "one two", "data": "x"})
	s.Await(fixture.ConfigMaps, "two", "to be there", cluster.Exists)
	s.awaitParent("a", func(p v1alpha1.ControllerParent) bool { return p.State == v1alpha1.ParentSynced })
	s.Idle(s.controller)
	s.pause()
	s.Patch(fixture.Things, "a", `{"spec":{"names":"three"}}`)
	s.settlePaused("a")
	plans := s.planTwice()
	if diff := cmp.Diff(map[string]string{"one": "Refuse DeletionsHeld", "two": "Refuse DeletionsHeld", "three": "Create"}, actions(&plans.Parents[0])); diff != "" {
		s.T.Errorf("the plan of the children (-want +got):\n%s", diff)
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

// transition is when a condition of a rollout changed, which is when it is planned.
var transition = regexp.MustCompile(`"lastTransitionTime":"[^"]*"`)

// transitions compares the values of fields but for the times of transitions: the second plan may be made a second later.
var transitions = cmp.Transformer("transitions", func(c v1alpha1.FieldChange) [3]string {
	return [3]string{c.Path, ptr.Deref(c.Observed, "absent"), transition.ReplaceAllString(ptr.Deref(c.Desired, "absent"), "")}
})

// planTwice plans all parents, and checks that a plan leaves no trace and is the same when it is made again.
func (s *stage) planTwice() *v1alpha1.ControllerPlanStatus {
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
	for name, n := range s.script.Count() { // There is none of an inline hook.
		if want := calls[name] + 2; n != want {
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

// written returns what the server wrote in the stage's namespace, in its order, events included, each as in "patch things/status a". Dry runs,
// and what was refused, is left out.
func (s *stage) written() []string {
	s.T.Helper()
	list := []string{}
	for _, e := range s.Audited(s.T, s.Name) {
		if strings.HasPrefix(e.UserAgent, "metacontroller-apiserver/") && !strings.Contains(e.RequestURI, "dryRun=All") &&
			(e.ResponseStatus == nil || e.ResponseStatus.Code < 300) {
			list = append(list, cluster.AuditedRequest(&e)+" "+e.ObjectRef.Name)
		}
	}
	return list
}

// withoutEvents are the writes that are no events, in no order.
func withoutEvents(writes []string) []string {
	list := slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return strings.Contains(w, " events ") })
	slices.Sort(list)
	return list
}

// resources are the resources of the kinds that hooks return.
var resources = map[string]string{"ConfigMap": "configmaps", "Secret": "secrets"}

// writesOf are the writes that plans announce, and the creation that follows a recreation, in no order.
func writesOf(plans []v1alpha1.ParentPlan) []string {
	list := []string{}
	for i := range plans {
		for _, c := range plans[i].Children {
			resource, update := resources[c.Kind], "update"
			create := "create"
			if c.FieldManager != "" {
				update, create = "patch", "patch"
			}
			switch c.Action {
			case v1alpha1.ChildCreate:
				list = append(list, create+" "+resource+" "+c.Name)
			case v1alpha1.ChildUpdate:
				list = append(list, update+" "+resource+" "+c.Name)
			case v1alpha1.ChildAdopt, v1alpha1.ChildRelease, v1alpha1.ChildRetain:
				list = append(list, "patch "+resource+" "+c.Name)
			case v1alpha1.ChildDelete:
				list = append(list, "delete "+resource+" "+c.Name)
			case v1alpha1.ChildRecreate:
				list = append(list, "delete "+resource+" "+c.Name, create+" "+resource+" "+c.Name)
			case v1alpha1.ChildLeave, v1alpha1.ChildRefuse:
			}
		}
		list = append(list, parentWrites(&plans[i])...)
	}
	slices.Sort(list)
	return list
}

// parentWrites are those of the parent itself: the finalizer, the status, and labels and annotations are one write each.
func parentWrites(p *v1alpha1.ParentPlan) []string {
	var list []string
	for _, part := range [][]string{{"metadata.finalizers"}, {"status"}, {"metadata.labels", "metadata.annotations"}} {
		if !slices.ContainsFunc(p.Changes, func(c v1alpha1.FieldChange) bool {
			return slices.ContainsFunc(part, func(path string) bool { return strings.HasPrefix(c.Path, path) })
		}) {
			continue
		}
		resource := "things"
		if part[0] == "status" {
			resource += "/status"
		}
		list = append(list, "patch "+resource+" "+p.Name)
	}
	return list
}

// remembered is what the server says that it remembers and has done.
func (s *stage) remembered() map[string]float64 {
	s.T.Helper()
	page, err := s.Server.Metrics(s.T.Context(), "metacontroller_remembered", "metacontroller_expectations_pending", "workqueue_adds_total")
	if err != nil {
		s.T.Fatal(err)
	}
	name := s.controller.Kind + "-" + s.controller.Name
	values := map[string]float64{}
	for _, what := range []string{"parents", "children", "customize_responses", "etag_responses", "own_writes", "synced_parents"} {
		if n, ok := page.Value("metacontroller_remembered", "controller", name, "what", what); ok {
			values[what] = n
		}
	}
	values["expectations"], _ = page.Value("metacontroller_expectations_pending", "controller", name)
	values["adds"], _ = page.Value("workqueue_adds_total", "name", name)
	return values
}
