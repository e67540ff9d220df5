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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

func TestWritesOfTheParentAreRecorded(t *testing.T) {
	h := NewRing(1<<20).Of("c", "u")
	rec := h.Begin(key("a"), Begun{})
	first, second := configMap(t, "a", "1", `,"status":{"a":"1"}`), configMap(t, "a", "2", `,"data":{"b":"1"},"status":{"a":"2"}`)
	rec.Parent(first, second)
	rec.Parent(second, configMap(t, "a", "3", `,"data":{"b":"1"},"status":{"a":"3","c":"1"}`))
	rec.Claimed(v1alpha1.ChildAdopt, "configmaps", configMap(t, "x", "1", ""))
	rec.ChangedBackBy("kubectl-edit")
	rec.Hook(3 * time.Millisecond)
	rec.End(errors.New("failed").Error())
	rec.End("twice")
	rec.ChangedBackBy("nobody")
	syncs, more := h.Latest([]parent.Key{key("a")}, 5)
	if len(syncs) != 1 || more != 0 {
		t.Fatalf("there are %d and %d more", len(syncs), more)
	}
	got := syncs[0]
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
