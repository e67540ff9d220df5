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

package loopguard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = parent.Key{Namespace: "ns", Name: "p"}

// history is the syncs of a parent, one after the other.
type history struct {
	t       *testing.T
	tracker loopguard.Tracker
	parent  loopguard.Parent
	now     time.Time
	// state is what is there; number makes values that were never there.
	state  loopguard.State
	number uint64
	cause  loopguard.Cause
	pause  time.Duration
}

func newHistory(t *testing.T) *history {
	h := &history{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	h.tracker.Remember(&h.parent, &key)
	return h
}

func (h *history) all(yield func(*loopguard.Parent) bool) { yield(&h.parent) }

func (h *history) fresh() uint64 {
	h.number++
	return h.number
}

// sync is a sync that writes the children and the parent as change says, at places.
func (h *history) sync(places uint64, children int, change func(*loopguard.State)) {
	h.record(loopguard.Sync{Places: places, Children: children}, change)
}

func (h *history) record(s loopguard.Sync, change func(*loopguard.State)) {
	h.now = h.now.Add(time.Millisecond + h.pause)
	s.Before = h.state
	change(&h.state)
	s.After = h.state
	s.WroteParent = s.Before.Written != s.After.Written
	h.cause, h.pause = h.parent.Wrote(s, h.now)
}

// steps is a sync that writes one of so many children, which others have written.
func (h *history) steps(children int) {
	h.record(loopguard.Sync{Places: 1, Children: children, Overwrote: true}, h.child)
}

func (h *history) child(s *loopguard.State)  { s.Children = h.fresh() }
func (h *history) status(s *loopguard.State) { s.Written = h.fresh() }

func (h *history) held() time.Duration {
	return h.parent.Held(h.now, func() (loopguard.State, bool) { return h.state, true })
}

func TestWhichParentsDoNotSettle(t *testing.T) {
	const many = 1000
	for _, test := range []struct {
		why  string
		play func(*history)
		want loopguard.Cause
	}{
		{"a time in a child", func(h *history) {
			for range 20 {
				h.sync(1, 1, h.child)
			}
		}, loopguard.Differs},
		{"a time in the status", func(h *history) {
			for range 20 {
				h.sync(2, 0, h.status)
			}
		}, loopguard.Differs},
		{"a hook that converges in a few steps", func(h *history) {
			for range 10 {
				h.sync(1, 1, h.child)
			}
		}, loopguard.None},
		{"a child with another name each time", func(h *history) {
			for range 30 {
				h.sync(h.fresh(), 1, h.child)
			}
		}, loopguard.Differs},
		{"many children, created, updated and deleted one by one", func(h *history) {
			for range 3 * many {
				h.sync(h.fresh(), many, h.child)
			}
		}, loopguard.None},
		{"a parent whose spec changes all the time", func(h *history) {
			for range many {
				h.state.Content = h.fresh()
				h.sync(1, 1, h.child)
			}
		}, loopguard.None},
		{"a parent whose annotations change all the time", func(h *history) {
			for range many {
				h.state.Written = h.fresh()
				h.sync(1, 1, h.child)
			}
		}, loopguard.None},
		{"a child whose own controller writes its status", func(h *history) {
			for range many {
				h.state.Children = h.fresh()
				h.sync(2, 1, h.status)
			}
		}, loopguard.None},
		{"a time in a child whose own controller writes its status", func(h *history) {
			for range 100 {
				h.state.Children = h.fresh()
				h.steps(1)
			}
		}, loopguard.Restless},
		{"a time in a child whose own controller answers whenever the parent is held back", func(h *history) {
			for range many {
				h.state.Children = h.fresh()
				for h.steps(1); h.cause == loopguard.None; {
					h.sync(1, 1, h.child)
				}
				if h.cause == loopguard.Restless {
					return
				}
				h.state.Children, h.pause = h.fresh(), 0
				if h.held() > 0 {
					h.t.Fatal("a change of a child does not end the pause")
				}
			}
		}, loopguard.Restless},
		{"children with other names each time, which their own controllers write", func(h *history) {
			for range 100 {
				h.state.Children = h.fresh()
				h.record(loopguard.Sync{Places: h.fresh(), Children: 3, Overwrote: true}, h.child)
			}
		}, loopguard.Restless},
		{"a child that follows what its own controller reports", func(h *history) {
			for range many {
				h.now = h.now.Add(time.Second)
				h.state.Children = h.fresh()
				h.steps(1)
			}
		}, loopguard.None},
		{"a child that follows a label of the parent, while its own controller writes its status", func(h *history) {
			for range many {
				h.state.Written, h.state.Children = h.fresh(), h.fresh()
				h.steps(1)
			}
		}, loopguard.None},
		{"many children that their own controllers write, created and updated one by one", func(h *history) {
			for n := range 3 * many {
				h.state.Children = h.fresh()
				h.steps(min(n, many))
			}
		}, loopguard.None},
		{"a related object that changes all the time", func(h *history) {
			for range many {
				h.parent.Outside(h.now)
				h.sync(2, 1, h.status)
			}
		}, loopguard.None},
		{"children that go, of which the hook reports how many there are", func(h *history) {
			for range many {
				h.state.Deleting = h.fresh()
				h.sync(2, 0, h.status)
			}
		}, loopguard.None},
		{"related objects with which other parents answer, and it rests in between", func(h *history) {
			h.tracker.Answers = func(parent.Key, uint64) bool { return true }
			for range many {
				h.parent.Related(h.fresh())
				h.record(loopguard.Sync{Places: 2, Children: 1, Related: 1}, h.child)
				h.parent.Rested(h.now)
			}
		}, loopguard.Restless},
		{"related objects with which other parents answer", func(h *history) {
			h.tracker.Answers = func(parent.Key, uint64) bool { return true }
			for range many {
				h.parent.Related(h.fresh())
				h.record(loopguard.Sync{Places: 2, Children: 1, Related: 1}, h.child)
			}
		}, loopguard.Restless},
		{"and now and then a client that does not belong to it", func(h *history) {
			h.tracker.Answers = func(_ parent.Key, version uint64) bool { return version%30 != 0 }
			for n := range uint64(many) {
				h.parent.Related(n)
				h.record(loopguard.Sync{Places: 2, Children: 1, Related: 1}, h.child)
			}
		}, loopguard.None},
		{"many related objects that other parents create and delete one by one as answers", func(h *history) {
			h.tracker.Answers = func(parent.Key, uint64) bool { return true }
			for n := range many {
				h.parent.Related(h.fresh())
				h.record(loopguard.Sync{Places: 2, Related: n}, h.status)
			}
			for n := range many {
				h.parent.Related(h.fresh())
				h.record(loopguard.Sync{Places: 2, Related: many - n}, h.status)
			}
		}, loopguard.None},
		{"a hook of which every other call fails, and every other one says something new", func(h *history) {
			for range many {
				h.sync(2, 0, h.status)
				h.parent.Failed()
			}
		}, loopguard.Differs},
		{"a rolling update", func(h *history) {
			for range many {
				h.record(loopguard.Sync{Places: 1, Children: 1, Rolling: true}, h.child)
			}
		}, loopguard.None},
		{"a hook that asks to be called again, and then says something new once", func(h *history) {
			for range many {
				h.now = h.now.Add(time.Second)
				h.sync(2, 0, h.status)
				h.parent.Rested(h.now)
			}
		}, loopguard.None},
		{"a hook that says something new each time, and fails now and then", func(h *history) {
			for n := range 30 {
				if h.sync(2, 0, h.status); n%3 == 0 {
					h.parent.Failed()
				}
			}
		}, loopguard.Differs},
		{"a hook that is called again because a child fails, and then says something new once", func(h *history) {
			for range many {
				h.now = h.now.Add(3 * time.Second)
				h.sync(2, 0, h.status)
				h.parent.Failed()
			}
		}, loopguard.None},
		{"a hook that says something new each time, from which nothing follows", func(h *history) {
			for range many {
				h.now = h.now.Add(time.Second)
				h.record(loopguard.Sync{Places: 2, Ends: true}, h.status)
			}
		}, loopguard.None},
		{"a time in a child, and in the status, from which nothing follows", func(h *history) {
			for range 20 {
				h.sync(1, 1, h.child)
				h.record(loopguard.Sync{Places: 2, Ends: true}, h.status)
			}
		}, loopguard.None},
		{"another client writes its own status back, and nothing follows", func(h *history) {
			for range 20 {
				h.state.Written = 1
				h.record(loopguard.Sync{Places: 2, Ends: true}, func(s *loopguard.State) { s.Written = 2 })
			}
		}, loopguard.ChangedBack},
		{"another client writes its own status back", func(h *history) {
			for range 20 {
				h.state.Written = 1
				h.sync(2, 0, func(s *loopguard.State) { s.Written = 2 })
				h.parent.Rested(h.now)
			}
		}, loopguard.ChangedBack},
		{"another client writes another status each time, to which the hook adds", func(h *history) {
			for range many {
				h.state.Written = h.fresh()
				h.sync(2, 0, h.status)
			}
		}, loopguard.None},
		{"another client writes it back now and then", func(h *history) {
			for range many {
				h.now = h.now.Add(2 * time.Minute)
				h.state.Written = 1
				h.sync(2, 0, func(s *loopguard.State) { s.Written = 2 })
			}
		}, loopguard.None},
	} {
		t.Run(test.why, func(t *testing.T) {
			h := newHistory(t)
			test.play(h)
			if h.cause != test.want {
				t.Errorf("cause %d, want %d", h.cause, test.want)
			}
			differing, changedBack := h.tracker.Unsettled(h.now, h.all)
			if (differing == 1) != (test.want == loopguard.Differs || test.want == loopguard.Restless) || (changedBack == 1) != (test.want == loopguard.ChangedBack) {
				t.Errorf("%d parents differ and %d are changed back", differing, changedBack)
			}
		})
	}
}

func TestARestlessParentIsHeldBackWhateverItsChildrenDo(t *testing.T) {
	restless := func() *history {
		h := newHistory(t)
		for range 100 {
			h.state.Children = h.fresh()
			h.steps(1)
		}
		return h
	}
	h := restless()
	if h.pause != time.Minute {
		t.Errorf("the pause is %v, want a minute, which is the longest", h.pause)
	}
	if h.state.Children = h.fresh(); h.held() == 0 {
		t.Error("a status of a child ends the pause")
	}
	if h.state.Content = h.fresh(); h.held() != 0 {
		t.Error("a change of the parent does not end it")
	}
	h = restless()
	h.parent.Rested(h.now)
	h.state.Children = h.fresh()
	if h.steps(1); h.cause != loopguard.None {
		t.Error("a sync that wrote nothing does not end it")
	}
	h = restless()
	h.parent.Outside(h.now)
	h.state.Children = h.fresh()
	if h.steps(1); h.cause != loopguard.None {
		t.Error("a related object that changes does not end it")
	}
}

// differing is a parent that is held back, since each response differs.
func differing(t *testing.T) *history {
	t.Helper()
	h := newHistory(t)
	for range 20 {
		h.sync(2, 0, h.status)
	}
	if h.held() == 0 {
		t.Fatal("a parent that does not settle is not held back")
	}
	return h
}

func TestPausesGrowToALimit(t *testing.T) {
	h := newHistory(t)
	var pauses []time.Duration
	for len(pauses) < 12 {
		if h.sync(2, 0, h.status); h.pause > 0 {
			pauses = append(pauses, h.pause)
		}
	}
	for i, want := 0, time.Second; i < len(pauses); i, want = i+1, min(2*want, 5*time.Minute) {
		if pauses[i] != want {
			t.Fatalf("pauses %v", pauses)
		}
	}
}

func TestAHookThatAsksToBeCalledAgainIsNotCalledLater(t *testing.T) {
	h := newHistory(t)
	for range 30 {
		h.record(loopguard.Sync{Places: 2, Again: 5 * time.Second}, h.status)
	}
	if h.pause != 5*time.Second {
		t.Errorf("held back for %s", h.pause)
	}
}

func TestWhatEndsAPause(t *testing.T) {
	for _, test := range []struct {
		why    string
		change func(*history)
		held   bool
	}{
		{"nothing", func(*history) {}, true},
		{"the end of the time", func(h *history) { h.now = h.now.Add(h.pause) }, false},
		{"a change of the parent's spec", func(h *history) { h.state.Content = h.fresh() }, false},
		{"a change of its labels", func(h *history) { h.state.Written = h.fresh() }, false},
		{"a change of a child", func(h *history) { h.state.Children = h.fresh() }, false},
		{"a change of a related object", func(h *history) { h.parent.Related(1) }, false},
		{"a change of a related object by another parent", func(h *history) {
			h.tracker.Answers = func(parent.Key, uint64) bool { return true }
			h.parent.Related(1)
		}, false},
		{"a child that is deleted", func(h *history) { h.state.Children, h.state.Deleting, h.state.Leaving = h.fresh(), 1, 1 }, false},
		{"a child that is being deleted and changes", func(h *history) { h.state.Deleting = h.fresh() }, false},
		{"a child that was being deleted and is gone", func(h *history) { h.state.Deleting, h.state.Leaving = h.fresh(), h.fresh() }, false},
		{"an orphan that may be adopted", func(h *history) { h.parent.Outside(h.now) }, false},
		{"another parent of the name", func(h *history) { h.parent.Forget() }, false},
		{"a sync that wrote nothing", func(h *history) { h.parent.Rested(h.now) }, false},
	} {
		t.Run(test.why, func(t *testing.T) {
			h := differing(t)
			test.change(h)
			if held := h.held() > 0; held != test.held {
				t.Errorf("held back: %t", held)
			}
		})
	}
}

func TestWhatIsChangedBackIsHeldBackWhileItIs(t *testing.T) {
	h := newHistory(t)
	for range 20 {
		h.state.Written = 1
		h.sync(2, 0, func(s *loopguard.State) { s.Written = 2 })
	}
	if !h.parent.Contended() {
		t.Error("it is not known that the parent is changed back")
	}
	for _, written := range []uint64{2, 1} {
		if h.state.Written = written; h.held() == 0 {
			t.Errorf("with %d it is not held back", written)
		}
	}
	if h.state.Written = 3; h.held() != 0 {
		t.Error("it is held back though somebody wrote something else")
	}
}

// TestLabelsThatAreChangedBackHoldAParentBackWhateverItsStatus has a kind whose own controller writes a status after each write of the annotations,
// as that of Deployments does.
func TestLabelsThatAreChangedBackHoldAParentBackWhateverItsStatus(t *testing.T) {
	h := newHistory(t)
	follows := func() { h.state.Written = h.fresh() }
	fight := func(times int) {
		for range times {
			h.state.Marks = 1
			follows()
			h.sync(2, 0, func(s *loopguard.State) { s.Marks, s.Written = 2, h.fresh() })
			follows()
		}
	}
	if fight(5); h.cause != loopguard.None || h.held() != 0 {
		t.Error("it is held back too soon")
	}
	if fight(15); h.cause != loopguard.ChangedBack {
		t.Fatalf("cause %d", h.cause)
	}
	for _, marks := range []uint64{2, 1} {
		if h.state.Marks = marks; h.held() == 0 {
			t.Errorf("with %d it is not held back", marks)
		}
	}
	if follows(); h.held() == 0 {
		t.Error("the status that follows ends the pause")
	}
	if h.state.Marks = 3; h.held() != 0 {
		t.Error("it is held back though somebody wrote something else")
	}
}

// TestLabelsThatFollowTheStatusAreNoFight has a hook that sets a label while the parent is not ready.
func TestLabelsThatFollowTheStatusAreNoFight(t *testing.T) {
	h := newHistory(t)
	for n := range uint64(100) {
		h.state.Written = h.fresh()
		h.sync(2, 0, func(s *loopguard.State) { s.Marks, s.Written = 1+n%2, h.fresh() })
		if h.cause != loopguard.None || h.held() != 0 {
			t.Fatalf("it is held back after %d changes of its status", n)
		}
	}
}

func TestWhatIsRememberedIsDropped(t *testing.T) {
	var tracker loopguard.Tracker
	now, list := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), make([]loopguard.Parent, 100_000)
	all := func(yield func(*loopguard.Parent) bool) {
		for i := range list {
			yield(&list[i])
		}
	}
	for i := range list {
		now = now.Add(time.Second)
		tracker.Remember(&list[i], &key)
		list[i].Wrote(loopguard.Sync{}, now)
		tracker.Sweep(now, all)
	}
	known := 0
	for i := range list {
		if list[i].Known() {
			known++
		}
	}
	if known > 5000 {
		t.Errorf("%d parents are remembered, one of which was written each second for a minute", known)
	}
}

