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
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// follower is an informer after its first list, whose events are recorded.
type follower struct {
	*Informer
	recorder

	t *testing.T
}

func follow(t *testing.T, version string, listed ...*object.Object) *follower {
	t.Helper()
	f := &follower{Informer: newInformer(&Cache{}, Query{Resource: configMaps}), t: t}
	t.Cleanup(f.Subscribe(f.handle))
	f.do(f.Replace(anyOf(listed...), version))
	f.events = nil
	return f
}

func (f *follower) do(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// at is a state of the object named a.
func (f *follower) at(uid, version string) *object.Object {
	return spec{name: "a", uid: uid, version: version}.object(f.t)
}

func (f *follower) wrote(o *object.Object, shown bool) {
	f.t.Helper()
	if got := f.Wrote(o); got != shown {
		f.t.Errorf("the write of %s is shown: %v, want %v", o.ResourceVersion(), got, shown)
	}
}

// shows expects what is shown, empty for nothing, how far the informer is, and for how many objects events are to come.
func (f *follower) shows(version, reached string, ahead int) {
	f.t.Helper()
	got := ""
	if o, ok := f.Get("", "a"); ok {
		got = o.ResourceVersion()
	}
	if got != version || f.LastSyncedVersion() != reached || len(f.ahead) != ahead {
		f.t.Errorf("shows %q at %s with events of %d objects to come, want %q at %s with %d", got, f.LastSyncedVersion(), len(f.ahead), version, reached, ahead)
	}
}

func TestAWriteIsShownBeforeItsEvent(t *testing.T) {
	first := func(f *follower) *object.Object { return f.at("u1", "1") }
	for name, tc := range map[string]struct {
		reason string
		do     func(f *follower)
		events []string
		// shown is what the store shows in the end, reached how far the informer is, and ahead of how many objects events are to come.
		shown, reached string
		ahead          int
	}{
		"an update": {
			"its event tells nothing new",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Update(f.at("u1", "12"))) },
			[]string{"updated a12 from 1"},
			"12", "12", 0,
		},
		"an update whose event has come": {
			"the response came later",
			func(f *follower) { f.do(f.Update(f.at("u1", "12"))); f.wrote(f.at("u1", "12"), true) },
			[]string{"updated a12 from 1"},
			"12", "12", 0,
		},
		"a deletion that has come before the response": {
			"the object must not come back",
			func(f *follower) {
				f.do(f.Update(f.at("u1", "12")))
				f.do(f.Delete(f.at("u1", "13")))
				f.wrote(f.at("u1", "12"), true)
			},
			[]string{"updated a12 from 1", "deleted a13"},
			"", "13", 0,
		},
		"a deletion after it": {
			"it is of what was written",
			func(f *follower) {
				f.wrote(f.at("u1", "12"), true)
				f.do(f.Update(f.at("u1", "12")))
				f.do(f.Delete(f.at("u1", "13")))
			},
			[]string{"updated a12 from 1", "deleted a13"},
			"", "13", 0,
		},
		"a deletion whose event has the version of the write": {
			"some API servers send it so",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Delete(f.at("u1", "12"))) },
			[]string{"updated a12 from 1", "deleted a12"},
			"", "12", 0,
		},
		"a response after the deletion of an older object": {
			"some API servers send a deletion with the version that the object had, which brings nothing back",
			func(f *follower) {
				f.do(f.Update(f.at("u1", "12")))
				f.do(f.Update(f.at("u1", "13")))
				f.do(f.Delete(spec{name: "b", uid: "u2", version: "5"}.object(f.t)))
				f.wrote(f.at("u1", "12"), true)
			},
			[]string{"updated a12 from 1", "updated a13 from 12"},
			"13", "13", 0,
		},
		"a response from before etcd was restored": {
			"what it has written is gone, and no event says so",
			func(f *follower) {
				f.do(f.Update(f.at("u1", "20")))
				f.do(f.Replace(anyOf(f.at("u1", "3")), "3"))
				f.wrote(f.at("u1", "18"), false)
				f.wrote(f.at("u1", "21"), false)
			},
			[]string{"updated a20 from 1", "updated a3 from 20"},
			"3", "3", 0,
		},
		"a response when an etcd that was restored is where it was": {
			"no version is of two writes any more",
			func(f *follower) {
				f.do(f.Update(f.at("u1", "20")))
				f.do(f.Replace(anyOf(f.at("u1", "3")), "3"))
				f.do(f.Bookmark("20"))
				f.wrote(f.at("u1", "21"), true)
			},
			[]string{"updated a20 from 1", "updated a3 from 20", "updated a21 from 3"},
			"21", "20", 1,
		},
		"a change by another client before it": {
			"handlers see both, and the store the later one throughout",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Update(f.at("u1", "11"))) },
			[]string{"updated a12 from 1", "updated a11 from 1", "updated a12 from 11"},
			"12", "11", 1,
		},
		"a change by another client after it": {
			"it is one as ever",
			func(f *follower) {
				f.wrote(f.at("u1", "12"), true)
				f.do(f.Update(f.at("u1", "12")))
				f.do(f.Update(f.at("u1", "13")))
			},
			[]string{"updated a12 from 1", "updated a13 from 12"},
			"13", "13", 0,
		},
		"two writes": {
			"the event of the first one is not that of another client",
			func(f *follower) {
				f.wrote(f.at("u1", "11"), true)
				f.wrote(f.at("u1", "12"), true)
				f.do(f.Update(f.at("u1", "11")))
			},
			[]string{"updated a11 from 1", "updated a12 from 11"},
			"12", "11", 1,
		},
		"two writes with the responses in another order": {
			"the later one is shown, and the other is none of another client",
			func(f *follower) {
				f.wrote(f.at("u1", "12"), true)
				f.wrote(f.at("u1", "11"), true)
				f.do(f.Update(f.at("u1", "11")))
				f.do(f.Update(f.at("u1", "12")))
			},
			[]string{"updated a12 from 1"},
			"12", "12", 0,
		},
		"another object of the name": {
			"the events of the former one are late",
			func(f *follower) {
				f.wrote(f.at("u2", "12"), true)
				f.do(f.Update(f.at("u1", "10")))
				f.do(f.Delete(f.at("u1", "11")))
				f.do(f.Update(f.at("u2", "12")))
			},
			[]string{"deleted a1", "added a12"},
			"12", "12", 0,
		},
		"a list from before it": {
			"the write is kept, and its event comes",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Replace(anyOf(first(f)), "11")) },
			[]string{"updated a12 from 1"},
			"12", "11", 1,
		},
		"a list from before it with a change by another client": {
			"no event of the change will come",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Replace(anyOf(f.at("u1", "11")), "11")) },
			[]string{"updated a12 from 1", "updated a11 from 1", "updated a12 from 11"},
			"12", "11", 1,
		},
		"a list that was asked for after it": {
			"it shows what there is, whatever its version: another etcd may have been restored",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.listing(); f.do(f.Replace(nil, "11")) },
			[]string{"updated a12 from 1", "deleted a12"},
			"", "11", 0,
		},
		"a list from after it": {
			"it counts",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Replace(anyOf(f.at("u1", "14")), "15")) },
			[]string{"updated a12 from 1", "updated a14 from 12"},
			"14", "15", 0,
		},
		"a bookmark from after it": {
			"no event is to come any more",
			func(f *follower) { f.wrote(f.at("u1", "12"), true); f.do(f.Bookmark("15")) },
			[]string{"updated a12 from 1"},
			"12", "15", 0,
		},
		"a version that is no number": {
			"it has no order",
			func(f *follower) { f.wrote(f.at("u1", "x"), false) },
			nil,
			"1", "10", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := follow(t, "10", spec{name: "a", uid: "u1", version: "1"}.object(t))
			tc.do(f)
			f.shows(tc.shown, tc.reached, tc.ahead)
			f.expect(t, tc.events...)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

func TestAWriteIsShownOnlyWhereItsEventWouldBe(t *testing.T) {
	labelled := spec{namespace: "n", name: "a", uid: "u", version: "12", labels: map[string]string{"app": "x"}}.object(t)
	for name, tc := range map[string]struct {
		keep  bool
		query Query
		shown bool
	}{
		"everything":                 {query: Query{Resource: configMaps}, shown: true},
		"its namespace and name":     {query: Query{Resource: configMaps, Namespace: "n", Name: "a"}, shown: true},
		"its labels":                 {query: Query{Resource: configMaps, LabelSelector: "app=x"}, shown: true},
		"other labels":               {query: Query{Resource: configMaps, LabelSelector: "app=y"}},
		"another namespace":          {query: Query{Resource: configMaps, Namespace: "m"}},
		"another name":               {query: Query{Resource: configMaps, Name: "b"}},
		"another version":            {query: Query{Resource: schema.GroupVersionResource{Version: "v2", Resource: "configmaps"}}},
		"metadata only":              {query: Query{Resource: configMaps, MetadataOnly: true}},
		"what responses do not have": {keep: true, query: Query{Resource: configMaps}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInformer(&Cache{parsing: object.ParseOptions{KeepManagedFields: tc.keep}}, tc.query)
			if i.Wrote(labelled) {
				t.Error("shown before the first list")
			}
			if err := i.Replace(nil, "10"); err != nil {
				t.Fatal(err)
			}
			if got := i.Wrote(labelled); got != tc.shown || i.Len() > 0 != tc.shown {
				t.Errorf("shown: %v with %d objects, want %v", got, i.Len(), tc.shown)
			}
		})
	}
}

func TestADeletionIsShownBeforeItsEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		do     func(f *follower)
		events []string
		// shown, reached and ahead are as for writes.
		shown, reached string
		ahead          int
	}{
		"the response": {
			"the event is to come", func(f *follower) { f.gone("1", true) }, []string{"deleted a1"}, "", "10", 1,
		},
		"its event": {
			"it tells nothing new",
			func(f *follower) { f.gone("1", true); f.do(f.Delete(f.at("u1", "12"))) },
			[]string{"deleted a1"},
			"", "12", 0,
		},
		"its event has come": {
			"the response came later",
			func(f *follower) { f.do(f.Delete(f.at("u1", "12"))); f.gone("1", false) },
			[]string{"deleted a12"},
			"", "12", 0,
		},
		"a change from before it": {
			"the object must not come back",
			func(f *follower) { f.gone("11", true); f.do(f.Update(f.at("u1", "11"))) },
			[]string{"deleted a1"},
			"", "11", 1,
		},
		"a change after it": {
			"the API server was wrong: the object is there",
			func(f *follower) { f.gone("1", true); f.do(f.Update(f.at("u1", "11"))) },
			[]string{"deleted a1", "added a11"},
			"11", "11", 0,
		},
		"another object of the name": {
			"somebody created it afterwards",
			func(f *follower) {
				f.gone("1", true)
				f.do(f.Delete(f.at("u1", "12")))
				f.do(f.Add(f.at("u2", "13")))
			},
			[]string{"deleted a1", "added a13"},
			"13", "13", 0,
		},
		"another object by the response of its creation": {
			"the events of both are to come",
			func(f *follower) {
				f.gone("1", true)
				f.wrote(f.at("u2", "13"), true)
				f.do(f.Delete(f.at("u1", "12")))
			},
			[]string{"deleted a1", "added a13"},
			"13", "12", 1,
		},
		"events of earlier objects of the name": {
			"two more were created and deleted meanwhile, as responses said",
			func(f *follower) {
				f.recreated()
				f.do(f.Delete(f.at("u1", "12")))
				f.do(f.Add(f.at("u2", "13")))
				f.do(f.Delete(f.at("u2", "14")))
				f.do(f.Add(f.at("u3", "15")))
			},
			[]string{"deleted a1", "added a13", "deleted a13", "added a15", "deleted a15"},
			"", "15", 1,
		},
		"a list with an earlier object of the name": {
			"it is from before all of that",
			func(f *follower) { f.recreated(); f.do(f.Replace(anyOf(f.at("u2", "13")), "13")) },
			[]string{"deleted a1", "added a13", "deleted a13", "added a15", "deleted a15"},
			"", "13", 1,
		},
		"the response of an earlier object's write": {
			"it came later than that of the deletion",
			func(f *follower) { f.recreated(); f.wrote(f.at("u2", "13"), true) },
			[]string{"deleted a1", "added a13", "deleted a13", "added a15", "deleted a15"},
			"", "10", 1,
		},
		"the response of a write before it": {
			"it came later than that of the deletion",
			func(f *follower) { f.gone("11", true); f.wrote(f.at("u1", "11"), true) },
			[]string{"deleted a1"},
			"", "10", 1,
		},
		"a list from before it": {
			"the event is to come",
			func(f *follower) { f.gone("1", true); f.do(f.Replace(anyOf(f.at("u1", "1")), "10")) },
			[]string{"deleted a1"},
			"", "10", 1,
		},
		"a list that was asked for afterwards": {
			"the API server was wrong, or its store was restored",
			func(f *follower) { f.gone("1", true); f.listing(); f.do(f.Replace(anyOf(f.at("u1", "1")), "10")) },
			[]string{"deleted a1", "added a1"},
			"1", "10", 0,
		},
		"a list without it": {
			"no event of it comes any more",
			func(f *follower) { f.gone("1", true); f.do(f.Replace(nil, "14")) },
			[]string{"deleted a1"},
			"", "14", 0,
		},
		"a bookmark": {
			"the version of the deletion is not known",
			func(f *follower) { f.gone("1", true); f.do(f.Bookmark("11")) },
			[]string{"deleted a1"},
			"", "11", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := follow(t, "10", spec{name: "a", uid: "u1", version: "1"}.object(t))
			tc.do(f)
			f.shows(tc.shown, tc.reached, tc.ahead)
			if !slices.Equal(f.events, tc.events) {
				t.Errorf("%q, want %q: %s", f.events, tc.events, tc.reason)
			}
		})
	}
}

