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
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// heap returns how many bytes are in memory that somebody uses.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // What pools have goes with the second one.
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Most parents go while syncs of others stay, and all names are parts of large texts, as they are where they are parts of an object's JSON.
func TestTheRingKeepsNoMoreMemoryThanItCounts(t *testing.T) {
	const limit = 2 << 20
	before := heap()
	r := NewRing(limit)
	h := r.Of("c", "u")
	for i := range 10_000 {
		text := fmt.Sprint("c", i, strings.Repeat("x", 10_000))
		part := text[:20]
		step := stepTo(plan.Change{Path: part}, plan.Change{Path: text[:40]})
		step.Name, step.Namespace, step.Kind, step.Group = part, text[:1], text[:1], text[:1]
		done := &result{
			Plan:          plan.Plan{Steps: []plan.Step{step}, Failed: []children.Key{step.Key}},
			Outcomes:      []plan.Outcome{{Step: step, Done: true}},
			ChangedBackBy: map[children.Key][]string{step.Key: {part}},
		}
		name := fmt.Sprint("p", i)
		if i%7 == 0 {
			name = fmt.Sprint("stays", i%50)
		}
		rec := h.Begin(key(name), because(Of(v1alpha1.SyncTimer), OfParent(cache.Event{New: configMap(t, name, "1", "")}, false)))
		done.record(&rec)
		rec.ChangedBackBy(part)
		rec.End(strings.Clone(text[:i%300]))
		h.Forget(key(fmt.Sprint("p", i-20)))
		if r.Bytes() > limit {
			t.Fatalf("the ring has %d bytes", r.Bytes())
		}
	}
	kept, counted := heap()-before, r.Bytes()
	if kept < counted*3/4 || kept > counted*5/4 {
		t.Errorf("%d bytes are in memory, and the ring counts %d", kept, counted)
	}
	runtime.KeepAlive(r)
}

