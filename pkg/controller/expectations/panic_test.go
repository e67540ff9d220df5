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
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

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
		"Forget":    func(s *scene) { s.Forget(key) },
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
