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

package synchistory

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

// Most parents go while syncs of others stay, so that every chunk has syncs that are gone beside some that are not.
func TestTheRingKeepsNoMoreMemoryThanItCounts(t *testing.T) {
	const limit = 256 << 10
	r := NewRing(limit)
	h := r.Of("c", "u")
	type piece struct {
		nodes weak.Pointer[node]
		data  weak.Pointer[byte]
		size  int64
	}
	var pieces []piece
	for i := range 20_000 {
		former := r.filling
		name := fmt.Sprintf("p%d", i)
		if i%7 == 0 {
			name = fmt.Sprintf("stays%d", i%500)
		}
		synced(h, name, fmt.Sprint(i, strings.Repeat("x", i%300)))
		if c := r.filling; c != former {
			pieces = append(pieces, piece{weak.Make(&c.nodes[0]), weak.Make(&c.data[0]), c.size})
		}
		if i%7 != 0 && i > 20 {
			h.Forget(key(fmt.Sprintf("p%d", i-20)))
		}
		if r.Bytes() > limit {
			t.Fatalf("the ring has %d bytes", r.Bytes())
		}
	}
	runtime.GC()
	kept := int64(0)
	for _, p := range pieces {
		if p.nodes.Value() != nil || p.data.Value() != nil {
			kept += p.size
		}
	}
	if len(pieces) < 50 || kept != r.Bytes() {
		t.Errorf("of %d chunks %d bytes are in memory, and the ring counts %d", len(pieces), kept, r.Bytes())
	}
	runtime.KeepAlive(r)
}

// docs/inspection.md says how many there are.
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
	var done childcontrol.Result
	for _, name := range []string{"a-parent-frontend", "a-parent-backend", "a-parent-store"} {
		step, outcome := child(name)
		done.Plan.Steps, done.Outcomes = append(done.Plan.Steps, step), append(done.Outcomes, outcome)
	}
	before, after := configMap(t, "a-parent", "1", `,"spec":{"image":"a"}`), configMap(t, "a-parent", "2", `,"spec":{"image":"b"}`)
	for range 40_000 {
		rec := h.Begin(key("a"), because(trigger.OfParent(cache.Event{Type: cache.Updated, Old: before, New: after})))
		rec.Children(&done, configMaps)
		rec.Parent(after, "status.observedGeneration", "status.ready")
		rec.End("")
	}
	_, n := h.Latest([]parent.Key{key("a")}, 0)
	if n < 8_500 || n == 40_000 {
		t.Errorf("there are %d", n)
	}
}
