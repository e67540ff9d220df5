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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
func (c *Controller) CountParents(count func() int) { c.take(func() { c.parents = count }) }

// CountExpectations has the number of parents held back by expectations taken from count at every scrape. It must not block.
func (c *Controller) CountExpectations(count func() int) { c.take(func() { c.expectations = count }) }

// CountRemembered has what the controller remembers taken from count at every scrape. It must not block.
func (c *Controller) CountRemembered(count func() Remembered) {
	c.take(func() { c.remembered = count })
}

// take changes what is called at every scrape.
func (c *Controller) take(change func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
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
		"settling": r.Settling, "deletions": r.Deletions, "obstacles": r.Obstacles, "told": r.Told,
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
	// Live, Retry, SelfTriggered and Resync are queued, by priority.
	Live, Retry, SelfTriggered, Resync int
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
	return s.Live + s.Retry + s.SelfTriggered + s.Resync + s.Again
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
		"live": s.Live, "retry": s.Retry, "self_triggered": s.SelfTriggered, "resync": s.Resync, "again": s.Again,
		"processing": s.Processing, "held": s.Held, "retrying": s.Retrying, "scheduled": s.Scheduled,
	} {
		ch <- queueKeys.constant(float64(n), controller, name)
	}
	return s
}

// ConditionTypes are the types of the conditions that the engine publishes: nobody changes them. Other clients may add others, which are not shown, so
// that labels are bounded.
var ConditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionStalled, v1alpha1.ConditionEstablished, v1alpha1.ConditionHooksHealthy,
	v1alpha1.ConditionPermitted, v1alpha1.ConditionProgressing, v1alpha1.ConditionResourcesServed, v1alpha1.ConditionFinalizersReleased,
	v1alpha1.ConditionPaused, v1alpha1.ConditionDeletionsHeld,
}

// A ConditionSource returns the conditions of a controller object, which are not changed afterwards. It must not block.
type ConditionSource func() []metav1.Condition

// conditionSources are the sources by the controller's label.
type conditionSources struct {
	mu      sync.Mutex
	sources map[string]*ConditionSource
}

// ExposeConditions shows the conditions of a controller object at /metrics until withdraw is called, whether an instance of it runs or
// not. The kind is CompositeController or DecoratorController. Of two sources with one kind and name the later one is shown. It is safe
// for concurrent use.
func ExposeConditions(kind, name string, source ConditionSource) (withdraw func()) {
	label, own := kind+"-"+name, &source
	exposed.conditions.mu.Lock()
	defer exposed.conditions.mu.Unlock()
	exposed.conditions.sources[label] = own
	return func() {
		exposed.conditions.mu.Lock()
		defer exposed.conditions.mu.Unlock()
		if exposed.conditions.sources[label] == own {
			delete(exposed.conditions.sources, label)
		}
	}
}

func (s *conditionSources) collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for controller, source := range s.sources {
		present := map[string]metav1.ConditionStatus{}
		for _, c := range (*source)() {
			present[c.Type] = c.Status
		}
		for _, condition := range ConditionTypes {
			now, ok := present[condition]
			if !ok {
				continue
			}
			for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
				value := 0.0
				if status == now {
					value = 1
				}
				ch <- controllerCondition.constant(value, controller, condition, string(status))
			}
		}
	}
}
