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

package queue

import (
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// maxErrors is how many errors of failing parents are shown.
const maxErrors = 10

// Look is how a queue is doing with one key. The zero value says that it knows nothing.
type Look struct {
	// Queued says that the key is to be synced now, Syncing that it is being synced, and Held that Ready has held it back.
	Queued, Syncing, Held bool
	// Next is when the key is synced if nothing happens before; zero for no such time.
	Next time.Time
	// Retries is how many syncs have failed in a row.
	Retries int
	// Err is the error of the last sync, nil if that succeeded. Waits says that nothing has failed: the sync has to wait, or a hook asked to
	// be called later.
	Err   error
	Waits bool
}

// Look returns how the queue is doing with a key.
func (q *Queue) Look(key parent.Key) Look {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.items[key]
	if !ok {
		return Look{}
	}
	look := Look{Queued: i.queued != none || i.again != none, Held: i.held != none && i.queued == none, Retries: int(i.failures)}
	look.Syncing = i.processing && !look.Held
	if due := i.due(); due != unset {
		look.Next = q.start.Add(due)
	}
	if i.last != nil {
		look.Err, look.Waits = i.last.err, i.last.result != metrics.Failed
	}
	return look
}

// Conflicts returns how many syncs of a parent in a row, up to the last one, ended with a conflict and no failure. The changes of the parent that
// cause them do not end the row.
func (q *Queue) Conflicts(key parent.Key) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.items[key]; ok {
		return int(i.conflicts)
	}
	return 0
}

// Failed is a parent whose last sync failed.
type Failed struct {
	// Key is the parent.
	Key parent.Key
	// Time is when the sync ended.
	Time time.Time
	// Err is its error.
	Err error
}

// Failing returns how many parents there are whose last sync failed.
func (q *Queue) Failing() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failing.Len()
}

// eachFailed visits the parents whose last sync failed. That which has failed for the longest time comes first. It is called with the lock held.
func (q *Queue) eachFailed(yield func(Failed) bool) {
	for at := q.failing.Front(); at != nil; at = at.Next() {
		if i, ok := at.Value.(*item); ok && !yield(Failed{i.key, i.last.at, i.last.err}) {
			return
		}
	}
}

// LongestFailing returns the parent whose syncs have failed for the longest time, with the error of its last one; the zero value if there is none.
// It stays the same until that parent is synced again or leaves. Parents that are excused are left out and counted. The function must not call the
// queue.
func (q *Queue) LongestFailing(excused func(Failed) bool) (first Failed, others int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for failed := range q.eachFailed {
		switch {
		case excused(failed):
			others++
		case first.Err == nil:
			first = failed
		}
	}
	return first, others
}

// Errors returns the latest errors of parents whose last sync failed: at most 10, the latest first, one for each parent.
func (q *Queue) Errors() (latest []Failed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for failed := range q.eachFailed {
		at, _ := slices.BinarySearchFunc(latest, failed, func(a, b Failed) int { return b.Time.Compare(a.Time) })
		if at < maxErrors {
			latest = slices.Insert(latest, at, failed)
			latest = latest[:min(len(latest), maxErrors)]
		}
	}
	return latest
}

// Pending returns how many keys wait to be synced now, or are being synced. Those that are delayed or held are not among them.
func (q *Queue) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.processing
	for p := range q.lists {
		n += q.lists[p].len
	}
	return n
}

// UnderWay returns the number of keys that are being synced. After Pause, no sync begins when it is zero.
func (q *Queue) UnderWay() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.processing
}

// Retrying returns how many parents are to be synced again because their last sync failed or was asked to come later. It looks at all of
// them.
func (q *Queue) Retrying() int {
	return q.count(func(i *item) bool { return i.last != nil && (i.last.result != metrics.Waiting || i.last.later) })
}

// Remembered returns of how many parents it is known that their last syncs failed or ended with a conflict. It looks at all of them.
func (q *Queue) Remembered() int {
	return q.count(func(i *item) bool { return i.reported || i.conflicts > 0 })
}

func (q *Queue) count(which func(*item) bool) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.items {
		count(&n, which(i))
	}
	return n
}

// state returns the state of the queue for its metrics. It takes time in proportion to the number of keys.
func (q *Queue) state() metrics.QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := metrics.QueueState{
		Live: q.lists[Live].len, Retry: q.lists[Retry].len, SelfTriggered: q.lists[SelfTriggered].len, Resync: q.lists[Resync].len,
		Processing: q.processing, Failing: q.failing.Len(),
	}
	now := q.now()
	for _, i := range q.items {
		count(&s.Waiting, i.last != nil && i.last.result == metrics.Waiting)
		count(&s.Postponed, i.last != nil && i.last.result == metrics.Postponed)
		if i.processing {
			took := now - i.takenAt
			s.Unfinished += took
			s.Longest = max(s.Longest, took)
		}
		count(&s.Again, i.again != none)
		count(&s.Held, i.held != none && i.queued == none && !i.processing)
		count(&s.Retrying, i.retryAt != unset)
		count(&s.Scheduled, i.resyncAt != unset)
	}
	return s
}

func count(n *int, it bool) {
	if it {
		*n++
	}
}
