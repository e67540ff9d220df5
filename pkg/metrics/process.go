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
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Verb is what a write does to a child.
type Verb string

// The verbs of writes of children.
const (
	Create Verb = "create"
	Update Verb = "update"
	Apply  Verb = "apply"
	Delete Verb = "delete"
	// Trial is a dry run, which changes nothing: if it is accepted, its outcome is Unchanged.
	Trial Verb = "trial"
)

// Outcome is how a write of a child ended.
type Outcome string

// The outcomes of writes of children.
const (
	// Written is a write that the API server accepted.
	Written Outcome = "written"
	// Unchanged is a write that the API server accepted and that changed nothing.
	Unchanged Outcome = "unchanged"
	// Conflicted is a write that the API server refused because the object is another one, has another version or is gone, or
	// because another field manager owns a field.
	Conflicted Outcome = "conflict"
	// Rejected is a write that the API server refused for any other reason.
	Rejected Outcome = "rejected"
	// Unanswered is a write without a response of the API server.
	Unanswered Outcome = "error"
)

// Drop is why an event was not recorded.
type Drop string

// The reasons why events are dropped.
const (
	// OverBudget is a Normal event above the budget of the process.
	OverBudget Drop = "budget"
	// TooMany is an event above the limit for events of its kind about one object.
	TooMany Drop = "limit"
	// QueueFull is an event that found too many others waiting.
	QueueFull Drop = "queue"
	// NotWritten is an event that the API server did not accept.
	NotWritten Drop = "write"
)

// process are the series that belong to no controller.
type process struct {
	writes, drops *prometheus.CounterVec
	// engines counts those that run: one, or none.
	engines prometheus.Gauge
	// unregistered is 1 while the cluster has no registration of this server, which should have one.
	unregistered prometheus.Gauge
	// hidden counts the CustomResourceDefinitions in whose place this server is registered.
	hidden prometheus.Gauge

	mu sync.Mutex
	// caches are those exposed, by an identifier of their own.
	caches map[*CacheSource]struct{}
	// requests and responses are the states of the budgets of hooks.
	requests, responses func() (used, limit int64)
	// certificate is when the serving certificate ends.
	certificate func() (end time.Time, ok bool)
}

// CacheSource calls yield for every kind that a cache holds, with the number of objects and the size of their JSON. It must
// not block. A resource, such as deployments.apps, may be yielded more than once: its numbers are added up.
type CacheSource func(yield func(resource string, objects int, bytes int64))

var global = newProcess()

func newProcess() *process {
	p := &process{
		writes: childWrites.counterVec(), drops: eventsDropped.counterVec(), engines: engineRunning.gauge(),
		unregistered: registrationMissing.gauge(), hidden: hiddenDefinitions.gauge(), caches: map[*CacheSource]struct{}{},
	}
	// All series are shown from the start.
	for _, verb := range childWrites.Values["verb"] {
		for _, outcome := range childWrites.Values["outcome"] {
			p.writes.WithLabelValues(verb, outcome)
		}
	}
	for _, reason := range eventsDropped.Values["reason"] {
		p.drops.WithLabelValues(reason)
	}
	return p
}

// ChildWrite counts a request that writes a child. It is safe for concurrent use.
func ChildWrite(v Verb, o Outcome) { global.writes.WithLabelValues(string(v), string(o)).Inc() }

// EventDropped counts an event that was not recorded. It is safe for concurrent use.
func EventDropped(d Drop) { global.drops.WithLabelValues(string(d)).Inc() }

// ExposeCache shows the objects and bytes of a cache until withdraw is called.
func ExposeCache(source CacheSource) (withdraw func()) {
	Register()
	global.mu.Lock()
	defer global.mu.Unlock()
	global.caches[&source] = struct{}{}
	return func() {
		global.mu.Lock()
		defer global.mu.Unlock()
		delete(global.caches, &source)
	}
}

// EngineRuns takes note that this process runs controllers, until ended is called.
func EngineRuns() (ended func()) {
	Register()
	global.engines.Inc()
	return global.engines.Dec
}

// RegistrationMissing takes note whether the cluster lacks the registration that this server is to have. Without a call it does not. The last
// call counts.
func RegistrationMissing(missing bool) {
	value := 0.
	if missing {
		value = 1
	}
	global.unregistered.Set(value)
}

// HiddenDefinitions takes note how many CustomResourceDefinitions the cluster has in whose place this server is registered. Without a call there
// are none. The last call counts.
func HiddenDefinitions(n int) { global.hidden.Set(float64(n)) }

// ObserveRequestBudget has the bytes of requests to hooks that are sent, and how many may be, taken from state at every scrape.
// It must not block. The last call counts.
func ObserveRequestBudget(state func() (used, limit int64)) {
	global.take(func() { global.requests = state })
}

// ObserveResponseBudget has the bytes of hook responses that are held, and how many may be, taken from state at every scrape.
// It must not block. The last call counts.
func ObserveResponseBudget(state func() (used, limit int64)) {
	global.take(func() { global.responses = state })
}

// ObserveServingCertificate has the end of the serving certificate taken from end at every scrape, if there is one. It must not block.
// The last call counts.
func ObserveServingCertificate(end func() (end time.Time, ok bool)) {
	Register()
	global.take(func() { global.certificate = end })
}

// take changes what is called at every scrape.
func (p *process) take(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *process) collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{p.writes, p.drops, p.engines, p.unregistered, p.hidden} {
		c.Collect(ch)
	}
	ch <- prometheus.MustNewConstMetric(panics.desc, prometheus.CounterValue, float64(recovery.Count()))
	p.mu.Lock()
	requests, responses, certificate := p.requests, p.responses, p.certificate
	sources := slices.Collect(maps.Keys(p.caches))
	p.mu.Unlock()
	if requests != nil {
		used, limit := requests()
		ch <- requestBytes.constant(float64(used))
		ch <- requestLimit.constant(float64(limit))
	}
	if responses != nil {
		used, limit := responses()
		ch <- responseBytes.constant(float64(used))
		ch <- responseLimit.constant(float64(limit))
	}
	if certificate != nil {
		if end, ok := certificate(); ok {
			ch <- servingCertificateEnd.constant(float64(end.UnixMilli()) / 1000)
		}
	}
	objects, sizes := map[string]int{}, map[string]int64{}
	for _, source := range sources {
		(*source)(func(resource string, n int, bytes int64) {
			objects[resource] += n
			sizes[resource] += bytes
		})
	}
	for resource, n := range objects {
		ch <- cacheObjects.constant(float64(n), resource)
		ch <- cacheBytes.constant(float64(sizes[resource]), resource)
	}
}
