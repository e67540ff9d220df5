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

package cache

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// recorder notes events as text.
type recorder struct{ events []string }

func (r *recorder) handle(e Event) {
	text := ""
	if e.Initial {
		text = "initially "
	}
	switch e.Type {
	case Added:
		text += "added " + e.New.Name() + e.New.ResourceVersion()
	case Updated:
		text += fmt.Sprintf("updated %s%s from %s", e.New.Name(), e.New.ResourceVersion(), e.Old.ResourceVersion())
	case Deleted:
		text += "deleted " + e.Old.Name() + e.Old.ResourceVersion()
	}
	r.events = append(r.events, text)
}

func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, r.events); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	r.events = nil
}

func anyOf(objects ...*object.Object) []any {
	list := make([]any, 0, len(objects))
	for _, o := range objects {
		list = append(list, o)
	}
	return list
}

func TestInformerDeliversChanges(t *testing.T) {
	i := newInformer(nil, Query{})
	r := &recorder{}
	defer i.Subscribe(r.handle)()
	at := func(name, uid, version string) *object.Object {
		return spec{name: name, uid: uid, version: version}.object(t)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if i.HasSynced() {
		t.Error("synced before the first list")
	}
	first := at("a", "u1", "1")
	do(i.Replace(anyOf(first), "5"))
	r.expect(t, "initially added a1")
	if !i.HasSynced() || i.LastSyncedVersion() != "5" {
		t.Errorf("synced: %v at %q, want 5", i.HasSynced(), i.LastSyncedVersion())
	}
	do(i.Add(at("b", "u2", "6")))
	do(i.Update(at("b", "u2", "7")))
	r.expect(t, "added b6", "updated b7 from 6")
	// Deleted and created again between two watches, in one event or in a list.
	do(i.Update(at("b", "u3", "8")))
	r.expect(t, "deleted b7", "added b8")
	do(i.Replace(anyOf(at("a", "u1", "1"), at("b", "u4", "9"), at("c", "u5", "10")), "11"))
	r.expect(t, "deleted b8", "added b9", "added c10")
	if kept, ok := i.Get("", "a"); !ok || kept != first {
		t.Error("a list with no change of an object replaced it")
	}
	do(i.Replace(anyOf(at("a", "u1", "12")), "12"))
	if len(r.events) != 3 || r.events[0] != "updated a12 from 1" {
		t.Errorf("events %q, want an update of a and two deletions", r.events)
	}
	r.events = nil
	do(i.Delete(at("a", "u1", "13")))
	do(i.Delete(at("a", "u1", "14")))
	r.expect(t, "deleted a13")
	if i.LastSyncedVersion() != "14" || i.Len() != 0 {
		t.Errorf("at %s with %d objects, want 14 and none", i.LastSyncedVersion(), i.Len())
	}
	do(i.Bookmark("20"))
	if i.LastSyncedVersion() != "20" {
		t.Errorf("at %s after a bookmark of 20", i.LastSyncedVersion())
	}
	if i.Add("text") == nil || i.Delete("text") == nil || i.Replace([]any{"text"}, "") == nil {
		t.Error("took in what is no object")
	}
}

func TestLateSubscribersGetWhatIsThere(t *testing.T) {
	i := newInformer(nil, Query{})
	if err := i.Replace(anyOf(spec{name: "a", version: "1"}.object(t)), "1"); err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	cancel := i.Subscribe(r.handle)
	r.expect(t, "initially added a1")
	cancel()
	if err := i.Add(spec{name: "b", version: "2"}.object(t)); err != nil {
		t.Fatal(err)
	}
	r.expect(t)
}

func TestAPanicOfAHandlerStopsNothing(t *testing.T) {
	i := newInformer(nil, Query{})
	defer i.Subscribe(func(Event) { panic("broken") })()
	r := &recorder{}
	defer i.Subscribe(r.handle)()
	if err := i.Add(spec{name: "a", version: "1"}.object(t)); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "added a1")
}

