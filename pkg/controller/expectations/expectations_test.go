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
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key, other = parent.Key{Name: "parent"}, parent.Key{Name: "other"}

// scene has expectations that observe an informer which shows what the test feeds it.
type scene struct {
	*expectations.Expectations

	t        *testing.T
	clock    *clocktesting.FakeClock
	informer *cache.Informer
	cancel   func()
	released chan struct{}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	c, err := cache.New(cache.Options{Config: &rest.Config{Host: "example.invalid"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), released: make(chan struct{}, 10)}
	s.Expectations = expectations.New(func(parent.Key) { s.released <- struct{}{} }, s.clock)
	// The cache does not run, so nobody else feeds the informer.
	s.informer = c.Acquire(cache.Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}})
	s.cancel = s.Observe(s.informer)
	return s
}

func (s *scene) show(name, uid, version, more string) {
	s.t.Helper()
	if err := s.informer.Update(s.parse(name, uid, version, more)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) parse(name, uid, version, more string) *object.Object {
	s.t.Helper()
	o, err := object.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q,"resourceVersion":%q%s}}`, name, uid, version, more), object.ParseOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *scene) ready() bool { return s.Satisfied(key) }

func (s *scene) expect(reason string, ready bool, releases int) {
	s.t.Helper()
	if got := len(s.released); got != releases {
		s.t.Errorf("%s: released %d times, want %d", reason, got, releases)
	}
	for len(s.released) > 0 {
		<-s.released
	}
	if got := s.ready(); got != ready {
		s.t.Errorf("%s: ready is %v, want %v", reason, got, ready)
	}
}

func TestAParentWaitsForAllItsWrites(t *testing.T) {
	s := newScene(t)
	s.expect("nothing was written", true, 0)
	s.WroteVersion(key, s.informer, "12")
	s.WroteVersion(key, s.informer, "10")
	s.expect("both are missing", false, 0)
	s.show("a", "u1", "10", "")
	s.expect("one is missing", false, 0)
	if !s.Satisfied(other) {
		t.Error("another parent waits too")
	}
	if err := s.informer.Bookmark("15"); err != nil {
		t.Fatal(err)
	}
	s.expect("a bookmark tells that the other is older", true, 1)
	s.WroteVersion(key, s.informer, "14")
	s.expect("the cache is further already", true, 0)
	s.WroteVersion(key, s.informer, "not-a-number")
	s.expect("such versions have no order", true, 0)
}

func TestAParentWaitsForItsDeletions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		shown  func(s *scene)
	}{
		"Gone": {"The object is not there any more.", func(s *scene) {
			o, _ := s.informer.Get("", "a")
			if err := s.informer.Delete(o); err != nil {
				s.t.Fatal(err)
			}
		}},
		"Deleting": {"A finalizer holds the object: waiting for its end would take too long.", func(s *scene) {
			s.show("a", "u1", "2", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`)
		}},
		"Replaced": {"Another object has the name.", func(s *scene) { s.show("a", "u2", "3", "") }},
		"Relisted": {"The watch was lost and the deletion with it.", func(s *scene) {
			if err := s.informer.Replace(nil, "5"); err != nil {
				s.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.show("a", "u1", "1", "")
			s.show("b", "u9", "1", "")
			s.Deleted(key, s.informer, s.parse("a", "u1", "1", ""))
			s.expect("the cache shows the object", false, 0)
			tc.shown(s)
			s.expect(tc.reason, true, 1)
			s.Deleted(key, s.informer, s.parse("a", "u1", "1", ""))
			s.expect("the cache shows it already", true, 0)
		})
	}
}

// TestAnAnsweredDeletionIsNotWaitedFor goes the whole way: the response says that the object is gone.
func TestAnAnsweredDeletionIsNotWaitedFor(t *testing.T) {
	s := newScene(t)
	if err := s.informer.Replace([]any{s.parse("a", "u1", "1", "")}, "9"); err != nil {
		t.Fatal(err)
	}
	s.Gone(key, s.informer, s.parse("a", "u1", "1", ""))
	s.expect("the response is shown", true, 0)
	if o, ok := s.informer.Get("", "a"); ok {
		t.Errorf("%v is shown", o)
	}
	if err := s.informer.Delete(s.parse("a", "u1", "12", "")); err != nil {
		t.Fatal(err)
	}
	s.Gone(key, s.informer, s.parse("a", "u1", "1", ""))
	s.expect("the cache shows it already", true, 0)
	// The informer cannot know the order of such versions, and waits.
	s.show("b", "u2", "x", "")
	s.Gone(key, s.informer, s.parse("b", "u2", "x", ""))
	s.expect("the cache shows the object", false, 0)
}

