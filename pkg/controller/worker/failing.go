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

package worker

import (
	"container/list"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// maxErrors is how many errors of failing parents are kept.
const maxErrors = 10

// Failed is a parent whose last sync failed.
type Failed struct {
	// Key is the parent.
	Key parent.Key
	// Time is when the sync ended.
	Time time.Time
	// Err is its error.
	Err error
}

// failing are the parents whose last sync failed, and the latest of their errors. It is safe for concurrent use; the zero value is ready.
type failing struct {
	mu sync.Mutex
	// keys are the places of the parents in order, which begins with the one that has failed for the longest time.
	keys  map[parent.Key]*list.Element
	order list.List
	// told are those of which an error was told since the last sync that succeeded, be it that the last sync had to wait since then.
	told map[parent.Key]struct{}
	// conflicts is how many syncs in a row ended with a conflict and no failure. Syncs that had to wait do not count.
	conflicts map[parent.Key]int
	// errors has the latest one last, and one for each parent at most.
	errors []Failed
}

func (f *failing) add(failed Failed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys, f.told = map[parent.Key]*list.Element{}, map[parent.Key]struct{}{}
	}
	f.told[failed.Key] = struct{}{}
	if at, again := f.keys[failed.Key]; again {
		at.Value = failed
	} else {
		f.keys[failed.Key] = f.order.PushBack(failed)
	}
	f.drop(failed.Key)
	if len(f.errors) == maxErrors {
		f.errors = slices.Delete(f.errors, 0, 1)
	}
	f.errors = append(f.errors, failed)
}

// remove takes note that the last sync of the parent did not fail.
func (f *failing) remove(key parent.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := f.keys[key]; ok {
		f.order.Remove(at)
		delete(f.keys, key)
		f.drop(key)
	}
}

// recovered takes note that the last sync of the parent succeeded, or that the parent is gone. It reports whether an error was told before.
func (f *failing) recovered(key parent.Key) bool {
	f.remove(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, told := f.told[key]
	delete(f.told, key)
	delete(f.conflicts, key)
	return told
}

// conflicted takes note of how a sync ended that did not succeed.
func (f *failing) conflicted(key parent.Key, by *failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case by.result == metrics.Failed:
		delete(f.conflicts, key)
	case by.passing == string(metav1.StatusReasonConflict):
		if f.conflicts == nil {
			f.conflicts = map[parent.Key]int{}
		}
		f.conflicts[key]++
	}
}

// Conflicts returns how many syncs of a parent in a row, up to the last one, ended with a conflict and no failure. The changes of the parent that
// cause them do not end the row.
func (p *Pool) Conflicts(key parent.Key) int {
	p.failing.mu.Lock()
	defer p.failing.mu.Unlock()
	return p.failing.conflicts[key]
}

// Remembered returns how many elements there are of what is known of parents beside the queue.
func (p *Pool) Remembered() int {
	p.failing.mu.Lock()
	defer p.failing.mu.Unlock()
	return len(p.failing.keys) + len(p.failing.told) + len(p.failing.conflicts)
}

// drop is called with the lock held.
func (f *failing) drop(key parent.Key) {
	f.errors = slices.DeleteFunc(f.errors, func(e Failed) bool { return e.Key == key })
}

// Failing returns how many parents there are whose last sync failed.
func (p *Pool) Failing() int {
	p.failing.mu.Lock()
	defer p.failing.mu.Unlock()
	return len(p.failing.keys)
}

// LongestFailing returns the parent whose syncs have failed for the longest time, with the error of its last one; the zero value if there is none.
// It stays the same until that parent is synced again or leaves. Parents that are excused are left out and counted. The function must not call the
// pool.
func (p *Pool) LongestFailing(excused func(Failed) bool) (first Failed, others int) {
	p.failing.mu.Lock()
	defer p.failing.mu.Unlock()
	for at := p.failing.order.Front(); at != nil; at = at.Next() {
		switch failed, ok := at.Value.(Failed); {
		case !ok:
		case excused(failed):
			others++
		case first.Err == nil:
			first = failed
		}
	}
	return first, others
}

// Errors returns the latest errors of parents whose last sync failed: at most 10, the latest first, one for each parent.
func (p *Pool) Errors() []Failed {
	p.failing.mu.Lock()
	defer p.failing.mu.Unlock()
	latest := slices.Clone(p.failing.errors)
	slices.Reverse(latest)
	return latest
}

// Pending returns how many keys wait to be synced now, or are being synced.
func (p *Pool) Pending() int { return p.queue.Pending() }