func TestHandlersSeeTheStoreAfterTheChange(t *testing.T) {
	i := newInformer(nil, Query{})
	seen := 0
	defer i.Subscribe(func(e Event) {
		seen++
		if o, ok := i.Get("", "a"); e.Type != Deleted && (!ok || o != e.New) || e.Type == Deleted && ok {
			t.Errorf("event %v, but the store has %v", e, o)
		}
		if o := e.New; o != nil && i.LastSyncedVersion() == o.ResourceVersion() {
			t.Errorf("at %s while its event is delivered", o.ResourceVersion())
		}
	})()
	observer := i.Observe(func(version string, _ Event) {
		if version != "" && i.LastSyncedVersion() != version {
			t.Errorf("got %s at %s", version, i.LastSyncedVersion())
		}
	})
	observer.Wake()
	defer observer.Close()
	for _, version := range []string{"1", "2"} {
		if err := i.Add(spec{name: "a", version: version}.object(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Delete(spec{name: "a", version: "3"}.object(t)); err != nil {
		t.Fatal(err)
	}
	if seen != 3 {
		t.Errorf("saw %d events, want 3", seen)
	}
}

func BenchmarkCacheInsert(b *testing.B) {
	const count = 10000
	objects := make([]*object.Object, count)
	for n := range objects {
		s := spec{namespace: "ns", name: fmt.Sprint("n", n), uid: fmt.Sprint("u", n), version: fmt.Sprint(n + 1)}
		if n%2 == 0 {
			s.controller = fmt.Sprint("owner", n/6)
		}
		objects[n] = s.object(b)
	}
	b.ReportAllocs()
	for b.Loop() {
		i := newInformer(nil, Query{})
		for _, o := range objects {
			if err := i.Add(o); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/object")
}

// controlled returns an object that an owner of a kind controls, nobody if the kind is empty.
func controlled(t testing.TB, version int, apiVersion, kind string) *object.Object {
	t.Helper()
	owners := ""
	if kind != "" {
		owners = fmt.Sprintf(`,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"o","uid":"uid-of-%s","controller":true}]`, apiVersion, kind, kind)
	}
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"%d"%s}}`, version, owners),
		object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnEventIsForThoseWhoseOwnersItConcerns(t *testing.T) {
	everyone := []string{"all", "things", "others", "names"}
	of := func(kind string, awaitsNames bool) Interest {
		return Interest{Owners: []schema.GroupKind{{Group: "example.com", Kind: kind}}, AwaitsNames: func() bool { return awaitsNames }}
	}
	type state struct{ apiVersion, kind string }
	thing, again, other, nobody := state{"example.com/v1", "Thing"}, state{"example.com/v2", "Thing"}, state{"example.com/v1", "Other"}, state{}
	for name, tc := range map[string]struct {
		// before and after are nil where there is no object.
		before, after *state
		want          []string
	}{
		"created":                           {nil, &thing, []string{"all", "things"}},
		"created for another owner":         {nil, &other, []string{"all", "others"}},
		"created for nobody":                {nil, &nobody, everyone},
		"changed":                           {&thing, &thing, []string{"all", "things"}},
		"named in another version":          {&thing, &again, []string{"all", "things"}},
		"adopted":                           {&nobody, &thing, everyone},
		"released":                          {&thing, &nobody, everyone},
		"taken over":                        {&thing, &other, everyone},
		"changed without an owner":          {&nobody, &nobody, everyone},
		"gone":                              {&thing, nil, []string{"all", "things", "names"}},
		"gone, of nobody":                   {&nobody, nil, []string{"all", "names"}},
		"of an owner that nobody has":       {nil, &state{"v1", "Node"}, []string{"all"}},
		"of the same kind in another group": {nil, &state{"v1", "Thing"}, []string{"all"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInformer(nil, Query{})
			if tc.before != nil {
				if err := i.Add(controlled(t, 1, tc.before.apiVersion, tc.before.kind)); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			handler := func(name string) Handler {
				return func(e Event) {
					if !e.Initial {
						got = append(got, name)
					}
				}
			}
			cancel := []func(){
				i.SubscribeTo(of("Thing", false), handler("things")),
				i.SubscribeTo(of("Other", false), handler("others")),
				i.SubscribeTo(of("Third", true), handler("names")),
				i.Subscribe(handler("all")),
			}
			if len(got) > 0 {
				t.Errorf("%v were called for what is there", got)
			}
			var err error
			if tc.after != nil {
				err = i.Update(controlled(t, 2, tc.after.apiVersion, tc.after.kind))
			} else {
				err = i.Delete(controlled(t, 2, tc.before.apiVersion, tc.before.kind))
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("called are %v, error %v, want %v", got, err, tc.want)
			}
			got = nil
			for _, each := range cancel {
				each()
			}
			if err := i.Add(controlled(t, 3, "example.com/v1", "Thing")); err != nil || len(got) > 0 || len(i.subscribers.byOwner) > 0 {
				t.Errorf("called are %v, error %v, left are %v", got, err, i.subscribers)
			}
		})
	}
}

func TestAnObserverIsCalledWhileItIsAwake(t *testing.T) {
	i := newInformer(nil, Query{})
	var got []string
	o := i.Observe(func(version string, _ Event) { got = append(got, version) })
	for version, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"at first it rests", func() {}, nil},
		{"it wakes", o.Wake, []string{"1"}},
		{"it is awake", o.Wake, []string{"1", "2"}},
		{"it rests", o.Rest, []string{"1", "2"}},
		{"it wakes again", o.Wake, []string{"1", "2", "4"}},
		{"it is closed", o.Close, []string{"1", "2", "4"}},
		{"it wakes no more", o.Wake, []string{"1", "2", "4"}},
	} {
		step.do()
		if err := i.Bookmark(strconv.Itoa(version)); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: called with %v, error %v, want %v", step.what, got, err, step.want)
		}
	}
	if len(i.observers.awake()) > 0 {
		t.Error("it is not forgotten")
	}
}

// TestAnObserverThatWakesMissesNothing has one wake while versions come. What it does not see as the present version it must be called with.
func TestAnObserverThatWakesMissesNothing(t *testing.T) {
	const last = 20000
	i := newInformer(nil, Query{})
	var mu sync.Mutex
	wanted, called := 0, make(chan struct{}, 1)
	var o *Observer
	o = i.Observe(func(version string, _ Event) {
		mu.Lock()
		defer mu.Unlock()
		if at, err := strconv.Atoi(version); err != nil || wanted == 0 || at < wanted {
			return
		}
		wanted = 0
		o.Rest()
		called <- struct{}{}
	})
	var running sync.WaitGroup
	running.Go(func() {
		for version := 1; version <= last; version++ {
			if err := i.Bookmark(strconv.Itoa(version)); err != nil {
				t.Error(err)
			}
		}
	})
	// want reports whether the next version is still to come.
	want := func() bool {
		mu.Lock()
		defer mu.Unlock()
		o.Wake()
		present, _ := strconv.Atoi(i.LastSyncedVersion()) // Empty before the first.
		if present == last {
			return false
		}
		wanted = present + 1
		return true
	}
	for want() {
		<-called
	}
	running.Wait()
}
