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

// Result says how a sync ended, for metacontroller_syncs_total.
type Result int

const (
	// Succeeded is a sync without an error.
	Succeeded Result = iota
	// Failed is a sync whose error was reported and is retried with back-off.
	Failed
	// Waiting is a sync that could not be done yet: a cache is not filled or shows an older state than the API server has.
	Waiting
	// Postponed is a sync whose hook responded that it is to be called later.
	Postponed

	results = iota
)

// String returns the value of the label result.
func (r Result) String() string {
	return [results]string{"success", "error", "waiting", "postponed"}[r]
}

// A Controller holds the series of one controller. Its methods are safe for concurrent use and may be called on nil,
// which counts nothing.
type Controller struct {
	name     string
	queue    Queue
	syncs    [results]prometheus.Counter
	duration prometheus.Histogram
	errors   map[string]prometheus.Counter

	mu           sync.Mutex
	parents      func() int
	expectations func() int
	remembered   func() Remembered
}

// Remembered is what a controller remembers between syncs, each as the number of its elements.
type Remembered struct {
	// Parents have records of Children.
	Parents, Children int
	// CustomizeResponses and EtagResponses are responses of hooks that are used again.
	CustomizeResponses, EtagResponses int
	// OwnWrites are writes of parents whose responses and events were not both seen.
	OwnWrites int
	// SyncedParents are parents whose recent syncs are recorded.
	SyncedParents int
	// DeferredStatuses are statuses of parents that wait to be written.
	DeferredStatuses int
	// Settling are parents of which it is known whether they settle, Deletions children whose deletion counts for the guard, and Obstacles parents
	// whose children have names that other objects have.
	Settling, Deletions, Obstacles int
	// Told are parents that were told something that is told once, and Failing those whose last syncs failed or ended with a conflict.
	Told, Failing int
	// Finalizing are parents that wait for the finalize hook.
	Finalizing int
	// Rights are those that were reviewed, needed or refused.
	Rights int
	// Selectors are parents whose selectors are known, and Revisions the revisions of which it is not known whether they were written.
	Selectors, Revisions int
}

// NewController returns the series of a controller, which [Controller.Expose] shows. The kind is
// CompositeController or DecoratorController; the label of the series is <kind>-<name>.
func NewController(kind, name string) *Controller {
	c := &Controller{name: kind + "-" + name, errors: map[string]prometheus.Counter{}}
	c.queue = newQueue(c.name)
	for r := range Result(results) {
		c.syncs[r] = syncs.counter(c.name, r.String())
	}
	c.duration = syncDuration.histogram(c.name)
	for _, reason := range Reasons() {
		c.errors[reason] = syncErrors.counter(c.name, reason)
	}
	return c
}

// Queue returns the series of the controller's workqueue; nil for a nil controller.
func (c *Controller) Queue() *Queue {
	if c == nil {
		return nil
	}
	return &c.queue
}

// Synced counts a sync that took a time and ended with a result.
func (c *Controller) Synced(r Result, took time.Duration) {
	if c == nil {
		return
	}
	c.syncs[r].Inc()
	c.duration.Observe(took.Seconds())
}

// SyncError counts an error that a sync reported. A reason that is none of [Reasons] counts as [ReasonOther].
func (c *Controller) SyncError(reason string) {
	if c == nil {
		return
	}
	counter, ok := c.errors[reason]
	if !ok {
		counter = c.errors[ReasonOther]
	}
	counter.Inc()
}

// CountParents has the number of parents taken from count at every scrape. It must not block.
func (c *Controller) CountParents(count func() int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parents = count
}

// CountExpectations has the number of parents held back by expectations taken from count at every scrape. It must not block.
func (c *Controller) CountExpectations(count func() int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expectations = count
}

// CountRemembered has what the controller remembers taken from count at every scrape. It must not block.
func (c *Controller) CountRemembered(count func() Remembered) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remembered = count
}

// Expose shows the series at /metrics until withdraw is called. Of two controllers with one name, the one that was exposed
// last is shown.
func (c *Controller) Expose() (withdraw func()) {
	if c == nil {
		return func() {}
	}
	exposed.add(c)
	return func() { exposed.remove(c) }
}

// collect sends all series.
func (c *Controller) collect(ch chan<- prometheus.Metric) {
	for _, counter := range c.syncs {
		ch <- counter
	}
	ch <- c.duration
	for _, counter := range c.errors {
		ch <- counter
	}
	c.mu.Lock()
	count, pending, held := c.parents, c.expectations, c.remembered
	c.mu.Unlock()
	// Before the queue: the event that meets an expectation adds a key to it.
	if pending != nil {
		ch <- expectationsPending.constant(float64(pending()), c.name)
	}
	if held != nil {
		c.collectRemembered(ch, held())
	}
	state := c.queue.collect(ch, c.name)
	if count != nil {
		c.collectParents(ch, count(), state)
	}
}

func (c *Controller) collectRemembered(ch chan<- prometheus.Metric, r Remembered) {
	for what, n := range map[string]int{
		"parents": r.Parents, "children": r.Children, "customize_responses": r.CustomizeResponses,
		"etag_responses": r.EtagResponses, "own_writes": r.OwnWrites, "synced_parents": r.SyncedParents,
		"deferred_statuses": r.DeferredStatuses, "settling": r.Settling, "deletions": r.Deletions, "obstacles": r.Obstacles, "told": r.Told,
		"failing": r.Failing, "finalizing": r.Finalizing, "rights": r.Rights, "selectors": r.Selectors, "revisions": r.Revisions,
	} {
		ch <- remembered.constant(float64(n), c.name, what)
	}
}

func (c *Controller) collectParents(ch chan<- prometheus.Metric, count int, state QueueState) {
	ready := max(0, count-state.Failing-state.Waiting-state.Postponed)
	for name, n := range map[string]int{
		"ready": ready, "failing": state.Failing, "waiting": state.Waiting, "postponed": state.Postponed,
	} {
		ch <- parents.constant(float64(n), c.name, name)
	}
}
