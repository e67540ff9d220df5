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

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