// TestAParentWaitsForItsOwnEnd is about the last finalizer: the API server answers with the version from before the write.
func TestAParentWaitsForItsOwnEnd(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	s := newScene(t)
	s.show("a", "u1", "3", deleting+`,"finalizers":["example.com/hold"]`)
	shown, _ := s.informer.Get("", "a")
	s.Expectations.Wrote(key, s.informer, shown)
	s.expect("another finalizer is left, and the cache is as far", true, 0)
	written := s.parse("a", "u1", "3", deleting)
	s.Expectations.Wrote(key, s.informer, written)
	s.expect("the cache has the object still", false, 0)
	s.show("a", "u1", "4", deleting+`,"finalizers":["example.com/hold"]`)
	s.expect("that it is being deleted was known before", false, 0)
	if err := s.informer.Delete(written); err != nil {
		t.Fatal(err)
	}
	s.expect("it is gone", true, 1)
	s.Expectations.Wrote(key, s.informer, written)
	s.expect("the cache has it no more", true, 0)
}

// A Pod that has its time to end stays after a write, and is no parent's end.
func TestAWriteToAnObjectThatIsGoingIsAsAnyOther(t *testing.T) {
	const going = `,"deletionTimestamp":"2026-01-02T03:04:05Z","deletionGracePeriodSeconds":30`
	s := newScene(t)
	s.show("a", "u1", "3", going)
	s.Expectations.Wrote(key, s.informer, s.parse("a", "u1", "4", going+`,"annotations":{"a":"b"}`))
	s.show("a", "u1", "4", going+`,"annotations":{"a":"b"}`)
	if !s.ready() {
		t.Error("the parent waits for the end of the Pod")
	}
}