// recreated has responses say that the object was deleted, and two more of its name were created and deleted.
func (f *follower) recreated() {
	f.t.Helper()
	f.gone("1", true)
	for _, next := range []*object.Object{f.at("u2", "13"), f.at("u3", "15")} {
		f.wrote(next, true)
		f.Gone(next)
	}
}

// gone has the object be deleted in a version.
func (f *follower) gone(version string, taken bool) {
	f.t.Helper()
	if got := f.Gone(f.at("u1", version)); got != taken {
		f.t.Errorf("the deletion of %s is taken over: %v, want %v", version, got, taken)
	}
}

// TestNothingIsLostWhateverTheOrder has an object created, changed and deleted by the controller and by others, with responses, events
// and lists that come as they like.
func TestNothingIsLostWhateverTheOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		if steps, ok := randomOrder(t, r); !ok {
			t.Fatalf("seed %d: %q", seed, steps)
		}
	}
}

// change is one state of the object, or its deletion.
type change struct {
	uid     string
	version int
	own     bool
	deleted bool
	// of is the version that was deleted.
	of int
}

func randomOrder(t *testing.T, r *rand.Rand) (steps []string, ok bool) {
	t.Helper()
	f := follow(t, "1")
	var log, responses []change
	var last change // Of what is there; deleted if nothing is.
	last.deleted = true
	sent, version, highest := 0, 1, 0
	object := func(c change) *object.Object { return f.at(c.uid, strconv.Itoa(c.version)) }
	do := func(step int) {
		switch {
		case step < 4: // The object changes.
			version++
			next := change{uid: last.uid, version: version, own: step < 2}
			switch {
			case last.deleted:
				next.uid = fmt.Sprint("u", version)
			case step == 3:
				next.deleted, next.own, next.of = true, r.IntN(2) == 0, last.version
			}
			log, last = append(log, next), next
			if next.own {
				responses = append(responses, next)
			}
			steps = append(steps, fmt.Sprintf("change %+v", next))
		case step < 6 && len(responses) > 0:
			n := r.IntN(len(responses))
			steps = append(steps, fmt.Sprintf("response %d", responses[n].version))
			if c := responses[n]; c.deleted {
				f.Gone(f.at(c.uid, strconv.Itoa(c.of)))
			} else {
				f.wrote(object(c), true)
			}
			responses = slices.Delete(responses, n, n+1)
		case step < 9 && sent < len(log):
			c := log[sent]
			sent++
			steps = append(steps, fmt.Sprintf("event %d", c.version))
			before := len(f.events)
			if c.deleted {
				f.do(f.Delete(object(c)))
				break
			}
			f.do(f.Update(object(c)))
			if o, ok := f.Get("", "a"); ok && string(o.UID()) == c.uid && !c.own && len(f.events) == before {
				t.Errorf("nobody was told of the change %d by another client", c.version)
			}
		case step == 9 && r.IntN(4) == 0:
			// The list is of any moment from what was seen on.
			to := sent + r.IntN(len(log)-sent+1)
			var there []any
			at := f.LastSyncedVersion()
			if to > 0 {
				at = strconv.Itoa(max(log[to-1].version, mustNumber(t, at)))
				if !log[to-1].deleted {
					there = append(there, object(log[to-1]))
				}
			}
			sent = to
			steps = append(steps, "list "+at)
			f.do(f.Replace(there, at))
		}
		if o, ok := f.Get("", "a"); ok {
			shown := mustNumber(t, o.ResourceVersion())
			if shown < highest {
				t.Errorf("went back from %d to %d", highest, shown)
			}
			highest = max(highest, shown)
		}
	}
	for range 5 + r.IntN(25) {
		do(r.IntN(10))
	}
	for len(responses) > 0 || sent < len(log) {
		do(4 + r.IntN(5))
	}
	want := ""
	if !last.deleted {
		want = strconv.Itoa(last.version)
	}
	f.shows(want, strconv.Itoa(max(version, 1)), 0)
	return steps, !t.Failed()
}

func mustNumber(t *testing.T, version string) int {
	t.Helper()
	n, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
