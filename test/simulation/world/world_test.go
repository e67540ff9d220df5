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

//go:debug randseednop=0

package world_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

func TestControllersReconcile(t *testing.T) {
	for name, definition := range both {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, world.Options{Trace: true})
				defer s.close()
				s.Start()
				s.create(own+name, definition)
				s.createThing("a", 2, "x")
				s.createThing("b", 2, "x")
				s.settle()
				s.expect(map[string]string{"a": "x", "b": "x"}, 2)

				s.editThing("a", 3, "y")
				s.editThing("b", 3, "z")
				s.settle()
				s.expect(map[string]string{"a": "y", "b": "z"}, 3)

				s.deleteThing("a")
				s.settle()
				s.expect(map[string]string{"b": "z"}, 3)
				if left := s.list(things); len(left) != 1 {
					s.failf("the things left are %v", left)
				}
			})
		})
	}
}

func TestKilledEngineIsReplaced(t *testing.T) {
	for name, definition := range both {
		for _, steps := range []int{5, 40, 60, 80, 100, 120, 150, 200} {
			t.Run(fmt.Sprintf("%s/%d", name, steps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := begin(t, world.Options{Trace: true, Seed: uint64(steps)})
					defer s.close()
					first := s.Start()
					s.create(own+name, definition)
					s.createThing("a", 2, "x")
					s.steps(steps)
					s.Kill(first)
					s.editThing("a", 3, "y")
					second := s.Start()
					s.settle()
					s.expect(map[string]string{"a": "y"}, 3)

					written := len(s.API.Journal())
					s.Kill(second)
					s.Start()
					s.settle()
					for _, w := range s.API.Journal()[written:] {
						if w.Resource == "things" || w.Resource == "configmaps" {
							s.failf("a new engine makes the write %s of %s %s", w.Verb, w.Resource, w.Name)
						}
					}
				})
			})
		}
	}
}

// TestWritesOfAKilledEngineArriveLate has what the first engine wrote last arrive when the second one has come to rest.
func TestWritesOfAKilledEngineArriveLate(t *testing.T) {
	for _, steps := range []int{40, 60, 80, 90, 100, 110, 120, 130} {
		synctest.Test(t, func(t *testing.T) {
			s := begin(t, world.Options{Trace: true, Seed: uint64(steps)})
			defer s.close()
			first := s.Start()
			s.create(own+"compositecontrollers", composite)
			s.createThing("a", 2, "x")
			s.steps(steps)
			for range 500 {
				if slices.ContainsFunc(s.Pending(), world.Pending.Writes) {
					break
				}
				s.steps(1)
			}
			s.KillLate(first)
			arrived := 0
			s.editThing("a", 3, "y")
			s.Start()
			for range 200 {
				if ready := slices.DeleteFunc(s.Pending(), func(p world.Pending) bool { return p.Abandoned }); len(ready) > 0 {
					s.Release(ready[0], world.Fault{})
				} else {
					s.Advance(100 * time.Millisecond)
				}
			}
			for _, p := range s.Pending() {
				if p.Abandoned {
					if p.Engine != first || p.Verb == "watch" || p.Verb == "list" || !s.Release(p, world.Fault{}) {
						s.failf("%s is abandoned", p)
					}
					arrived++
				}
			}
			if arrived == 0 {
				s.failf("%d steps: the engine was not killed while a write of it was under way", steps)
			}
			s.settle()
			s.expect(map[string]string{"a": "y"}, 3)
		})
	}
}

func TestEngineStopsGracefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, world.Options{Trace: true})
		defer s.close()
		first := s.Start()
		s.create(own+"compositecontrollers", composite)
		s.createThing("a", 2, "x")
		s.steps(60)
		if err := s.Stop(first); err != nil {
			s.failf("stopping: %v", err)
		}
		if p := s.Pending(); len(p) != 0 || len(s.Running()) != 0 {
			s.failf("after the engine has ended, these are pending: %v; and run: %v", p, s.Running())
		}
	})
}

func TestTwoEnginesAtOnceConverge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, world.Options{Trace: true})
		defer s.close()
		s.Start()
		s.Start()
		s.create(own+"compositecontrollers", composite)
		s.createThing("a", 2, "x")
		s.settle()
		s.editThing("a", 3, "y")
		s.settle()
		s.expect(map[string]string{"a": "y"}, 3)
	})
}

// TestFaultsConverge has each fault often, while things are created, edited and deleted, and none at the end.
func TestFaultsConverge(t *testing.T) {
	for fault, faults := range map[string]world.Faults{
		"none": {}, "refuse": {Refuse: .3}, "lose": {Lose: .3}, "hang": {Hang: .1}, "late": {Late: .2}, "delay": {Delay: .3}, "break": {Break: .3},
		"expire": {Expire: .3}, "hold": {Hold: .3}, "burst": {Burst: .5}, "pass": {Pass: .3},
		"all": {Refuse: .02, Lose: .02, Hang: .01, Late: .02, Delay: .02, Break: .02, Expire: .02, Hold: .05, Burst: .1, Pass: .02},
	} {
		for name, definition := range both {
			t.Run(fault+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := begin(t, world.Options{Trace: true, Seed: 1, Faults: faults})
					defer s.close()
					s.Start()
					s.create(own+name, definition)
					s.history()
					s.settle()
					s.expect(map[string]string{"a": "y", "c": "z"}, 2)
					if left := slices.Sorted(maps.Keys(s.list(things))); !slices.Equal(left, []string{"a", "c"}) {
						s.failf("the things left are %v", left)
					}
				})
			})
		}
	}
}

