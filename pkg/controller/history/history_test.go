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

package history

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

func key(name string) parent.Key {
	return parent.NewKey(schema.GroupResource{Group: "example.com", Resource: "things"}, "n", name)
}

// configMap returns a ConfigMap in a version, whose UID is its name.
func configMap(t testing.TB, name, version, rest string) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"n","uid":%q,"resourceVersion":%q}%s}`,
		name, name, version, rest), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// because are the triggers of a sync that waited for a second.
func because(triggers ...Trigger) Begun {
	set := &Set{}
	for _, each := range triggers {
		set.Add(each)
	}
	return Begun{Triggers: set, Waited: time.Second}
}

// result is what a sync did with the children.
type result struct {
	Plan          plan.Plan
	Outcomes      []plan.Outcome
	Held          bool
	ChangedBackBy map[children.Key][]string
}

func (r *result) record(rec *Recording) {
	rec.Children(&r.Plan, r.Outcomes, r.Held, r.ChangedBackBy, configMaps)
}

// synced records a sync.
func synced(h *History, name, failed string) {
	rec := h.Begin(key(name), because(Of(v1alpha1.SyncTimer)))
	rec.End(failed)
}

// errorsOf returns the errors of the syncs of parents, the latest first.
func errorsOf(h *History, limit int, names ...string) (list []string) {
	keys := make([]parent.Key, len(names))
	for i, name := range names {
		keys[i] = key(name)
	}
	syncs, _ := h.Latest(keys, limit)
	for i := range syncs {
		text := syncs[i].Error
		if syncs[i].Abridged {
			text += " (abridged)"
		}
		list = append(list, text)
	}
	return list
}

func TestTheLatestSyncsComeFirst(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	for i, name := range []string{"a", "b", "a", "c", "a"} {
		synced(h, name, fmt.Sprint(i))
	}
	if diff := cmp.Diff([]string{"4", "2", "1", "0"}, errorsOf(h, 10, "a", "b")); diff != "" {
		t.Errorf("syncs of two parents (-want +got):\n%s", diff)
	}
	syncs, more := h.Latest([]parent.Key{key("a"), key("nobody")}, 2)
	if len(syncs) != 2 || more != 1 || syncs[0].WaitMilliseconds != 1000 || syncs[0].Triggers[0].Reason != v1alpha1.SyncTimer || syncs[0].Name != "a" {
		t.Errorf("limited to two: %+v and %d more", syncs, more)
	}
}

func TestTheRingIsBoundedAndTheLastSyncOfEachParentStays(t *testing.T) {
	const limit = 16 << 10
	r := NewRing(limit)
	h := r.Of("c", "u")
	long := strings.Repeat("x", 400)
	synced(h, "a", "first")
	synced(h, "a", "last of a"+long)
	for i := range 200 {
		synced(h, fmt.Sprintf("p%d", i%20), fmt.Sprint(i, long))
		if bytes := r.Bytes(); bytes > limit || bytes <= 0 {
			t.Fatalf("after %d syncs the ring has %d bytes", i, bytes)
		}
	}
	got := errorsOf(h, 10, "a")
	if len(got) != 1 || !strings.HasPrefix(got[0], "last of a") || !strings.HasSuffix(got[0], "(abridged)") || len(got[0]) > maxShort+20 {
		t.Errorf("of the parent that was synced long ago there is %q", got)
	}
	synced(h, "a", "again")
	if diff := cmp.Diff([]string{"again"}, errorsOf(h, 10, "a")); diff != "" {
		t.Errorf("the next sync of that (-want +got):\n%s", diff)
	}
	if n := h.Len(); n != 21 {
		t.Errorf("there are %d parents, want 21", n)
	}
}

func TestASyncThatIsLargerThanTheRingStaysInShort(t *testing.T) {
	r := NewRing(1)
	h := r.Of("c", "u")
	for i := range 3 {
		synced(h, "a", fmt.Sprint(i))
		if got := errorsOf(h, 10, "a"); r.Bytes() != 0 || len(got) != 1 || got[0] != fmt.Sprint(i, " (abridged)") && got[0] != fmt.Sprintf("%d (abridged)", i) {
			t.Errorf("%d bytes, and %q", r.Bytes(), got)
		}
	}
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(*Ring, *History){
		"each parent":         func(_ *Ring, h *History) { h.Forget(key("a")); h.Forget(key("b")); h.Forget(key("nobody")) },
		"what is not kept":    func(_ *Ring, h *History) { h.Keep(func(parent.Key) bool { return false }) },
		"the controller":      func(r *Ring, _ *History) { r.Close("c", "u") },
		"another of the name": func(r *Ring, _ *History) { r.Of("c", "v") },
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRing(4 << 10)
			other := r.Of("other", "u")
			synced(other, "a", "stays")
			before := r.Bytes()
			h := r.Of("c", "u")
			for i := range 4 {
				synced(h, "a", fmt.Sprint(i))
				synced(h, "b", fmt.Sprint(i))
			}
			late := h.Begin(key("a"), Begun{})
			forget(r, h)
			late.End("too late")
			if h.Len() != 0 || len(errorsOf(h, 10, "a", "b")) != 0 {
				t.Errorf("%d parents are left, with %q", h.Len(), errorsOf(h, 10, "a", "b"))
			}
			if got := errorsOf(other, 10, "a"); len(got) != 1 || !strings.HasPrefix(got[0], "stays") || r.Bytes() > before {
				t.Errorf("of the other controller there is %q, and %d bytes, before %d", got, r.Bytes(), before)
			}
		})
	}
}

func TestTheHistoryOfAControllerOutlivesItsInstance(t *testing.T) {
	r := NewRing(1 << 20)
	synced(r.Of("c", "u"), "a", "before")
	synced(r.Of("c", "u"), "b", "before")
	again := r.Of("c", "u")
	again.Keep(func(k parent.Key) bool { return k == key("a") })
	if got := errorsOf(again, 10, "a", "b"); len(got) != 1 || again.Len() != 1 {
		t.Errorf("there is %q", got)
	}
	r.Close("c", "another")
	if again.Len() != 1 {
		t.Error("the end of another object of that name dropped it")
	}
}

func TestWithoutARingNothingIsRecorded(t *testing.T) {
	r := NewRing(0)
	h := r.Of("c", "u")
	rec := h.Begin(key("a"), Begun{})
	rec.Hook(1)
	rec.Parent(nil, nil)
	rec.ChangedBackBy("x")
	rec.Claimed(v1alpha1.ChildAdopt, "r", nil)
	(&result{}).record(&rec)
	rec.End("")
	h.Forget(key("a"))
	h.Keep(func(parent.Key) bool { return true })
	r.Close("c", "u")
	syncs, more := h.Latest([]parent.Key{key("a")}, 1)
	if r != nil || h != nil || rec.Records() || syncs != nil || more != 0 || h.Len() != 0 || r.Bytes() != 0 || h.Repeated(key("a"), &plan.Step{}) {
		t.Error("something was recorded")
	}
}

var configMaps = children.NewRules([]children.Rule{{
	Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
}})

func TestEventsOfOwnWritesAreToldFromOthers(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	created, edited, gone := configMap(t, "x", "1", ""), configMap(t, "x", "2", ""), configMap(t, "y", "5", "")
	changed := func(before, after *object.Object) Trigger {
		return OfObject(v1alpha1.SyncChildChanged, schema.GroupResource{Resource: "configmaps"}, before, after)
	}
	first := h.Begin(key("a"), because(Of(v1alpha1.SyncStarted)))
	(&result{
		Plan: plan.Plan{Steps: []plan.Step{{Key: children.Key{Kind: "ConfigMap", Name: "x"}, Action: plan.Create}, {Key: children.Key{Kind: "ConfigMap", Name: "y"}, Action: plan.Delete}}},
		Outcomes: []plan.Outcome{
			{Step: plan.Step{Key: children.Key{Kind: "ConfigMap", Name: "x"}, Action: plan.Create}, Written: created, Done: true},
			{Step: plan.Step{Key: children.Key{Kind: "ConfigMap", Name: "y"}, Action: plan.Delete, Observed: gone}, Done: true},
		},
	}).record(&first)
	first.End("")
	for i, tc := range []struct {
		triggers []Trigger
		want     string
	}{
		{[]Trigger{changed(nil, created), changed(gone, nil)}, "OwnWrite OwnWrite"},
		{[]Trigger{changed(nil, created), changed(created, edited)}, "ChildChanged"},     // It may come late, and is joined with one of another client.
		{[]Trigger{changed(nil, created), Of(v1alpha1.SyncRetry)}, "ChildChanged Retry"}, // It comes too late.
	} {
		rec := h.Begin(key("a"), because(tc.triggers...))
		rec.End("")
		syncs, _ := h.Latest([]parent.Key{key("a")}, 1)
		var got []string
		for _, each := range syncs[0].Triggers {
			got = append(got, string(each.Reason))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("sync %d has %q, want %q", i, got, tc.want)
		}
	}
}

func TestWhatWasDoneWithChildrenIsRecorded(t *testing.T) {
	step := func(name string, action plan.Action, change func(*plan.Step)) plan.Step {
		s := plan.Step{
			Key: children.Key{Kind: "ConfigMap", Namespace: "n", Name: name}, Action: action,
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	reason := func(r plan.Reason) func(*plan.Step) { return func(s *plan.Step) { s.Reason = r } }
	changes := func(paths ...string) func(*plan.Step) {
		return func(s *plan.Step) {
			for _, path := range paths {
				s.Changed = append(s.Changed, plan.Change{Path: path, Observed: "secret", Desired: "secret"})
			}
		}
	}
	written := configMap(t, "x", "1", "")
	many := strings.Fields("a b c d e f g h i")
	var eleven []plan.Step
	for i := range 11 {
		eleven = append(eleven, step(fmt.Sprint("c", i), plan.Create, nil))
	}
	for name, tc := range map[string]struct {
		steps   []plan.Step
		outcome plan.Outcome
		result  result
		want    string
	}{
		"created":            {steps: []plan.Step{step("x", plan.Create, nil)}, outcome: plan.Outcome{Done: true, Written: written}, want: "Create x"},
		"updated":            {steps: []plan.Step{step("x", plan.Update, changes("data.a", "data.b"))}, outcome: plan.Outcome{Done: true, Written: written}, want: "Update x data.a data.b"},
		"many places":        {steps: []plan.Step{step("x", plan.Update, changes(many...))}, outcome: plan.Outcome{Done: true, Written: written}, want: "Update x a b c d e f g h ..."},
		"changed back":       {steps: []plan.Step{step("x", plan.Update, changes("data.a"))}, outcome: plan.Outcome{Done: true, Written: written}, result: result{ChangedBackBy: map[children.Key][]string{{Kind: "ConfigMap", Namespace: "n", Name: "x"}: {"kubectl-edit"}}}, want: "Update x data.a by kubectl-edit"},
		"nothing to change":  {steps: []plan.Step{step("x", plan.Update, changes("data.a"))}, outcome: plan.Outcome{Written: written}, want: ""},
		"recreated":          {steps: []plan.Step{step("x", plan.Recreate, changes("data.a"))}, outcome: plan.Outcome{Done: true, Step: plan.Step{Observed: written}}, want: "Recreate x data.a"},
		"held":               {steps: []plan.Step{step("x", plan.Delete, nil)}, result: result{Held: true}, want: "Refuse x DeletionsHeld"},
		"refused":            {steps: []plan.Step{step("x", plan.Create, nil)}, outcome: plan.Outcome{Unknown: false, Warnings: []string{"w"}}, want: "Refuse x Failed"},
		"the name is taken":  {steps: []plan.Step{step("x", plan.Create, nil)}, outcome: plan.Outcome{Existing: written}, want: "Refuse x Conflict"},
		"stale":              {steps: []plan.Step{step("x", plan.Update, nil)}, outcome: plan.Outcome{Stale: true}, want: "Leave x Stale"},
		"a lost response":    {steps: []plan.Step{step("x", plan.Update, nil)}, outcome: plan.Outcome{Unknown: true}, want: "Update x Unknown"},
		"no step":            {result: result{Plan: plan.Plan{Failed: []children.Key{{Kind: "ConfigMap", Name: "y"}}}}, want: "Refuse y Failed"},
		"left for a reason":  {steps: []plan.Step{step("x", plan.Leave, reason(plan.Flapping)), step("y", plan.Leave, reason(plan.Same)), step("z", plan.Leave, reason(plan.OnDelete))}, want: "Leave x Flapping; Leave z OnDelete"},
		"more than are kept": {steps: eleven, want: "Refuse c0 Failed; Refuse c1 Failed; Refuse c2 Failed; Refuse c3 Failed; Refuse c4 Failed; Refuse c5 Failed; Refuse c6 Failed; Refuse c7 Failed and 3 more"},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewRing(1<<20).Of("c", "u")
			rec := h.Begin(key("a"), Begun{})
			tc.result.Plan.Steps = tc.steps
			if !cmp.Equal(tc.outcome, plan.Outcome{}, cmpopts.IgnoreUnexported(plan.Step{}, object.Object{}), cmpopts.EquateErrors()) {
				observed := tc.outcome.Observed
				tc.outcome.Step = tc.steps[0]
				tc.outcome.Observed = observed
				tc.result.Outcomes = []plan.Outcome{tc.outcome}
			}
			tc.result.record(&rec)
			rec.End("")
			syncs, _ := h.Latest([]parent.Key{key("a")}, 1)
			if got := text(&syncs[0]); got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
			for _, child := range syncs[0].Children {
				if child.Resource != "configmaps" {
					t.Errorf("%s has the resource %q: nobody could be asked for the right to get it", child.Name, child.Resource)
				}
			}
		})
	}
}

func text(s *v1alpha1.ControllerSync) string {
	var parts []string
	for i := range s.Children {
		c := &s.Children[i]
		words := append([]string{string(c.Action), c.Name}, c.Fields...)
		if c.Reason != "" {
			words = append(words, c.Reason)
		}
		if c.MoreFields {
			words = append(words, "...")
		}
		if c.ChangedBackBy != nil {
			words = append(words, "by "+strings.Join(c.ChangedBackBy, " "))
		}
		parts = append(parts, strings.Join(words, " "))
	}
	all := strings.Join(parts, "; ")
	if s.MoreChildren > 0 {
		all += fmt.Sprintf(" and %d more", s.MoreChildren)
	}
	return all
}

// updated records a sync that did something with a child.
func updated(t *testing.T, h *History, step plan.Step, done plan.Outcome) {
	t.Helper()
	done.Step = step
	rec := h.Begin(key("a"), Begun{})
	(&result{Plan: plan.Plan{Steps: []plan.Step{step}}, Outcomes: []plan.Outcome{done}}).record(&rec)
	rec.End("")
}

// stepTo changes a child from what is observed to what is desired, at a place each.
func stepTo(changes ...plan.Change) plan.Step {
	return plan.Step{Key: children.Key{Kind: "ConfigMap", Namespace: "n", Name: "x"}, Action: plan.Update, Changed: changes}
}

func TestRepeatedChangesAreFound(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	step := stepTo(plan.Change{Path: "data.a", Observed: "theirs", Desired: "ours"})
	if h.Repeated(key("a"), &step) {
		t.Error("nothing was done before")
	}
	updated(t, h, step, plan.Outcome{Done: true, Written: configMap(t, "x", "1", "")})
	other, elsewhere := stepTo(plan.Change{Path: "data.b", Observed: "theirs", Desired: "ours"}), step
	elsewhere.Name = "y"
	for range farBack - 1 { // Most syncs do nothing with children.
		if !h.Repeated(key("a"), &step) || h.Repeated(key("a"), &other) || h.Repeated(key("a"), &elsewhere) || h.Repeated(key("b"), &step) {
			t.Error("the place of the child is not told from others")
		}
		synced(h, "a", "")
	}
	synced(h, "a", "")
	if h.Repeated(key("a"), &step) {
		t.Error("it was long ago")
	}
}

func TestAChangeThatNobodyTookBackIsNotRepeated(t *testing.T) {
	done := plan.Outcome{Done: true, Written: configMap(t, "x", "1", "")}
	const replicas = "spec.replicas"
	scale := func(from, to any) plan.Step { return stepTo(plan.Change{Path: replicas, Observed: from, Desired: to}) }
	created, removed := scale(nil, nil), scale(int64(1), nil)
	created.Action, created.Changed = plan.Create, nil
	for name, tc := range map[string]struct {
		former []plan.Step
		done   plan.Outcome
		step   plan.Step
		want   bool
	}{
		"desired anew":             {[]plan.Step{scale(int64(1), int64(2))}, done, scale(int64(2), int64(3)), false},
		"desired anew twice":       {[]plan.Step{scale(int64(1), int64(2)), scale(int64(2), int64(3))}, done, scale(int64(3), int64(4)), false},
		"changed back":             {[]plan.Step{scale(int64(1), int64(2))}, done, scale(int64(1), int64(2)), true},
		"changed to another value": {[]plan.Step{scale(int64(1), int64(2))}, done, scale(int64(5), int64(3)), true},
		"changed back after two":   {[]plan.Step{scale(int64(1), int64(2)), scale(int64(2), int64(3))}, done, scale(int64(2), int64(3)), true},
		"removed, and wanted":      {[]plan.Step{removed}, done, scale(nil, int64(2)), false},
		"removed, and put back":    {[]plan.Step{removed}, done, scale(int64(1), nil), true},
		"one place of two": {[]plan.Step{scale(int64(1), int64(2))}, done, stepTo(
			plan.Change{Path: "spec.a", Observed: "x", Desired: "y"}, plan.Change{Path: replicas, Observed: int64(1), Desired: int64(2)}), true},
		"created since":               {[]plan.Step{scale(int64(1), int64(2)), created}, done, scale(int64(1), int64(3)), false},
		"perhaps not written":         {[]plan.Step{scale(int64(1), int64(2))}, plan.Outcome{Unknown: true}, scale(int64(1), int64(2)), false},
		"not written, as it is stale": {[]plan.Step{scale(int64(1), int64(2))}, plan.Outcome{Stale: true}, scale(int64(1), int64(2)), false},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewRing(1<<20).Of("c", "u")
			for _, former := range tc.former {
				updated(t, h, former, tc.done)
			}
			if got := h.Repeated(key("a"), &tc.step); got != tc.want {
				t.Errorf("repeated is %t, want %t", got, tc.want)
			}
		})
	}
}

func TestSyncsAreRecordedAtTheSameTime(t *testing.T) {
	r := NewRing(32 << 10)
	var running sync.WaitGroup
	for i := range 4 {
		h := r.Of(fmt.Sprint("c", i%2), "u")
		running.Go(func() {
			for n := range 300 {
				name := fmt.Sprint("p", n%10)
				rec := h.Begin(key(name), because(Of(v1alpha1.SyncTimer)))
				written := configMap(t, name, fmt.Sprint(n), "")
				rec.Parent(written, written)
				rec.End("x")
				if n%50 == 0 {
					h.Forget(key(name))
					h.Latest([]parent.Key{key("p1"), key("p2")}, 10)
				}
			}
		})
	}
	running.Wait()
	if bytes := r.Bytes(); bytes > 32<<10 || bytes <= 0 {
		t.Errorf("the ring has %d bytes", bytes)
	}
	r.Close("c0", "u")
	r.Close("c1", "u")
	if bytes := r.Bytes(); bytes != 0 {
		t.Errorf("of controllers that are gone %d bytes are left", bytes)
	}
}

// BenchmarkSync is what the record of one sync costs that updates a child because of a change of its parent: the trigger, and what was done.
func BenchmarkSync(b *testing.B) {
	h := NewRing(DefaultBytes).Of("c", "u")
	before, after := configMap(b, "a", "1", `,"spec":{"a":1}`), configMap(b, "a", "2", `,"spec":{"a":2}`)
	written := configMap(b, "a", "3", `,"spec":{"a":2},"status":{"a":2}`)
	step := plan.Step{
		Key: children.Key{Kind: "ConfigMap", Namespace: "n", Name: "x"}, Action: plan.Update, Changed: []plan.Change{{Path: "data.a"}},
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	}
	done := &result{Plan: plan.Plan{Steps: []plan.Step{step}}, Outcomes: []plan.Outcome{{Step: step, Done: true, Written: after}}}
	keys := make([]parent.Key, 1000)
	for i := range keys {
		keys[i] = key(fmt.Sprint(i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		set := &Set{}
		set.Add(OfParent(cache.Event{Type: cache.Updated, Old: before, New: after}, false))
		rec := h.Begin(keys[i%len(keys)], Begun{Triggers: set})
		rec.Hook(time.Millisecond)
		done.record(&rec)
		rec.Parent(after, written)
		rec.End("")
	}
}

// heldDeletions prepares the record of a sync that updates so many children, and of which as many deletions are held.
func heldDeletions(tb testing.TB, n int) func() {
	tb.Helper()
	h := NewRing(DefaultBytes).Of("c", "u")
	after := configMap(tb, "a", "2", `,"spec":{"a":2}`)
	done := &result{Held: true}
	for i := range n {
		for _, action := range []plan.Action{plan.Delete, plan.Update} {
			step := plan.Step{
				Key: children.Key{Kind: "ConfigMap", Namespace: "n", Name: fmt.Sprint(action, "-", i)}, Action: action, Observed: after,
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			}
			if done.Plan.Steps = append(done.Plan.Steps, step); action == plan.Update {
				done.Outcomes = append(done.Outcomes, plan.Outcome{Step: step, Done: true, Written: after})
			}
		}
	}
	return func() {
		rec := h.Begin(key("p"), Begun{})
		done.record(&rec)
		rec.End("")
	}
}

func TestARecordCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, heldDeletions)
}

func BenchmarkSyncWithHeldDeletions(b *testing.B) { slope.Benchmark(b, heldDeletions) }

func TestWritesOfTheParentAreRecorded(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	rec := h.Begin(key("a"), Begun{})
	first, second := configMap(t, "a", "1", `,"status":{"a":"1"}`), configMap(t, "a", "2", `,"data":{"b":"1"},"status":{"a":"2"}`)
	rec.Parent(first, second)
	rec.Parent(second, configMap(t, "a", "3", `,"data":{"b":"1"},"status":{"a":"3","c":"1"}`))
	rec.Dropped([]string{"status.x[].y", "status.x[].y"})
	rec.Claimed(v1alpha1.ChildAdopt, "configmaps", configMap(t, "x", "1", ""))
	rec.ChangedBackBy("kubectl-edit")
	rec.Hook(3 * time.Millisecond)
	rec.End(errors.New("failed").Error())
	rec.End("twice")
	rec.ChangedBackBy("nobody")
	rec.Dropped([]string{"status.late"})
	syncs, more := h.Latest([]parent.Key{key("a")}, 5)
	if len(syncs) != 1 || more != 0 {
		t.Fatalf("there are %d and %d more", len(syncs), more)
	}
	got := syncs[0]
	if diff := cmp.Diff([]string{"status.x[].y"}, got.Dropped); diff != "" {
		t.Errorf("dropped are (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"data", "status.a", "status.c"}, got.Fields); diff != "" || got.Error != "failed" || got.HookMilliseconds != 3 || got.ChangedBackBy[0] != "kubectl-edit" ||
		text(&got) != "Adopt x" {
		t.Errorf("it is %+v", got)
	}
}

func TestAnOwnWriteOfTheParentHasTheFieldsThatTheFormerSyncWrote(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	former, written := configMap(t, "a", "1", `,"status":{}`), configMap(t, "a", "2", `,"status":{"a":"1","b":"1"}`)
	event := cache.Event{Type: cache.Updated, Old: former, New: written}
	sync := func(why Trigger, writes bool) {
		rec := h.Begin(key("a"), because(why))
		if writes {
			rec.Parent(former, written)
		}
		rec.End("")
	}
	sync(OfParent(event, true), false) // The sync that made it is not remembered.
	sync(Of(v1alpha1.SyncTimer), true)
	sync(OfParent(event, true), false)
	sync(OfParent(event, true), false) // What its own trigger has is not what it wrote.
	syncs, _ := h.Latest([]parent.Key{key("a")}, 5)
	var got []string
	for i := range syncs {
		got = append(got, fmt.Sprint(syncs[i].Triggers[0].Reason, syncs[i].Triggers[0].Fields))
	}
	if diff := cmp.Diff([]string{"OwnWrite[]", "OwnWrite[status.a status.b]", "Timer[]", "OwnWrite[]"}, got); diff != "" {
		t.Errorf("the syncs, from the last on (-want +got):\n%s", diff)
	}
	if o := syncs[1].Triggers[0].Object; o == nil || *o != (v1alpha1.SyncObject{Group: "example.com", Resource: "things", Kind: "ConfigMap", Namespace: "n", Name: "a"}) {
		t.Errorf("the trigger is about %+v", o)
	}
}