func TestAWriteThatTheInformerTakesOverIsNotWaitedFor(t *testing.T) {
	s := newScene(t)
	if err := s.informer.Replace(nil, "9"); err != nil {
		t.Fatal(err)
	}
	var seen []string
	t.Cleanup(s.informer.Subscribe(func(e cache.Event) { seen = append(seen, e.New.ResourceVersion()) }))
	written, err := object.Parse([]byte(`{"apiVersion":"v1","metadata":{"name":"a","uid":"u1","resourceVersion":"10"}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Wrote(key, s.informer, written)
	s.expect("the response is shown", true, 0)
	if shown, ok := s.informer.Get("", "a"); !ok || shown != written || len(seen) != 1 {
		t.Errorf("shown %v, with events %q, want the response with one event", shown, seen)
	}
	s.clock.Step(time.Second)
	if got := s.Staleness(); got != time.Second {
		t.Errorf("the informer is %v behind, want the age of the write whose event has not come", got)
	}
	// A write of which the version alone is known is waited for as ever, and so is that before it.
	s.WroteVersion(key, s.informer, "11")
	s.expect("the other is not shown", false, 0)
	s.show("a", "u1", "10", "")
	if got := s.Staleness(); got != 0 || len(seen) != 1 {
		t.Errorf("the informer is %v behind after the event, with events %q, want no further one", got, seen)
	}
	s.show("b", "u2", "11", "")
	s.expect("both are shown", true, 1)
}

func TestNobodyWaitsLongerThanTheLimit(t *testing.T) {
	s := newScene(t)
	s.show("a", "u1", "1", "")
	s.WroteVersion(key, s.informer, "10")
	s.Deleted(key, s.informer, s.parse("a", "u1", "1", ""))
	s.expect("just written", false, 0)
	s.clock.Step(expectations.Limit - time.Second)
	s.expect("before the limit", false, 0)
	s.clock.Step(time.Second)
	s.expect("after the limit", true, 1)
	s.Deleted(key, s.informer, s.parse("a", "u1", "1", ""))
	s.expect("a further attempt counts anew", false, 0)
	s.show("a", "u1", "10", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`)
	s.expect("the further attempt is shown", true, 1)
}

func TestAWriteWhileAParentWaitsIsWaitedForAsLongAsAnyOther(t *testing.T) {
	s := newScene(t)
	s.WroteVersion(key, s.informer, "10")
	s.expect("just written", false, 0)
	s.clock.Step(time.Second)
	s.WroteVersion(key, s.informer, "12")
	s.clock.Step(expectations.Limit - time.Second)
	s.expect("the limit of the first write", false, 0)
	s.clock.Step(time.Second)
	s.expect("the limit of the second", true, 1)
}

func TestStalenessIsTheAgeOfTheOldestWriteThatIsNotShown(t *testing.T) {
	s := newScene(t)
	expect := func(reason string, want time.Duration) {
		t.Helper()
		if got := s.Staleness(); got != want {
			t.Errorf("%s: staleness %s, want %s", reason, got, want)
		}
	}
	expect("nothing was written", 0)
	s.WroteVersion(key, s.informer, "10")
	s.clock.Step(time.Second)
	s.WroteVersion(other, s.informer, "12")
	s.clock.Step(time.Second)
	expect("the first write is the older one", 2*time.Second)
	s.show("a", "u1", "10", "")
	expect("the second is left", time.Second)
	s.clock.Step(expectations.Limit)
	s.Satisfied(other)
	expect("a write older than the limit says nothing: its informer may not come back", 0)
	s.WroteVersion(other, s.informer, "13")
	s.clock.Step(time.Second)
	expect("a newer one counts", time.Second)
	s.show("a", "u1", "13", "")
	expect("all are shown", 0)
}

func TestWhatIsNotObservedIsNotExpected(t *testing.T) {
	s := newScene(t)
	s.WroteVersion(key, s.informer, "10")
	s.expect("just written", false, 0)
	s.cancel()
	s.cancel()
	s.expect("the informer is not observed any more", true, 1)
	s.WroteVersion(key, s.informer, "11")
	s.expect("not observed", true, 0)
}

// A parent that is gone is not asked for any more. One that comes back before waits.
func TestWhatNobodyAsksForEnds(t *testing.T) {
	for name, end := range map[string]func(*scene){
		"Shown":         func(s *scene) { s.show("a", "u1", "10", "") },
		"AfterTheLimit": func(s *scene) { s.clock.Step(expectations.Limit) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.WroteVersion(key, s.informer, "10")
			if left := s.Pending(); left != 1 {
				t.Errorf("%d parents are expecting, want 1", left)
			}
			end(s)
			if left := s.Pending(); left != 0 || len(s.released) > 0 {
				t.Errorf("%d parents are expecting, and %d were released, for which nobody waited", left, len(s.released))
			}
		})
	}
}

func TestClosedExpectationsReleaseNothing(t *testing.T) {
	s := newScene(t)
	s.WroteVersion(key, s.informer, "10")
	s.expect("just written", false, 0)
	s.Close()
	s.clock.Step(time.Hour)
	s.show("a", "u1", "10", "")
	s.expect("closed", true, 0)
}

// TestAControllerWaitsForItsOwnWritesOnly is about two controllers with one parent.
func TestAControllerWaitsForItsOwnWritesOnly(t *testing.T) {
	s := newScene(t)
	var registry expectations.Registry
	released := 0
	second := registry.New("second", func(parent.Key) { released++ }, s.clock)
	defer second.Close()
	defer second.Observe(s.informer)()
	s.WroteVersion(key, s.informer, "7")
	s.expect("the first controller waits", false, 0)
	if !second.Satisfied(key) {
		t.Error("the second controller waits for a write of the first")
	}
	second.WroteVersion(key, s.informer, "8")
	if second.Satisfied(key) {
		t.Error("the second controller does not wait for its own write")
	}
	s.show("x", "u", "7", "")
	s.expect("the write of the first is shown", true, 1)
	if second.Satisfied(key) || released != 0 {
		t.Error("what the first wrote has an effect on the second")
	}
	s.show("x", "u", "8", "")
	if !second.Satisfied(key) || released != 1 {
		t.Errorf("the second was released %d times, want 1", released)
	}
}

