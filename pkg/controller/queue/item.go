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
	"container/list"
	"context"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// item is all that the queue knows about one key. It exists as long as there is something to know.
type item struct {
	key        parent.Key
	prev, next *item

	// retryAt is when the key is added unless it is added before: back-off and pauses.
	retryAt time.Duration
	// resyncAt is when the key is added at resyncPriority in any case: AddAfter.
	resyncAt time.Duration
	// addedAt is when the key was queued, or was to be queued again. takenAt is when a worker got it.
	addedAt, takenAt time.Duration
	// triggers are why the key is to be synced; nil if that is not known.
	triggers *history.Set
	// last is the error of the last sync, unless it succeeded.
	last *failure
	// failing is its place among the items whose last sync failed; nil for others.
	failing *list.Element
	// stopWaiting ends the wait for what a sync had to wait for; nil if there was none since the last one that succeeded.
	stopWaiting context.CancelFunc
	// cut ends the context of the sync that is under way; nil if there is none.
	cut context.CancelCauseFunc
	// delayed is the position in the heap of due times.
	delayed int
	// failures is how many syncs in a row failed or had to wait, conflicts how many ended with a conflict and no failure: what had to wait
	// between them does not count, nor does a change of the parent.
	failures, conflicts uint32

	resyncPriority Priority
	// queued is the list that the item is in; none when it is in no list.
	queued Priority
	// again is the priority of adds while a worker has the key; none without such adds.
	again Priority
	// held is the most urgent priority at which a worker got the key and has not begun to sync it; none without such.
	held       Priority
	processing bool
	// removed says that the key was forgotten while a worker has it: what the worker asks for at the end does not count.
	removed bool
	// backsOff says that retryAt is a back-off, not a pause that a hook asked for.
	backsOff bool
	// reported says that an error was since the last sync that succeeded, be it that the last one had to wait.
	reported bool
}

// idle tells that the item carries no information and can go.
func (i *item) idle() bool {
	return i.queued == none && i.held == none && i.delayed == notDelayed && !i.processing && i.last == nil
}
