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
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

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
