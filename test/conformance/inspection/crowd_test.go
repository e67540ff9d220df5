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
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// play lets the controller sync its parents, pauses it, brings the parents into their states, plans, and compares what the next sync of each
// parent writes.
func (c crowd) play(s *stage) {
	c.edit(s)
	gate := &gate{}
	s.script.Respond(gate.respond)
	s.run()
	c.create(s, false)
	names := c.names(false)
	for _, name := range names {
		s.Await(fixture.Things, name, "to be synced", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "status", "data") == "x" })
	}
	s.Idle(s.controller)
	if c.live != nil {
		c.live(s, names)
	}
	s.pause()
	c.create(s, true)
	c.change(s)
	s.awaitSeen()

	plans, calls := c.plan(s)
	warnedOf(s)
	before, revisions := s.written(), s.revisions()
	gate.open(calls)
	s.resume()
	s.eventually("the hook to be called for each parent", gate.passed)
	s.Idle(s.controller) // A pause cuts short what is under way.
	s.pause()
	s.awaitQuiet()
	if diff := cmp.Diff(plannedWrites(plans), byParent(added(withoutEvents(before), withoutEvents(s.written())))); diff != "" {
		s.T.Errorf("what was written is not what was planned (-planned +written):\n%s", diff)
	}
	if diff := cmp.Diff(plannedRevisions(plans), changes(revisions, s.revisions())); diff != "" {
		s.T.Errorf("the revisions that were written are not those that were planned (-planned +written):\n%s", diff)
	}
	gate.open(nil)
	s.resume()
}

// names are those of the parents, of the fresh ones or of the others, in order.
func (c crowd) names(fresh bool) []string {
	var list []string
	for name, each := range c.states {
		for i := range c.copies {
			if each.fresh == fresh {
				list = append(list, fmt.Sprintf("%s-%d", name, i))
			}
		}
	}
	slices.Sort(list)
	return list
}

// stateOf is the state of a parent.
func (c crowd) stateOf(parent string) state { return c.states[parent[:strings.LastIndex(parent, "-")]] }

// create creates the parents.
func (c crowd) create(s *stage, fresh bool) {
	for _, name := range c.names(fresh) {
		spec := map[string]any{"names": "one", "secrets": "secret", "data": "x"}
		maps.Copy(spec, c.stateOf(name).spec)
		s.Parent(name, spec)
	}
}

// change brings the parents into their states.
func (c crowd) change(s *stage) {
	for _, name := range c.names(false) {
		if change := c.stateOf(name).change; change != nil {
			change(s, name)
		}
	}
}

