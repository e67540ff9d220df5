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
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// succession is a controller that wrote something, and the informers of the one that follows.
type succession struct {
	scene

	registry expectations.Registry
	// sibling shows the same objects as informer, in another version, and unrelated others.
	sibling, unrelated *cache.Informer
}

func newSuccession(t *testing.T) *succession {
	t.Helper()
	c, err := cache.New(cache.Options{Config: &rest.Config{Host: "example.invalid"}})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(version, resource string) *cache.Informer {
		return c.Acquire(cache.Query{Resource: schema.GroupVersionResource{Group: "example.com", Version: version, Resource: resource}})
	}
	s := &succession{
		scene:   scene{t: t, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), informer: acquire("v1", "gadgets")},
		sibling: acquire("v2", "gadgets"), unrelated: acquire("v1", "realms"),
	}
	for _, informer := range []*cache.Informer{s.informer, s.sibling, s.unrelated} {
		s.on(informer).show("a", "u1", "5", "")
	}
	s.Expectations = s.follow("c0", s.informer)
	return s
}

// on returns the scene with another informer.
func (s *succession) on(informer *cache.Informer) *scene {
	return &scene{t: s.t, clock: s.clock, informer: informer}
}

// follow returns the expectations of a controller that begins.
func (s *succession) follow(controller string, informers ...*cache.Informer) *expectations.Expectations {
	e := s.registry.New(controller, func(parent.Key) { s.t.Error("a parent was released for which nothing waits") }, s.clock)
	for _, informer := range informers {
		e.Observe(informer)
	}
	return e
}

func TestAControllerAwaitsTheWritesOfTheOneBeforeIt(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	written := func(s *succession) {
		s.WroteVersion(key, s.informer, "12")
		s.show("b", "u2", "12", "")
		s.Close()
	}
	deleted := func(s *succession) {
		s.Deleted(key, s.informer, s.parse("a", "u1", "5", ""))
		s.show("a", "u1", "14", deleting)
		s.Close()
	}
	gone := func(s *succession) {
		if err := s.informer.Replace(nil, "14"); err != nil {
			s.t.Fatal(err)
		}
	}
	relisted := func(s *succession) {
		s.Deleted(key, s.informer, s.parse("a", "u1", "5", ""))
		gone(s)
		s.Close()
	}
	shownFirst := func(s *succession) {
		s.show("a", "u1", "14", deleting)
		s.Deleted(key, s.informer, s.parse("a", "u1", "5", ""))
		s.Close()
	}
	goneFirst := func(s *succession) {
		gone(s)
		s.Deleted(key, s.informer, s.parse("a", "u1", "5", ""))
		s.Close()
	}
	releasedFirst := func(s *succession) {
		gone(s)
		s.Wrote(key, s.informer, s.parse("a", "u1", "13", deleting))
		s.Close()
	}
	// The events of these deletions have not come when the controller ends.
	unanswered := func(s *succession) {
		s.Deleted(key, s.informer, s.parse("a", "u1", "5", ""))
		s.Close()
	}
	answered := func(s *succession) {
		if err := s.informer.Replace([]any{s.parse("a", "u1", "5", "")}, "5"); err != nil {
			s.t.Fatal(err)
		}
		s.Gone(key, s.informer, s.parse("a", "u1", "5", ""))
		s.Close()
	}
	answeredAndShown := func(s *succession) {
		answered(s)
		s.Expectations = s.follow("c0", s.informer)
		if err := s.informer.Delete(s.parse("a", "u1", "14", "")); err != nil {
			s.t.Fatal(err)
		}
		s.Close()
	}
	shows := func(version string) func(*succession) {
		return func(s *succession) { s.on(s.sibling).show("z", "u9", version, "") }
	}
	deletes := func(s *succession) {
		if err := s.sibling.Delete(s.parse("a", "u1", "14", "")); err != nil {
			s.t.Fatal(err)
		}
	}
	limit := func(s *succession) { s.clock.Step(expectations.Limit) }
	for name, c := range map[string]struct {
		wrote func(*succession)
		// controller is the one that follows.
		controller string
		// early is shown before it waits, and does not end that; late ends it; nil: it does not wait.
		early, late func(*succession)
	}{
		"Written":                   {written, "c0", shows("11"), shows("12")},
		"Deleted":                   {deleted, "c0", shows("13"), shows("14")},
		"DeletedByAList":            {relisted, "c0", shows("13"), shows("14")},
		"ShownBeforeTheResponse":    {shownFirst, "c0", shows("13"), shows("14")},
		"GoneBeforeTheResponse":     {goneFirst, "c0", shows("13"), shows("14")},
		"ReleasedBeforeTheResponse": {releasedFirst, "c0", shows("13"), shows("14")},
		"ShownAlready":              {written, "c0", shows("12"), nil},
		"AnotherController":         {written, "c1", shows("11"), nil},
		"NothingWasWritten":         {func(s *succession) { s.Close() }, "c0", shows("6"), nil},
		"DeletionToBeShown":         {unanswered, "c0", shows("13"), deletes},
		"AnsweredDeletion":          {answered, "c0", shows("13"), deletes},
		"AnsweredAndMarked":         {answered, "c0", shows("13"), func(s *succession) { s.on(s.sibling).show("a", "u1", "14", deleting) }},
		"AnsweredAndReplaced":       {answered, "c0", shows("13"), func(s *succession) { s.on(s.sibling).show("a", "u2", "15", "") }},
		"AnsweredAndShownThere":     {answered, "c0", deletes, nil},
		"AnsweredAndShownSince":     {answeredAndShown, "c0", shows("13"), deletes},
		"AnsweredAndTheLimitPasses": {answered, "c0", shows("13"), limit},
		"AnsweredTooLongAgo":        {func(s *succession) { answered(s); limit(s) }, "c0", shows("13"), nil},
		"AnsweredToOneOfTwoBefore":  {func(s *succession) { answered(s); s.follow("c0", s.sibling).Close() }, "c0", shows("13"), deletes},
		"AnsweredToAnother":         {answered, "c1", shows("13"), nil},
		"TheLimitPasses":            {written, "c0", shows("11"), limit},
		"TheLimitHasPassed":         {func(s *succession) { written(s); s.clock.Step(expectations.Limit) }, "c0", shows("11"), nil},
		"OneThatNeverBegan":         {func(s *succession) { written(s); s.follow("c0", s.sibling).Close() }, "c0", shows("11"), shows("12")},
		"OneIsClosed":               {func(s *succession) { written(s); s.follow("c1", s.sibling).Close() }, "c0", shows("11"), shows("12")},
		"TheNextAfterItLate":        {func(s *succession) { written(s); s.clock.Step(expectations.Limit); s.follow("c1").Close() }, "c0", shows("11"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSuccession(t)
			c.wrote(s)
			c.early(s)
			next := s.follow(c.controller, s.sibling, s.unrelated)
			defer next.Close()
			returned := make(chan bool)
			go func() { returned <- next.AwaitFormer(t.Context()) }()
			if c.late != nil {
				// The clock calls back with its lock held, which whoever waits must not need any more.
				for next.Pending() == 0 {
					select {
					case <-returned:
						t.Fatal("it does not wait")
					default:
						runtime.Gosched()
					}
				}
				c.late(s)
			}
			if !<-returned {
				t.Error("the context has not ended")
			}
			if left := next.Pending(); left != 0 {
				t.Errorf("%d parents are expecting", left)
			}
		})
	}
}

