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

package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
)

func warning(message string) *corev1.Event {
	return &corev1.Event{Type: corev1.EventTypeWarning, Reason: "SyncError", Message: message}
}

func TestKindsAreBoundedAndMakeRoom(t *testing.T) {
	c := testclock.NewFakeClock(time.Now())
	k := newKinds(c)
	own := map[string]bool{}
	for n := range maxKinds {
		own[k.keyOf(warning(strings.Repeat("x", n+1)))] = true
	}
	if len(own) != maxKinds {
		t.Fatalf("%d limits for %d kinds of messages", len(own), maxKinds)
	}
	shared := k.keyOf(warning("one more"))
	if own[shared] || shared != k.keyOf(warning("and another")) {
		t.Error("kinds above the bound must have one limit in common")
	}
	if !own[k.keyOf(warning("xx"))] {
		t.Error("a kind that is known keeps its limit")
	}
	c.Step(kindAge - time.Second)
	if !own[k.keyOf(warning("x"))] {
		t.Error("a kind that is known keeps its limit for as long as it occurs")
	}
	c.Step(time.Second)
	if k.keyOf(warning("one more")) == shared {
		t.Error("a kind that did not occur for long must make room")
	}
	if !own[k.keyOf(warning("x"))] {
		t.Error("a kind that occurred recently must not")
	}
}

func TestMessagesOfOneKind(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"Same":     {"broken", "broken", true},
		"Words":    {"broken", "refused", false},
		"Numbers":  {"took 12ms", "took 9ms", true},
		"Combined": {"broken", combined + "broken", true},
		"Hashes":   {"revision 7f9c2ba4e88f827d", "revision 616002fe95e10cd4", true},
		"UIDs":     {"uid 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "uid 6fa459ea-ee8a-4ca4-894e-db77e160355e", true},
		"HexWords": {"a defaced facade", "a decade faded", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKinds(testclock.NewFakeClock(time.Now()))
			if got := k.keyOf(warning(tc.a)) == k.keyOf(warning(tc.b)); got != tc.same {
				t.Errorf("%q and %q: one kind = %v, want %v", tc.a, tc.b, got, tc.same)
			}
		})
	}
	k := newKinds(testclock.NewFakeClock(time.Now()))
	keys := map[string]bool{}
	for n := range 3 {
		e := warning("broken")
		e.InvolvedObject.Name = fmt.Sprint(n)
		keys[k.keyOf(e)] = true
		e.Type = corev1.EventTypeNormal
		keys[k.keyOf(e)] = true
	}
	if len(keys) != 6 {
		t.Errorf("%d limits for two types of events about three objects", len(keys))
	}
}
