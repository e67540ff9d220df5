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

package world_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

// TestAPanicAtEveryRequest has the engine panic at one request or response after the other, while a parent is created, changed and deleted
// beside another one. In the short form some are left out.
func TestAPanicAtEveryRequest(t *testing.T) {
	figures := report.For(t, report.Panics)
	stride := report.Pick(7, 1)
	for name, definition := range both {
		for _, kinds := range [][]world.Kind{{world.Request, world.Call}, {world.Response, world.CallResponse}} {
			panics := 0
			for at, more := 0, true; more; at += stride {
				what := fmt.Sprintf("%s, %s %d", name, kinds[0], at)
				synctest.Test(t, func(t *testing.T) {
					s := bugged{scenario: begin(t, world.Options{Trace: true}), kinds: kinds, at: at}
					s.live(name, definition)
					more = s.seen > at
					if !more {
						return
					}
					panics++
					if found := s.Panics(); len(found) == 0 {
						s.failf("%s: nobody was told of the panic", what)
					} else if !strings.Contains(found[0].Text, world.Defect) {
						s.failf("%s: another panic: %v", what, found[0])
					}
				})
			}
			figures.Sayf("%s: a panic at %d different %ss and %ss, all of them told and tried again", name, panics, kinds[0], kinds[1])
		}
	}
}

// bugged is a scenario with one panic.
type bugged struct {
	scenario

	// kinds are where the engine may panic, at which of them it does, and seen how many there were.
	kinds    []world.Kind
	at, seen int
}

// live lets parents live and checks what is left.
func (s *bugged) live(name, definition string) {
	s.t.Helper()
	s.Start()
	s.create(own+name, definition)
	s.createThing("a", 2, "x")
	s.createThing("b", 2, "x")
	s.rest()
	s.editThing("a", 3, "y")
	s.rest()
	s.deleteThing("a")
	s.rest()
	s.settle()
	s.expect(map[string]string{"b": "x"}, 2)
	if left := s.list(things); len(left) != 1 {
		s.failf("the things left are %v", left)
	}
	// The error is about the panics, and about goroutines that have not ended.
	if err := s.Close(); err != nil && strings.Contains(err.Error(), "has not ended") {
		s.failf("%v", err)
	}
}

// rest releases all that comes within half a minute, and has the engine panic where it is to.
func (s *bugged) rest() {
	for {
		pending := s.Pending()
		if len(pending) == 0 {
			if !s.Idle(30 * time.Second) {
				return
			}
			continue
		}
		var fault world.Fault
		if pending[0].Kind == s.kinds[0] || pending[0].Kind == s.kinds[1] {
			if s.seen == s.at {
				fault.Kind = world.Panic
			}
			s.seen++
		}
		s.Release(pending[0], fault)
	}
}