func TestNobodyAwaitsAfterTheEnd(t *testing.T) {
	s := newSuccession(t)
	s.WroteVersion(key, s.informer, "12")
	s.Close()
	next := s.follow("c0", s.sibling)
	defer next.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if next.AwaitFormer(ctx) {
		t.Error("it waited, and the informer has not shown the write")
	}
}

// writers are the parents of several controllers of one process, which write objects because of others.
type writers struct {
	*scene

	registry expectations.Registry
	all      map[string]*expectations.Expectations
	version  int
}

func (w *writers) of(controller string) *expectations.Expectations {
	if w.all[controller] == nil {
		w.all[controller] = w.registry.New(controller, nil, nil)
	}
	return w.all[controller]
}

// write has a parent of a controller, both of that name, write an object because of others, and returns its version.
func (w *writers) write(name string, because ...uint64) uint64 {
	w.version++
	o := w.parse(name, "uid-"+name, fmt.Sprint(w.version), "")
	e := w.of(name)
	e.Because = func(parent.Key) []uint64 { return because }
	e.Wrote(parent.Key{Name: name}, w.informer, o)
	return history.Version(o)
}

func (w *writers) answers(name string, version uint64) bool {
	return w.of(name).Answers(parent.Key{Name: name}, version)
}

func TestWhichWritesAnswerThoseOfAParent(t *testing.T) {
	for name, test := range map[string]struct {
		play func(*writers) uint64
		want bool
	}{
		"another parent, because of this one": {func(w *writers) uint64 { return w.write("b", w.write("a")) }, true},
		"another parent, for reasons of its own": {func(w *writers) uint64 {
			w.write("a")
			return w.write("b")
		}, false},
		"another parent, because of a third one": {func(w *writers) uint64 { return w.write("b", w.write("c")) }, false},
		"by way of two others":                   {func(w *writers) uint64 { return w.write("c", w.write("b", w.write("a"))) }, true},
		"by way of three others":                 {func(w *writers) uint64 { return w.write("d", w.write("c", w.write("b", w.write("a")))) }, true},
		"one of several causes":                  {func(w *writers) uint64 { return w.write("b", w.write("c"), w.write("a")) }, true},
		"another client":                         {func(*writers) uint64 { return 12345 }, false},
		"a write whose response came after the answer": {func(w *writers) uint64 {
			o := w.parse("o", "uid-o", "100", "")
			answer := w.write("b", history.Version(o))
			w.of("a").Wrote(parent.Key{Name: "a"}, w.informer, o)
			return answer
		}, true},
		"too many writes ago": {func(w *writers) uint64 {
			version := w.write("b", w.write("a"))
			for range 5000 {
				w.write("c")
			}
			return version
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &writers{scene: newScene(t), all: map[string]*expectations.Expectations{}}
			if got := w.answers("a", test.play(w)); got != test.want {
				t.Errorf("it answers: %v", got)
			}
		})
	}
}

func TestAParentOfTheSameNameOfAnotherControllerIsNotAnswered(t *testing.T) {
	w := &writers{scene: newScene(t), all: map[string]*expectations.Expectations{}}
	version := w.write("b", w.write("a"))
	if w.of("c").Answers(parent.Key{Name: "a"}, version) {
		t.Error("it is taken for an answer")
	}
}