// TestAWriteShownBeforeItIsNotedIsNotExpected goes the whole way: the watch may be faster than the answer to the write.
func TestAWriteShownBeforeItIsNotedIsNotExpected(t *testing.T) {
	_, c := run(t)
	informer := c.Acquire(pods)
	defer informer.Release()
	released := make(chan struct{}, 1)
	e := expectations.New(func(parent.Key) { released <- struct{}{} }, nil)
	defer e.Close()
	defer e.Observe(informer)()
	e.WroteVersion(key, informer, "5")
	if !e.Satisfied(key) {
		<-released
	}
	if !e.Satisfied(key) {
		t.Error("not satisfied after the informer showed the write")
	}
}

func TestAwaitFormerReturnsWhenNothingIsExpected(t *testing.T) {
	for name, c := range map[string]struct {
		written string
		// then is what happens while AwaitFormer waits.
		then func(*scene)
	}{
		"nothing was written":         {"", func(*scene) {}},
		"everything is shown":         {"12", func(s *scene) { s.show("a", "u1", "12", "") }},
		"the limit passes":            {"12", func(s *scene) { s.clock.Step(expectations.Limit) }},
		"the expectations are closed": {"12", (*scene).Close},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if c.written != "" {
				s.WroteVersion(key, s.informer, c.written)
				s.WroteVersion(other, s.informer, c.written)
			}
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				if !s.AwaitFormer(t.Context()) {
					t.Error("the context has not ended")
				}
			}()
			if c.written != "" {
				// Both parents have a timer once AwaitFormer waits.
				for !s.clock.HasWaiters() {
					runtime.Gosched()
				}
				// The second of them is set when AwaitFormer has given back what guards the parents. The clock must not be stepped before.
				if n := s.Pending(); n != 2 {
					t.Fatalf("%d parents are expecting, want 2", n)
				}
				select {
				case <-returned:
					t.Fatal("AwaitFormer returned although the write is not shown")
				default:
				}
			}
			c.then(s)
			<-returned
			if left := s.Pending(); left != 0 {
				t.Errorf("%d parents are expecting", left)
			}
		})
	}
}

// brokenClock panics, in place of an unknown bug, once broken is set.
type brokenClock struct {
	*clocktesting.FakeClock

	broken bool
}

func (c *brokenClock) Now() time.Time {
	if c.broken {
		panic("the time")
	}
	return c.FakeClock.Now()
}

func (c *brokenClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return brokenTimer{c.FakeClock.AfterFunc(d, f), c}
}

type brokenTimer struct {
	clock.Timer

	clock *brokenClock
}

func (t brokenTimer) Stop() bool {
	if t.clock.broken {
		panic("the timer")
	}
	return t.Timer.Stop()
}

// TestAPanicLeavesNothingLocked has the callers recover, as the informers and the workers do.
func TestAPanicLeavesNothingLocked(t *testing.T) {
	for name, act := range map[string]func(s *scene){
		"Progress":  func(s *scene) { _ = s.informer.Bookmark("20") },
		"Unobserve": func(s *scene) { s.cancel() },
		"Staleness": func(s *scene) { s.Staleness() },
		"Close":     func(s *scene) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			broken := &brokenClock{FakeClock: s.clock}
			s.Expectations = expectations.New(func(parent.Key) {}, broken)
			s.cancel = s.Observe(s.informer)
			s.WroteVersion(key, s.informer, "12")
			if s.ready() {
				t.Fatal("the parent does not wait")
			}
			broken.broken = true
			func() {
				defer func() { _ = recover() }()
				act(s)
			}()
			broken.broken = false
			unlocked := make(chan struct{})
			go func() {
				defer close(unlocked)
				s.Pending()
			}()
			select {
			case <-unlocked:
			case <-time.After(10 * time.Second):
				t.Fatal("the expectations are locked for good")
			}
		})
	}
}

// TestTheLaterOfTwoObservationsCounts ends the earlier one afterwards, as a set does that gives an informer back while it takes it again.
func TestTheLaterOfTwoObservationsCounts(t *testing.T) {
	s := newScene(t)
	defer s.Observe(s.informer)()
	s.cancel()
	s.WroteVersion(key, s.informer, "12")
	s.expect("the write is not shown", false, 0)
	if err := s.informer.Bookmark("12"); err != nil {
		t.Fatal(err)
	}
	s.expect("the write is shown", true, 1)
}
