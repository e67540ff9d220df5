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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// vectors are the metrics of one kind of hook.
type vectors struct {
	metrics.HookVectors

	mu sync.Mutex
	// series by their fixed labels. Clients with the same labels, such as those of a controller's old and new definition,
	// share them; they are deleted with the last client.
	series map[seriesKey]*series
}

type seriesKey struct{ url, controllerName, controllerType string }

var hookMetrics = map[hook.Name]*vectors{
	hook.Sync: newVectors(hook.Sync), hook.Finalize: newVectors(hook.Finalize), hook.Customize: newVectors(hook.Customize),
}

func newVectors(name hook.Name) *vectors {
	return &vectors{HookVectors: metrics.Hook(string(name)), series: map[seriesKey]*series{}}
}

// series are the time series of one set of fixed labels. Safe for concurrent use.
type series struct {
	vectors *vectors
	key     seriesKey

	mu sync.Mutex
	// clients that use the series. At 0 they are gone for good, and late observations are dropped.
	clients int

	requests           used[prometheus.Counter]
	duration, dns, tls used[prometheus.Observer]
	inFlight           used[prometheus.Gauge]
}

// labels are the values of the labels that are not fixed. The method is as in a request.
type labels struct {
	code          string
	method, event string
}

// used are the metrics of a vector that were used. To find one in the vector costs much more than to observe something.
type used[M any] struct {
	vector vector[M]
	made   map[labels]M
}

// vector is one of any type.
type vector[M any] interface {
	With(labels prometheus.Labels) M
	Delete(labels prometheus.Labels) bool
}

func (u *used[M]) get(key seriesKey, set labels) M {
	m, ok := u.made[set]
	if !ok {
		m = u.vector.With(label(key, set))
		u.made[set] = m
	}
	return m
}

func (u *used[M]) delete(key seriesKey) {
	for set := range u.made {
		u.vector.Delete(label(key, set))
	}
}

func of[M any](v vector[M]) used[M] { return used[M]{vector: v, made: map[labels]M{}} }

// acquire returns the series of key, and counts a client of it.
func (v *vectors) acquire(key seriesKey) *series {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.series[key]
	if !ok {
		s = &series{
			vectors: v, key: key, requests: of[prometheus.Counter](v.Requests), duration: of[prometheus.Observer](v.Duration),
			dns: of[prometheus.Observer](v.DNS), tls: of[prometheus.Observer](v.TLS), inFlight: of[prometheus.Gauge](v.InFlight),
		}
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
	s.requests.delete(s.key)
	s.duration.delete(s.key)
	s.dns.delete(s.key)
	s.tls.delete(s.key)
	s.inFlight.delete(s.key)
}

func label(key seriesKey, set labels) prometheus.Labels {
	all := prometheus.Labels{
		metrics.LabelURL: key.url, metrics.LabelControllerName: key.controllerName, metrics.LabelControllerType: key.controllerType,
	}
	if set.code != "" {
		all[metrics.LabelCode] = set.code
	}
	if set.method != "" {
		all[metrics.LabelMethod] = strings.ToLower(set.method)
	}
	if set.event != "" {
		all[metrics.LabelEvent] = set.event
	}
	return all
}

// observe does something with the series, unless they are gone.
func (s *series) observe(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients > 0 {
		do()
	}
}

// started counts a request in flight, until finished.
func (s *series) started() { s.observe(func() { s.inFlight.get(s.key, labels{}).Inc() }) }

func (s *series) finished() { s.observe(func() { s.inFlight.get(s.key, labels{}).Dec() }) }

// returned counts a request that got a response.
func (s *series) returned(code int, method string, took time.Duration) {
	s.observe(func() {
		s.requests.get(s.key, labels{code: strconv.Itoa(code), method: method}).Inc()
		s.duration.get(s.key, labels{method: method}).Observe(took.Seconds())
	})
}

// dnsEvent and tlsEvent record the time from the start of a call to an event of it.
func (s *series) dnsEvent(event string, after time.Duration) {
	s.observe(func() { s.dns.get(s.key, labels{event: event}).Observe(after.Seconds()) })
}

func (s *series) tlsEvent(event string, after time.Duration) {
	s.observe(func() { s.tls.get(s.key, labels{event: event}).Observe(after.Seconds()) })
}