func BenchmarkRested(b *testing.B) {
	var p loopguard.Parent
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p.Rested(now)
		p.Held(now, nil)
	}
}

func TestAFinalizerThatIsTakenOffHoldsAParentBackForSeconds(t *testing.T) {
	h := newHistory(t)
	strip := func(times int, apart time.Duration) (held bool) {
		for range times {
			h.now = h.now.Add(apart)
			held = h.parent.Stripped(h.now)
		}
		return held
	}
	if strip(100, 2*time.Minute) {
		t.Error("it is held back though that happens now and then")
	}
	if strip(9, time.Second) || h.held() != 0 {
		t.Error("it is held back too soon")
	}
	if !strip(1, time.Second) || h.held() != 5*time.Second {
		t.Errorf("it is held back for %v after %d times in a row", h.held(), 11)
	}
	h.state.Content = h.fresh()
	if h.held() != 5*time.Second {
		t.Error("what the other client writes ends it")
	}
	if _, changedBack := h.tracker.Unsettled(h.now, h.all); changedBack != 1 {
		t.Errorf("%d parents are changed back", changedBack)
	}
	if h.now = h.now.Add(5 * time.Second); h.held() != 0 {
		t.Error("it does not end")
	}
	h.sync(1, 0, h.status) // It is one more round, and says nothing of the other client.
	if !strip(1, time.Second) {
		t.Error("the next time is not counted")
	}
	h.now = h.now.Add(2 * time.Minute)
	if _, changedBack := h.tracker.Unsettled(h.now, h.all); changedBack != 0 || strip(1, time.Second) {
		t.Error("it is remembered though it has ended")
	}
}

