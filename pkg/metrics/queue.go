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

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue holds the series of one workqueue. Its methods are safe for concurrent use and may be called on nil, which counts
// nothing.
type Queue struct {
	adds, retries      prometheus.Counter
	queueing, handling prometheus.Histogram

	mu    sync.Mutex
	state func() QueueState
}

// QueueState is the state of a workqueue at one instant. Numbers are numbers of keys.
type QueueState struct {
	// Begun, Live, Retry, SelfTriggered and Resync are queued, by priority.
	Begun, Live, Retry, SelfTriggered, Resync int
	// Again are queued as soon as the worker that has them is done.
	Again int
	// Processing are with a worker.
	Processing int
	// Held wait for a release: their expectations are not met.
	Held int
	// Retrying wait for the end of a back-off or a pause. Scheduled wait for a time that was set after success.
	Retrying, Scheduled int
	// Failing, Waiting and Postponed are the keys whose last sync ended so.
	Failing, Waiting, Postponed int
	// Unfinished is the sum of the times since when keys are processed, Longest the largest of them.
	Unfinished, Longest time.Duration
}

// Depth is the number of keys that are to be processed as soon as a worker is free.
func (s QueueState) Depth() int {
	return s.Begun + s.Live + s.Retry + s.SelfTriggered + s.Resync + s.Again
}

func newQueue(name string) Queue {
	return Queue{
		adds: queueAdds.counter(name), retries: queueRetries.counter(name),
		queueing: queueDuration.histogram(name), handling: workDuration.histogram(name),
	}
}

// Added counts a key that was added to the queue and was not in it.
func (q *Queue) Added() {
	if q != nil {
		q.adds.Inc()
	}
}

// Retried counts a key that is to be processed again after a back-off or a pause.
func (q *Queue) Retried() {
	if q != nil {
		q.retries.Inc()
	}
}

// Started records how long a key was in the queue.
func (q *Queue) Started(queued time.Duration) {
	if q != nil {
		q.queueing.Observe(queued.Seconds())
	}
}

// Finished records how long a key was processed.
func (q *Queue) Finished(took time.Duration) {
	if q != nil {
		q.handling.Observe(took.Seconds())
	}
}

// Observe has the state of the queue taken from state at every scrape.
func (q *Queue) Observe(state func() QueueState) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state = state
}

func (q *Queue) collect(ch chan<- prometheus.Metric, controller string) QueueState {
	for _, m := range []prometheus.Metric{q.adds, q.retries, q.queueing, q.handling} {
		ch <- m
	}
	q.mu.Lock()
	take := q.state
	q.mu.Unlock()
	if take == nil {
		return QueueState{}
	}
	s := take()
	ch <- queueDepth.constant(float64(s.Depth()), controller)
	ch <- unfinishedWork.constant(s.Unfinished.Seconds(), controller)
	ch <- longestRunning.constant(s.Longest.Seconds(), controller)
	for name, n := range map[string]int{
		"begun": s.Begun, "live": s.Live, "retry": s.Retry, "self_triggered": s.SelfTriggered, "resync": s.Resync, "again": s.Again,
		"processing": s.Processing, "held": s.Held, "retrying": s.Retrying, "scheduled": s.Scheduled,
	} {
		ch <- queueKeys.constant(float64(n), controller, name)
	}
	return s
}