// TestReleasedFaultsConverge has each kind of fault at the first opportunity after a change.
func TestReleasedFaultsConverge(t *testing.T) {
	for kind, faults := range map[world.Kind][]world.FaultKind{
		world.Request: {
			world.TooManyRequests, world.InternalError, world.Unavailable, world.Disconnect, world.Lose, world.Fail, world.Hang, world.Late, world.Delay, world.Conflict,
		},
		world.Response:     {world.Lose, world.Hang, world.Delay},
		world.Event:        {world.Break, world.Expire, world.Burst},
		world.Call:         {world.TooManyRequests, world.InternalError, world.Unavailable, world.Disconnect, world.Lose, world.Hang, world.Late},
		world.CallResponse: {world.Lose, world.Hang, world.Delay},
	} {
		for _, fault := range faults {
			t.Run(kind.String()+"/"+world.Fault{Kind: fault}.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := begin(t, world.Options{Trace: true})
					defer s.close()
					s.Start()
					s.create(own+"compositecontrollers", composite)
					s.createThing("a", 2, "x")
					s.settle()
					s.editThing("a", 3, "y")
					if !s.releaseFirst(kind, world.Fault{Kind: fault, Duration: time.Minute, Events: 2}) {
						s.failf("no %s has been pending", kind)
					}
					s.settle()
					s.expect(map[string]string{"a": "y"}, 3)
				})
			})
		}
	}
}

// TestSameSeedSameTrace compares two runs of one seed. All are equal with the runtime of hack/repeatable-runtime, and most without it.
func TestSameSeedSameTrace(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run := func(seed uint64) (hash uint64, trace []world.Entry) {
		synctest.Test(t, func(t *testing.T) {
			s := begin(t, world.Options{Trace: true, Seed: seed, Faults: some})
			defer s.close()
			s.Start()
			s.create(own+"compositecontrollers", composite)
			s.create(own+"decoratorcontrollers", otherDecorator)
			s.history()
			s.settle()
			hash, trace = s.TraceHash(), s.Trace()
		})
		return hash, trace
	}
	same, distinct := 0, map[uint64]bool{}
	const seeds = 20
	for seed := range uint64(seeds) {
		first, trace := run(seed)
		distinct[first] = true
		var second uint64
		var other []world.Entry
		for range 4 { // Go's own runtime preempts goroutines anywhere, on a busy machine more often.
			if second, other = run(seed); first == second {
				break
			}
		}
		if first == second {
			same++
			continue
		}
		for i := range min(len(trace), len(other)) {
			if trace[i] != other[i] {
				t.Logf("seed %d: entry %d of %d is %v, then %v", seed, i, len(trace), trace[i], other[i])
				break
			}
		}
	}
	t.Logf("%d of %d seeds have the same trace again", same, seeds)
	if len(distinct) < seeds {
		t.Errorf("%d seeds have %d different traces", seeds, len(distinct))
	}
	if want := expectedRepeats(t, seeds); same < want {
		t.Errorf("%d of %d seeds have the same trace again, want %d", same, seeds, want)
	}
}

// expectedRepeats returns how many of n seeds must have the same trace twice.
func expectedRepeats(t *testing.T, n int) int {
	t.Helper()
	if world.Repeatable(t) {
		return n
	}
	return n / 2
}

// TestManyWorldsInOneProcess would fail if something of a bubble stayed, or if one used what belongs to another.
func TestManyWorldsInOneProcess(t *testing.T) {
	const worlds = 200
	for seed := range uint64(worlds) {
		synctest.Test(t, func(t *testing.T) {
			s := begin(t, world.Options{Seed: seed, Faults: some})
			defer s.close()
			s.Start()
			s.create(own+"compositecontrollers", composite)
			s.createThing("a", 2, "x")
			s.steps(100)
		})
	}
}

// The engine slows down a parent whose responses differ each time, so that the cluster rests in between.
func TestARestlessHookIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := 0
		s := begin(t, world.Options{Requests: 1000, Hook: func(world.HookCall) world.HookResponse {
			text++
			return world.HookResponse{Body: fmt.Appendf(nil, `{"status":{"n":%d},"children":[]}`, text)}
		}})
		defer s.close()
		s.Start()
		s.create(own+"compositecontrollers", composite)
		s.createThing("a", 2, "x")
		if err := s.Settle(patience); err != nil {
			t.Error(err)
		}
		if text < 2 || text > 100 {
			t.Errorf("the hook was called %d times", text)
		}
	})
}

func TestRequestsOfUsersAreServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, world.Options{Trace: true})
		defer s.close()
		s.createThing("a", 1, "x")
		if r := s.do(http.MethodGet, things+"/a", "", ""); r.Code != http.StatusOK {
			t.Errorf("get: %d %s", r.Code, r.Body)
		}
		if trace := s.Trace(); len(trace) != 3 || trace[2].Actor != someone {
			t.Errorf("the trace is %v", trace)
		}
	})
}