func TestDifferencesAreToldWithoutTheirValues(t *testing.T) {
	for _, test := range []struct{ before, after, path, kinds, advice string }{
		{`{"a":1,"t":"2026-01-01T00:00:00Z"}`, `{"a":1,"t":"2026-01-01T00:00:01Z"}`, "status.t", "a time, then another time", "Leave times out"},
		{`{"m":"at 2026-01-01 00:00"}`, `{"m":"at 2026-01-01 00:01"}`, "status.m", "a text with a time, then another text with a time", "Leave times out"},
		{`{"n":{"m":1}}`, `{"n":{"m":2}}`, "status.n.m", "a number, then another number", "count neither"},
		{`{"n":1}`, `{"n":"1"}`, "status.n", "a number, then a text", "Return the same"},
		{`{}`, `{"n":true}`, "status.n", "nothing, then a boolean", "Return the same"},
		{`{"l":[1,2]}`, `{"l":[2,1]}`, "status.l", "a list, then the same list in another order", "Sort the list"},
		{`{"l":[1,2]}`, `{"l":[1,3]}`, "status.l[1]", "a number, then another number", "count neither"},
		{`{"l":[1,2]}`, `{"l":[1]}`, "status.l", "a list, then another list", "Return the same"},
		{
			`{"u":"6b0a4c1e-0000-4000-8000-000000000001"}`, `{"u":"6b0a4c1e-0000-4000-8000-000000000002"}`,
			"status.u", "a UUID, then another UUID", "its UID",
		},
		{`{"o":{}}`, `{"o":"x"}`, "status.o", "an object, then a text", "Return the same"},
		{`{"o":1}`, `{"o":1}`, "", "", ""},
	} {
		t.Run(test.before+test.after, func(t *testing.T) {
			d, differs := loopguard.First("status", decode(t, test.before), decode(t, test.after))
			if d.Path != test.path || differs != (test.path != "") {
				t.Fatalf("differs: %t, at %s", differs, d.Path)
			}
			if !differs {
				return
			}
			if got := d.Kinds(); got != test.kinds {
				t.Errorf("kinds %q, want %q", got, test.kinds)
			}
			if got := d.Advice(); !strings.Contains(got, test.advice) {
				t.Errorf("advice %q, want %q in it", got, test.advice)
			}
		})
	}
}

