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

package webhook

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

const (
	labelURL            = "url"
	labelControllerName = "controller_name"
	labelControllerType = "controller_type"
	labelCode           = "code"
	labelMethod         = "method"
	labelEvent          = "event"
)

// vectors are the metrics of one kind of hook, under the names of contract §19.2.
type vectors struct {
	requests *metrics.CounterVec
	duration *metrics.HistogramVec
	dns      *metrics.HistogramVec
	tls      *metrics.HistogramVec
	inFlight *metrics.GaugeVec

	mu sync.Mutex
	// series by their fixed labels. Clients with the same labels, such as those of a controller's old and new definition,
	// share them; they are deleted with the last client.
	series map[seriesKey]*series
}

type seriesKey struct{ url, controllerName, controllerType string }

// hookMetrics are registered when the first client is made.
var hookMetrics = struct {
	register sync.Once
	byHook   map[hook.Name]*vectors
}{
	byHook: map[hook.Name]*vectors{
		hook.Sync:      newVectors(hook.Sync),
		hook.Finalize:  newVectors(hook.Finalize),
		hook.Customize: newVectors(hook.Customize),
	},
}

func newVectors(name hook.Name) *vectors {
	const namespace = "metacontroller"
	subsystem := string(name)
	fixed := func(more ...string) []string {
		return append([]string{labelURL, labelControllerName, labelControllerType}, more...)
	}
	histogram := func(metric, help, label string, buckets []float64) *metrics.HistogramVec {
		return metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: metric, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
		}, fixed(label))
	}
	return &vectors{
		requests: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total", StabilityLevel: metrics.ALPHA,
			Help: "Requests to the " + subsystem + " hook that got an answer, by status code and method.",
		}, fixed(labelCode, labelMethod)),
		duration: histogram("request_duration_histogram_seconds",
			"Time from sending a request to the "+subsystem+" hook to the headers of its answer.", labelMethod, metrics.DefBuckets),
		dns: histogram("dns_duration_histogram_seconds",
			"Time from the start of a call of the "+subsystem+" hook to the events dns_start and dns_done.", labelEvent,
			[]float64{.005, .01, .025, .05}),
		tls: histogram("tls_duration_histogram_seconds",
			"Time from the start of a call of the "+subsystem+" hook to the events tls_handshake_start and tls_handshake_done.", labelEvent,
			[]float64{.05, .1, .25, .5}),
		inFlight: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "in_flight_requests", StabilityLevel: metrics.ALPHA,
			Help: "Requests to the " + subsystem + " hook that wait for an answer.",
		}, fixed()),
		series: map[seriesKey]*series{},
	}
}

// RegisterMetrics registers the metrics of all hooks, once. [New] does it too; a server that documents its metrics calls it
// earlier.
func RegisterMetrics() {
	hookMetrics.register.Do(func() {
		for _, v := range hookMetrics.byHook {
			legacyregistry.MustRegister(v.requests, v.duration, v.dns, v.tls, v.inFlight)
		}
	})
}

// series are the time series of one set of fixed labels. Safe for concurrent use.
type series struct {
	vectors *vectors
	key     seriesKey

	mu sync.Mutex
	// clients that use the series. At 0 they are gone for good, and late observations are dropped.
	clients int
	// made are the label sets of each vector that were used, to be deleted in the end.
	made map[deleter]map[labels]struct{}
}

// deleter is a vector of any type.
type deleter interface {
	Delete(labels map[string]string) bool
}

// labels are the values of the labels that are not fixed.
type labels struct{ code, method, event string }

// acquire returns the series of key, and counts a client of it.
func (v *vectors) acquire(key seriesKey) *series {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.series[key]
	if !ok {
		s = &series{vectors: v, key: key, made: map[deleter]map[labels]struct{}{}}
		v.series[key] = s
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return s
}

// release ends the use of the series by one client.
func (s *series) release() {
	s.vectors.mu.Lock()
	defer s.vectors.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients--
	if s.clients > 0 {
		return
	}
	delete(s.vectors.series, s.key)
	for vector, sets := range s.made {
		for set := range sets {
			vector.Delete(s.label(set))
		}
	}
	s.made = nil
}

func (s *series) label(set labels) map[string]string {
	all := map[string]string{labelURL: s.key.url, labelControllerName: s.key.controllerName, labelControllerType: s.key.controllerType}
	for label, value := range map[string]string{labelCode: set.code, labelMethod: set.method, labelEvent: set.event} {
		if value != "" {
			all[label] = value
		}
	}
	return all
}

// with calls observe with all labels of a set, unless the series are gone.
func (s *series) with(vector deleter, set labels, observe func(labels map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == 0 {
		return
	}
	if s.made[vector] == nil {
		s.made[vector] = map[labels]struct{}{}
	}
	s.made[vector][set] = struct{}{}
	observe(s.label(set))
}

// started counts a request in flight, until finished.
func (s *series) started() {
	s.with(s.vectors.inFlight, labels{}, func(l map[string]string) { s.vectors.inFlight.With(l).Inc() })
}

func (s *series) finished() {
	s.with(s.vectors.inFlight, labels{}, func(l map[string]string) { s.vectors.inFlight.With(l).Dec() })
}

// answered counts a request that got an answer.
func (s *series) answered(code int, method string, took time.Duration) {
	method = strings.ToLower(method)
	s.with(s.vectors.requests, labels{code: strconv.Itoa(code), method: method}, func(l map[string]string) { s.vectors.requests.With(l).Inc() })
	s.with(s.vectors.duration, labels{method: method}, func(l map[string]string) { s.vectors.duration.With(l).Observe(took.Seconds()) })
}

// dnsEvent and tlsEvent record the time from the start of a call to an event of it.
func (s *series) dnsEvent(event string, after time.Duration) {
	s.with(s.vectors.dns, labels{event: event}, func(l map[string]string) { s.vectors.dns.With(l).Observe(after.Seconds()) })
}

func (s *series) tlsEvent(event string, after time.Duration) {
	s.with(s.vectors.tls, labels{event: event}, func(l map[string]string) { s.vectors.tls.With(l).Observe(after.Seconds()) })
}