func TestWhatIsAnsweredSharesNothingWithWhatIsRemembered(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	step := stepTo(plan.Change{Path: "data.a"})
	rec := h.Begin(key("a"), because(OfParent(cache.Event{New: configMap(t, "a", "1", "")}, false)))
	(&result{Plan: plan.Plan{Steps: []plan.Step{step}}, Outcomes: []plan.Outcome{{Step: step, Done: true}}}).record(&rec)
	rec.End("")
	want, _ := h.Latest([]parent.Key{key("a")}, 1)
	changed, _ := h.Latest([]parent.Key{key("a")}, 1)
	s := &changed[0]
	s.Triggers[0].Object.Name, s.Triggers[0].Reason, s.Children[0].Fields[0], s.Children[0].Name = "z", "z", "z", "z"
	if got, _ := h.Latest([]parent.Key{key("a")}, 1); !cmp.Equal(want, got) {
		t.Errorf("what is remembered changed (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func TestOfASyncThatIsAbridgedTheFirstTriggerAndTheNumbersStay(t *testing.T) {
	object := &v1alpha1.SyncObject{Kind: "Thing", Name: "a"}
	list := []string{"a", "b"}
	full := &remembered{desired: []plan.Hash{1, 2}, ControllerSync: v1alpha1.ControllerSync{
		ParentReference: Reference(key("a")), Time: metav1.NowMicro(), WaitMilliseconds: 1, HookMilliseconds: 2, DurationMilliseconds: 3,
		Triggers: []v1alpha1.SyncTrigger{{Reason: v1alpha1.SyncSpecChanged, Object: object, Fields: list, MoreFields: true}, {Reason: v1alpha1.SyncTimer}},
		Children: []v1alpha1.SyncChild{{SyncObject: *object, Action: v1alpha1.ChildUpdate, Fields: list}}, MoreTriggers: 4, MoreChildren: 5,
		Fields: list, ChangedBackBy: list, Error: strings.Repeat("e", maxShort+1),
	}}
	want := v1alpha1.ControllerSync{
		ParentReference: full.ParentReference, Time: full.Time, WaitMilliseconds: 1, HookMilliseconds: 2, DurationMilliseconds: 3, Abridged: true,
		Triggers: []v1alpha1.SyncTrigger{{Reason: v1alpha1.SyncSpecChanged, Object: object}}, MoreTriggers: 5, MoreChildren: 6,
		Error: strings.Repeat("e", maxShort) + "…",
	}
	if diff := cmp.Diff(want, full.abridge().sync(key("a"))); diff != "" {
		t.Errorf("what stays differs (-want +got):\n%s", diff)
	}
}

func TestWhatASyncWroteIsFoundByChildAndPlace(t *testing.T) {
	object := func(name string) v1alpha1.SyncObject {
		return v1alpha1.SyncObject{Group: "g", Kind: "Thing", Namespace: "n", Name: name}
	}
	s := &remembered{desired: []plan.Hash{1, 2, 3, 4, 5, 6}, ControllerSync: v1alpha1.ControllerSync{Children: []v1alpha1.SyncChild{
		{SyncObject: object("updated"), Action: v1alpha1.ChildUpdate, Fields: []string{"a", "b"}},
		{SyncObject: object("created"), Action: v1alpha1.ChildCreate},
		{SyncObject: object("left"), Action: v1alpha1.ChildLeave, Fields: []string{"a"}},
		{SyncObject: object("doubtful"), Action: v1alpha1.ChildUpdate, Reason: reasonUnknown, Fields: []string{"b"}},
		{SyncObject: object("later"), Action: v1alpha1.ChildUpdate, Fields: []string{"b", "a"}},
	}}}
	for _, tc := range []struct {
		name, path string
		want       plan.Hash
		settled    bool
	}{
		{"updated", "a", 1, true},
		{"updated", "b", 2, true},
		{"updated", "c", 0, false},
		{"created", "a", 0, true},
		{"left", "a", 0, false},
		{"doubtful", "b", 0, true},
		{"doubtful", "a", 0, false},
		{"later", "b", 5, true},
		{"later", "a", 6, true},
		{"nobody", "a", 0, false},
	} {
		k := children.Key{Group: "g", Kind: "Thing", Namespace: "n", Name: tc.name}
		if got, settled := s.wrote(k, tc.path); got != tc.want || settled != tc.settled {
			t.Errorf("of %s at %s it says %d, %t; want %d, %t", tc.name, tc.path, got, settled, tc.want, tc.settled)
		}
		for _, other := range []children.Key{{Kind: "Thing", Namespace: "n"}, {Group: "g", Kind: "Other", Namespace: "n"}, {Group: "g", Kind: "Thing"}} {
			other.Name = tc.name
			if got, settled := s.wrote(other, tc.path); got != 0 || settled {
				t.Errorf("%v is not told from %v", other, k)
			}
		}
	}
}

// docs/kubectl-plugin.md says how many there are.
func TestTheDefaultRingHasThousandsOfSyncs(t *testing.T) {
	h := NewRing(DefaultBytes).Of("c", "u")
	child := func(name string) (plan.Step, plan.Outcome) {
		step := plan.Step{
			Key:      children.Key{Group: "apps", Kind: "Deployment", Namespace: "a-namespace", Name: name},
			Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			Action:   plan.Update, Changed: []plan.Change{{Path: "spec.template.spec.containers[name=main].image"}},
		}
		return step, plan.Outcome{Step: step, Done: true}
	}
	var done result
	for _, name := range []string{"a-parent-frontend", "a-parent-backend", "a-parent-store"} {
		step, outcome := child(name)
		done.Plan.Steps, done.Outcomes = append(done.Plan.Steps, step), append(done.Outcomes, outcome)
	}
	before, after := configMap(t, "a-parent", "1", `,"spec":{"image":"a"},"status":{}`), configMap(t, "a-parent", "2", `,"spec":{"image":"b"},"status":{}`)
	written := configMap(t, "a-parent", "3", `,"spec":{"image":"b"},"status":{"observedGeneration":2,"ready":3}`)
	for range 40_000 {
		rec := h.Begin(key("a"), because(OfParent(cache.Event{Type: cache.Updated, Old: before, New: after}, false)))
		done.record(&rec)
		rec.Parent(after, written)
		rec.End("")
	}
	_, n := h.Latest([]parent.Key{key("a")}, 0)
	if n < 3_000 || n == 40_000 {
		t.Errorf("there are %d", n)
	}
}

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