func decode(t *testing.T, text string) (value any) {
	t.Helper()
	if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestHonestHooksAreNeverHeldBack has hooks do, with few and with many children, what comes to an end, each sync a millisecond after the one before.
func TestHonestHooksAreNeverHeldBack(t *testing.T) {
	for name, play := range map[string]func(*honest){
		"children are created one by one": func(h *honest) {
			for n := range h.many {
				h.write(loopguard.Sync{Places: h.fresh(), Children: n})
			}
		},
		"children are created at once": func(h *honest) { h.write(loopguard.Sync{Places: h.fresh(), Children: h.many}) },
		"children are updated one by one": func(h *honest) {
			for range h.many {
				h.write(loopguard.Sync{Places: h.fresh(), Children: h.many})
			}
		},
		"children that their own controllers write are updated one by one": func(h *honest) {
			for range h.many {
				h.state.Children = h.fresh()
				h.write(loopguard.Sync{Places: h.fresh(), Children: h.many, Overwrote: true})
			}
		},
		"children are deleted one by one, and gone at once": func(h *honest) {
			for left := h.many; left > 0; left-- {
				h.write(loopguard.Sync{Places: h.fresh(), Children: left, Overwrote: true, Deleted: true})
			}
		},
		"children are deleted one by one, of which the status has the number": func(h *honest) {
			for left := h.many; left > 0; left-- {
				h.record(loopguard.Sync{Places: h.fresh(), Children: left, Overwrote: true, Deleted: true}, func(s *loopguard.State) {
					s.Children, s.Written = h.fresh(), h.fresh()
				})
			}
		},
		"children are deleted at once, and go one by one, of which the status has the number": func(h *honest) {
			h.write(loopguard.Sync{Places: h.fresh(), Children: h.many, Deleted: true})
			for range h.many {
				h.state.Deleting, h.state.Leaving = h.fresh(), h.fresh()
				h.record(loopguard.Sync{Places: 1}, h.status)
			}
		},
		"children with finalizers are deleted one by one": func(h *honest) {
			for left := h.many; left > 0; left-- {
				h.write(loopguard.Sync{Places: h.fresh(), Children: left, Deleted: true})
				h.state.Deleting, h.state.Leaving = h.fresh(), h.fresh()
				h.parent.Rested(h.now)
				h.state.Deleting, h.state.Leaving = 0, 0
			}
		},
		"somebody deletes children, of which the status has the number": func(h *honest) {
			for range h.many {
				h.state.Children, h.state.Leaving = h.fresh(), h.fresh()
				h.record(loopguard.Sync{Places: 1, Children: h.many}, h.status)
			}
		},
		"a rolling update moves children one by one": func(h *honest) {
			for range h.many {
				h.write(loopguard.Sync{Places: h.fresh(), Children: h.many, Overwrote: true, Rolling: true})
			}
		},
		"a child rolls out so many Pods, and another one has the number of those that are ready": func(h *honest) {
			for range h.many {
				h.state.Children = h.fresh()
				h.write(loopguard.Sync{Places: 1, Children: 2})
			}
		},
		"children become ready one by one, of which the status has the number": func(h *honest) {
			for range h.many {
				h.state.Children = h.fresh()
				h.record(loopguard.Sync{Places: 1, Children: h.many}, h.status)
			}
		},
		"so many related objects change one by one": func(h *honest) {
			for range h.many {
				h.parent.Related(h.fresh())
				h.write(loopguard.Sync{Places: 1, Children: 1, Related: h.many})
			}
		},
		"so many related objects are created one by one as answers": func(h *honest) {
			h.tracker.Answers = func(parent.Key, uint64) bool { return true }
			for n := range h.many {
				h.parent.Related(h.fresh())
				h.write(loopguard.Sync{Places: 1, Children: 1, Related: n})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, many := range []int{0, 1, 2, 60, 150, 1000, 5000} {
				t.Run(fmt.Sprint(many), func(t *testing.T) {
					h := &honest{history: newHistory(t), many: many}
					play(h)
					if h.blamed > 0 {
						t.Errorf("held back in %d of %d syncs, in all for %v", h.blamed, h.syncs, h.now.Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
					}
				})
			}
		})
	}
}

// honest is the history of a parent with many children.
type honest struct {
	*history
	many, syncs, blamed int
}

// write is a sync that writes children.
func (h *honest) write(s loopguard.Sync) { h.record(s, h.child) }

func (h *honest) record(s loopguard.Sync, change func(*loopguard.State)) {
	h.history.record(s, change)
	h.syncs++
	if h.cause != loopguard.None {
		h.blamed++
	}
}

// TestALoopIsHeldBackWithManyChildrenToo has one of the children be another one in each response.
func TestALoopIsHeldBackWithManyChildrenToo(t *testing.T) {
	for _, children := range []int{0, 1, 60, 1000, 5000} {
		for name, sync := range map[string]loopguard.Sync{
			"one child":              {Places: 1, Children: children},
			"one that others write":  {Places: 1, Children: children, Overwrote: true},
			"the status":             {Places: 2, Children: children},
			"children of new names":  {Children: children, Deleted: true},
			"one, and it is deleted": {Places: 1, Children: children, Deleted: true},
		} {
			t.Run(fmt.Sprintf("%s of %d", name, children), func(t *testing.T) {
				h := newHistory(t)
				syncs := 0
				for h.cause == loopguard.None && syncs < 100_000 {
					sync := sync
					if sync.Places == 0 {
						sync.Places = h.fresh()
					}
					if sync.Overwrote {
						h.state.Children = h.fresh()
					}
					h.record(sync, h.child)
					syncs++
				}
				if limit := 100 + 4*children; syncs > limit {
					t.Errorf("held back after %d syncs, want at most %d", syncs, limit)
				}
			})
		}
	}
}

func TestARecreatedParentBeginsAnew(t *testing.T) {
	h := differing(t)
	h.parent.Forget()
	h.pause = 0
	if h.sync(2, 0, h.status); h.cause != loopguard.None || h.held() != 0 {
		t.Errorf("cause %d, held back for %v", h.cause, h.held())
	}
}