// plan plans all parents twice, which leaves no trace, and returns the plan and how often the hook was called for each parent by one plan.
func (c crowd) plan(s *stage) (*v1alpha1.ControllerPlanStatus, map[string]int) {
	s.T.Helper()
	traces, calls := s.traces(), s.script.Count()
	spec := v1alpha1.ControllerPlanSpec{DryRun: true, Limit: 500}
	plans := s.planned(spec)
	once := s.script.Count()
	again := s.planned(spec)
	if diff := cmp.Diff(plans, again, transitions); diff != "" {
		s.T.Errorf("the second plan is another one (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(traces, s.traces()); diff != "" {
		s.T.Errorf("plans left something behind (-before +after):\n%s", diff)
	}
	got, want := map[string]string{}, map[string]string{}
	for i := range plans.Parents {
		got[plans.Parents[i].Name] = sorted(&plans.Parents[i])
	}
	for _, name := range slices.Concat(c.names(true), c.names(false)) {
		want[name] = c.stateOf(name).want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.T.Errorf("the plans (-want +got):\n%s", diff)
	}
	for name := range once {
		once[name] -= calls[name]
	}
	return plans, once
}

// warnedOf compares what kubectl prints of the end of the pause, as a dry run, with the plan of that definition.
func warnedOf(s *stage) {
	s.T.Helper()
	plan := s.planned(v1alpha1.ControllerPlanSpec{Candidate: s.candidate(s.At("/hook")), Limit: 500}).Summary
	var parts []string
	for _, part := range []struct {
		n    int64
		what string
	}{
		{plan.Create, "created"},
		{plan.Update, "updated"},
		{plan.Recreate, "recreated"},
		{plan.Delete, "deleted"},
		{plan.Adopt, "adopted"},
		{plan.Release, "released"},
		{plan.Refuse, "refused"},
	} {
		switch {
		case part.n > 0 && len(parts) == 0:
			parts = append(parts, fmt.Sprintf("%d children %s", part.n, part.what))
		case part.n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	want := fmt.Sprintf("Warning: %d of %d parents would change: %s; ", plan.Changing, plan.Parents, strings.Join(parts, ", "))
	if plan.Failing > 0 {
		want += fmt.Sprintf("%d syncs would fail, the first with: ", plan.Failing)
	} else {
		want += "see 'kubectl metacontroller plan"
	}
	// A warning is of what was found out within 2 seconds.
	cluster.Eventually(s.T, limit, "kubectl to say: "+want, func(context.Context) (bool, string) {
		output := s.Kubectl(s.T, "patch", s.resource(), s.controller.Name, "--type=merge", "--dry-run=server", "-p", `{"spec":{"paused":null}}`)
		return strings.Contains(output, want), output
	})
}

// traces are what a plan could leave behind: writes and events, what the engine remembers, what it says of parents and of their syncs, and
// the versions of all objects.
func (s *stage) traces() map[string]any {
	s.T.Helper()
	parents, err := s.parents(s.admin(), v1alpha1.ControllerParentOptions{Limit: 500})
	if err != nil {
		s.T.Fatal(err)
	}
	for i := range parents.Items { // It says whether a pause ended since.
		parents.Items[i].Message = ""
	}
	syncs, err := s.syncs(s.admin(), s.kind, s.controller.Name, v1alpha1.ControllerSyncOptions{Limit: 500})
	if err != nil {
		s.T.Fatal(err)
	}
	events, err := s.Kube.CoreV1().Events(s.Name).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	return map[string]any{
		"written": s.written(), "remembered": s.remembered(), "parents": parents.Items, "syncs": syncs.Items, "events": len(events.Items),
		"revisions": s.revisions(),
	}
}

// revisions are the versions of the ControllerRevisions by their names.
func (s *stage) revisions() map[string]string {
	s.T.Helper()
	list, err := s.admin().ControllerRevisions(s.Name).List(s.T.Context(), metav1.ListOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	versions := map[string]string{}
	for i := range list.Items {
		versions[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return versions
}

// changes are what was done to the objects whose versions are given, as plans of revisions say it.
func changes(before, after map[string]string) []string {
	list := []string{}
	for name, version := range after {
		switch was, ok := before[name]; {
		case !ok:
			list = append(list, "Create "+name)
		case was != version:
			list = append(list, "Update "+name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			list = append(list, "Delete "+name)
		}
	}
	slices.Sort(list)
	return list
}

func plannedRevisions(plans *v1alpha1.ControllerPlanStatus) []string {
	list := []string{}
	for i := range plans.Parents {
		for _, r := range plans.Parents[i].Revisions {
			list = append(list, r.Action+" "+r.Name)
		}
	}
	slices.Sort(list)
	return list
}

// plannedWrites are what one sync of each parent writes by its plan. The child that a sync recreates is created by the next one.
func plannedWrites(plans *v1alpha1.ControllerPlanStatus) map[string][]string {
	var list []string
	for i := range plans.Parents {
		p := plans.Parents[i].DeepCopy()
		for n := range p.Children {
			if c := &p.Children[n]; c.Action == v1alpha1.ChildRecreate {
				c.Action = v1alpha1.ChildDelete
			}
		}
		list = append(list, writesOf([]v1alpha1.ParentPlan{*p})...)
	}
	return byParent(list)
}

// byParent sorts writes by the parents that they are for, as the names of the objects tell.
func byParent(writes []string) map[string][]string {
	all := map[string][]string{}
	for _, each := range writes {
		parent := each[strings.LastIndex(each, " ")+1:]
		if !strings.Contains(each, " things") {
			parent = parent[:strings.LastIndex(parent, "-")]
		}
		all[parent] = append(all[parent], each)
	}
	for _, list := range all {
		slices.Sort(list)
	}
	return all
}

// has says that an object has a value that the hook gives.
func has(value string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "data") == value }
}

// A gate lets the hook respond so often for each parent, and has it fail then: one sync of each parent is all that does something.
type gate struct {
	mu sync.Mutex
	// left is nil while the hook always responds.
	left map[string]int
}

func (g *gate) respond(c *fixture.Call) (*fixture.Reply, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left != nil {
		if g.left[c.Parent.GetName()] <= 0 {
			return nil, errors.New("one sync was enough")
		}
		g.left[c.Parent.GetName()]--
	}
	return desired(c)
}

// open lets the hook respond so often, nil for always.
func (g *gate) open(calls map[string]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = maps.Clone(calls)
}

// passed reports whether the hook has responded as often as it may.
func (g *gate) passed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.ContainsFunc(slices.Collect(maps.Values(g.left)), func(n int) bool { return n > 0 })
}

// awaitSeen waits until the paused controller has seen all that was written: a controller that shares its informers is shown what was
// written last of each resource, and what the paused one counts does not change any more.
func (s *stage) awaitSeen() {
	s.T.Helper()
	seen := s.NewScript(fixture.Decorator)
	seen.Want()
	s.Handle("/witness", seen)
	s.Hook.Handle("/relate", hooktest.Customize(func(*hook.CustomizeRequest) (*hook.CustomizeResponse, error) {
		return &hook.CustomizeResponse{RelatedResources: []hook.RelatedResourceRule{
			{APIVersion: "v1", Resource: "configmaps", Names: []string{"last"}}, {APIVersion: "v1", Resource: "secrets", Names: []string{"last"}},
		}}, nil
	}))
	witness := s.Run(fixture.Definition{
		Kind: fixture.Decorator, Name: s.Name + "-witness", Selector: map[string]string{"witness": s.Name}, Sync: s.At("/witness"), Customize: s.At("/relate"),
	})
	for _, r := range []schema.GroupVersionResource{fixture.ConfigMaps, fixture.Secrets} {
		s.CreateIn(s.Name, r, "last", nil, nil)
	}
	s.CreateIn(s.Name, fixture.Things, "last", nil, map[string]string{"witness": s.Name})
	s.eventually("the witness to see the last changes", func() bool {
		last := seen.Last()
		return last != nil && len(last.Related["ConfigMap.v1"]) == 1 && len(last.Related["Secret.v1"]) == 1
	})
	witness.Delete()
	witness.AwaitGone()
	s.awaitQuiet()
}

// awaitQuiet waits until the paused controller does nothing and what it counts stays as it is.
func (s *stage) awaitQuiet() {
	s.T.Helper()
	var before map[string]float64
	cluster.Eventually(s.T, limit, "the paused controller to do nothing", func(context.Context) (bool, string) {
		now := s.remembered()
		page, err := s.Server.Metrics(s.T.Context(), "metacontroller_workqueue_keys")
		if err != nil {
			return false, err.Error()
		}
		busy, known := page.Value("metacontroller_workqueue_keys", "controller", s.controller.Kind+"-"+s.controller.Name, "state", "processing")
		quiet := known && busy == 0 && maps.Equal(before, now)
		before = now
		return quiet, fmt.Sprint(busy, now)
	})
}
