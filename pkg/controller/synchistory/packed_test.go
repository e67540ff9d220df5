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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/health"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
)

// randomSyncs calls a function with syncs whose fields all have some value, and with what stands for what was desired at the fields of
// their children.
func randomSyncs(check func(s *v1alpha1.ControllerSync, desired []record.Hash)) {
	of := key("a")
	fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(0, 10).Funcs(
		func(t *metav1.MicroTime, c randfill.Continue) { *t = metav1.NewMicroTime(time.Unix(0, c.Int63())) },
		func(n *int32, c randfill.Continue) { *n = c.Int31n(1 << 29) },
		func(r *v1alpha1.ParentReference, _ randfill.Continue) {
			*r = v1alpha1.ParentReference{Group: of.Resource().Group, Resource: of.Resource().Resource, Namespace: of.Namespace, Name: of.Name}
		},
		func(a *v1alpha1.ChildAction, c randfill.Continue) {
			all := []v1alpha1.ChildAction{v1alpha1.ChildCreate, v1alpha1.ChildUpdate, v1alpha1.ChildRecreate, v1alpha1.ChildDelete, v1alpha1.ChildAdopt, v1alpha1.ChildLeave, "another"}
			*a = all[c.Intn(len(all))]
		},
	)
	for i := range 300 {
		var s v1alpha1.ControllerSync
		fill.Fill(&s)
		s.Abridged = false
		for i := range s.Triggers {
			s.Triggers[i].Hidden = false // Whoever answers a request says so.
			if i%3 == 1 {
				s.Triggers[i].Object = new(objectOf(of, "Thing"))
			}
		}
		for i := range s.Children {
			if i%3 > 0 {
				s.Children[i].SyncObject = s.Children[i-1].SyncObject
				s.Children[i].Name += strconv.Itoa(i)
			}
		}
		if i%3 == 0 {
			s.Error = strings.Repeat("é", i%100)
		}
		var desired []record.Hash
		for i := range s.Children {
			for range s.Children[i].Fields {
				desired = append(desired, record.Hash(i+len(desired)+1)<<40)
			}
		}
		check(&s, desired)
	}
}

// pack packs a sync with a packer that was used for another one before.
func pack(s *v1alpha1.ControllerSync, desired []record.Hash) packed {
	p := &packer{sync: v1alpha1.ControllerSync{Error: "former", Fields: []string{"former"}}, triggers: make([]trigger.Trigger, 3)}
	p.child(&v1alpha1.SyncChild{}, []string{"former"}, []record.Hash{1})
	p.pack()
	p.reset()
	p.sync = *s.DeepCopy()
	for i := range s.Children {
		c := &s.Children[i]
		p.child(c, c.Fields, desired)
		desired = desired[len(c.Fields):]
	}
	for _, t := range s.Triggers {
		each := trigger.Of(t.Reason)
		each.ChangedAt(t.Fields, t.MoreFields)
		switch {
		case t.Object != nil && t.Object.Name == key("a").Name:
			each.About(v1alpha1.SyncObject{Kind: t.Object.Kind})
			each.Parent = true
		case t.Object != nil:
			each.About(*t.Object)
		}
		p.triggers = append(p.triggers, each)
	}
	return p.pack()
}

func TestASyncIsRememberedAsItWas(t *testing.T) {
	long := 0
	randomSyncs(func(s *v1alpha1.ControllerSync, desired []record.Hash) {
		got := pack(s, desired).sync(key("a"))
		if diff := cmp.Diff(*s, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("what is remembered differs (-want +got):\n%s", diff)
		}
		if len(s.Error) > maxShort {
			long++
		}
	})
	if long == 0 {
		t.Error("no sync had a long error")
	}
}

func TestOfASyncThatIsAbridgedTheFirstTriggerAndTheNumbersStay(t *testing.T) {
	randomSyncs(func(s *v1alpha1.ControllerSync, desired []record.Hash) {
		want := *s.DeepCopy()
		want.Abridged, want.Fields, want.ChangedBackBy, want.Children, want.Triggers = true, nil, nil, nil, nil
		want.MoreChildren += clamp(len(s.Children))
		if len(s.Triggers) > 0 {
			want.Triggers = []v1alpha1.SyncTrigger{{Reason: s.Triggers[0].Reason, Object: s.Triggers[0].Object}}
			want.MoreTriggers += clamp(len(s.Triggers) - 1)
		}
		want.Error = health.Shorten(s.Error, maxShort)
		full := pack(s, desired)
		short := full.abridge()
		if full.abridged() || !short.abridged() || len(short.bytes) >= len(full.bytes) {
			t.Fatalf("the sync has %d bytes, and %d when it is abridged", len(full.bytes), len(short.bytes))
		}
		if diff := cmp.Diff(want, short.sync(key("a")), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("what stays differs (-want +got):\n%s", diff)
		}
		if hash, settled := short.wrote(children.Key{}, ""); hash != 0 || settled {
			t.Fatal("a sync that is abridged says what it wrote")
		}
	})
}

func TestWhatASyncWroteIsFoundInWhatIsRemembered(t *testing.T) {
	found, replaced := 0, 0
	randomSyncs(func(s *v1alpha1.ControllerSync, desired []record.Hash) {
		p, hashes := pack(s, desired), desired
		for i := range s.Children {
			c := &s.Children[i]
			child := children.Key{Group: c.Group, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
			for at, path := range append([]string{"nowhere"}, c.Fields...) {
				var want record.Hash
				settled := false
				switch {
				case slices.Contains([]v1alpha1.ChildAction{v1alpha1.ChildCreate, v1alpha1.ChildRecreate, v1alpha1.ChildDelete}, c.Action):
					settled = true
					replaced++
				case c.Action == v1alpha1.ChildUpdate && at > 0:
					settled = true
					if c.Reason == "" {
						want = hashes[at-1]
						found++
					}
				}
				if got, ok := p.wrote(child, path); got != want || ok != settled {
					t.Fatalf("of %+v at %q it says %d, %t; want %d, %t", c, path, got, ok, want, settled)
				}
			}
			hashes = hashes[len(c.Fields):]
			if got, ok := p.wrote(children.Key{Name: c.Name}, ""); got != 0 || ok {
				t.Fatal("another child with the name is not told from it")
			}
		}
	})
	if found == 0 || replaced == 0 {
		t.Errorf("%d places were found, and %d children were others", found, replaced)
	}
}
