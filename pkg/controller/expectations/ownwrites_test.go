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

package expectations_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

type store map[string]*object.Object

func (s store) Get(_, name string) (*object.Object, bool) {
	o, ok := s[name]
	return o, ok
}

// at is a parent named a in some version.
func at(t *testing.T, version int) *object.Object {
	t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"A","metadata":{"name":"a","uid":"a","resourceVersion":"%d"}}`, version),
		object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func own(e *expectations.OwnWrites, shown *object.Object) bool {
	priority, _ := e.Urgency(shown)
	return priority == queue.SelfTriggered
}

func TestOwnWrites(t *testing.T) {
	type seen struct {
		version int
		own     bool
	}
	for name, tc := range map[string]struct {
		reason string
		// during are events while the write is under way, after are those after its response.
		during, after []seen
		// written is the version that the write makes; 0: none.
		written  int
		err      error
		mistaken bool
	}{
		"EventAfterTheResponse":  {reason: "It is the write's.", written: 2, after: []seen{{2, true}}},
		"EventBeforeTheResponse": {reason: "It is the write's, as the response shows.", written: 2, during: []seen{{2, true}}},
		"SeenTwice": {
			reason: "A list may bring the object again: something else has happened.", written: 2,
			after: []seen{{2, true}, {2, false}},
		},
		"SeenTwiceFirstBeforeTheResponse": {
			reason: "What was seen before the response is not waited for any more.", written: 2,
			during: []seen{{2, true}}, after: []seen{{2, false}},
		},
		"SomebodyElsesAfterTheResponse": {
			reason: "It has another version; the write's own comes yet.", written: 3,
			after: []seen{{2, false}, {3, true}, {4, false}},
		},
		"SomebodyElsesBeforeTheResponse": {
			reason: "It might have been the write's, and was not.", written: 3,
			during: []seen{{2, true}}, mistaken: true, after: []seen{{3, true}},
		},
		"BothBeforeTheResponse": {
			reason: "The write's own event must not hide the other.", written: 3,
			during: []seen{{2, true}, {3, true}}, mistaken: true,
		},
		"NothingWritten": {reason: "Without a write no event is self-triggered.", during: []seen{{2, true}}, mistaken: true, after: []seen{{3, false}}},
		"Refused": {
			reason: "A conflict means that another client wrote.", err: errors.New("conflict"),
			during: []seen{{2, true}}, mistaken: true, after: []seen{{3, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var e expectations.OwnWrites
			see := func(events []seen) {
				for _, s := range events {
					if got := own(&e, at(t, s.version)); got != s.own {
						t.Errorf("version %d: own %t, want %t: %s", s.version, got, s.own, tc.reason)
					}
				}
			}
			written, mistaken, err := e.Write(store{"a": at(t, 1)}, at(t, 1), false, func() (*object.Object, error) {
				see(tc.during)
				if tc.written == 0 {
					return nil, tc.err
				}
				return at(t, tc.written), nil
			})
			if !errors.Is(err, tc.err) || (written != nil) != (tc.written > 0) {
				t.Errorf("got %v and %v, want what the write returned", written, err)
			}
			if mistaken != tc.mistaken {
				t.Errorf("mistaken: %t, want %t: %s", mistaken, tc.mistaken, tc.reason)
			}
			see(tc.after)
		})
	}
}

func TestAWriteThatFailedIsInDoubtUntilTheParentIsShownLater(t *testing.T) {
	type write struct {
		// on is the version that the write depends on, made the one that it makes, 0 for none, shown the one that is seen at its end.
		on, made, shown int
		err             error
		// during is the version of an event while it is under way; 0: none.
		during int
	}
	lost := errors.New("connection reset by peer")
	for name, tc := range map[string]struct {
		reason string
		writes []write
		// event is shown after the writes, and is in doubt or not.
		event   int
		inDoubt bool
	}{
		"Failed":          {"The API server may have made it.", []write{{on: 1, shown: 1, err: lost}}, 2, true},
		"Made":            {"The response is known.", []write{{on: 1, shown: 1, made: 2}}, 2, false},
		"Unnecessary":     {"There was no write.", []write{{on: 1, shown: 1}}, 2, false},
		"ShownAtTheEnd":   {"The next sync sees what the write made.", []write{{on: 1, shown: 2, err: lost}}, 3, false},
		"SeenMeanwhile":   {"Likewise.", []write{{on: 1, shown: 2, err: lost, during: 2}}, 3, false},
		"EarlierState":    {"The write depended on a state that is shown only now.", []write{{on: 2, shown: 1, err: lost}}, 2, false},
		"AfterEarlier":    {"That state does not end the doubt.", []write{{on: 2, shown: 1, err: lost}}, 3, true},
		"ThenUnnecessary": {"The sync after it did not see what it made.", []write{{on: 1, shown: 1, err: lost}, {on: 1, shown: 1}}, 2, true},
		"ShownBeforeTheEvent": {
			"The sync that ends did not see it, and none follows.", []write{{on: 1, shown: 1, err: lost}, {on: 1, shown: 2}}, 2, true,
		},
		"ThenMade":         {"It would be a conflict if the first had been made.", []write{{on: 1, shown: 1, err: lost}, {on: 1, shown: 1, made: 2}}, 3, false},
		"ThenFailed":       {"Either may have been made.", []write{{on: 1, shown: 1, err: lost}, {on: 1, shown: 1, err: lost}}, 2, true},
		"SeenDuringOthers": {"The event has asked for a sync.", []write{{on: 1, shown: 1, err: lost}, {on: 1, shown: 2, during: 2}}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			var e expectations.OwnWrites
			for _, w := range tc.writes {
				_, _, err := e.Write(store{"a": at(t, w.shown)}, at(t, w.on), false, func() (*object.Object, error) {
					if w.during > 0 && !own(&e, at(t, w.during)) {
						t.Error("an event while a write is under way is not taken for its own")
					}
					if w.made == 0 {
						return nil, w.err
					}
					return at(t, w.made), nil
				})
				if !errors.Is(err, w.err) {
					t.Errorf("got the error %v, want that of the write", err)
				}
			}
			shown := at(t, tc.event)
			if got := e.InDoubt(shown); got != tc.inDoubt {
				t.Errorf("in doubt: %t, want %t: %s", got, tc.inDoubt, tc.reason)
			}
			if !tc.inDoubt {
				return
			}
			if own(&e, shown) {
				t.Error("an event that is in doubt counts as self-triggered")
			}
			if e.InDoubt(at(t, tc.event+1)) || e.Pending() {
				t.Error("the doubt is not over with the event")
			}
		})
	}
}
