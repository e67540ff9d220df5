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
	// clients that use the series. At 0 they are gone for good, and late observations are dropped. The lock of the vectors guards it.
	clients int
}

// acquire returns the series of key, and counts a client of it.
func (v *vectors) acquire(key seriesKey) *series {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.series[key]
	if !ok {
		s = &series{vectors: v, key: key}
		v.series[key] = s
	}
	s.clients++
	return s
}

// release ends the use of the series by one client.
func (s *series) release() {
	v := s.vectors
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.clients--; s.clients > 0 {
		return
	}
	delete(v.series, s.key)
	fixed := prometheus.Labels{
		metrics.LabelURL: s.key.url, metrics.LabelControllerName: s.key.controllerName, metrics.LabelControllerType: s.key.controllerType,
	}
	for _, vector := range []interface{ DeletePartialMatch(prometheus.Labels) int }{v.Requests, v.Duration, v.DNS, v.TLS, v.InFlight} {
		vector.DeletePartialMatch(fixed)
	}
}

// observe does something with the series, unless they are gone.
func (s *series) observe(do func()) {
	s.vectors.mu.Lock()
	defer s.vectors.mu.Unlock()
	if s.clients > 0 {
		do()
	}
}

// labels returns the values of the fixed labels, and more.
func (s *series) labels(more ...string) []string {
	return append([]string{s.key.url, s.key.controllerName, s.key.controllerType}, more...)
}

// inFlight counts requests that wait for a response.
func (s *series) inFlight(change float64) {
	s.observe(func() { s.vectors.InFlight.WithLabelValues(s.labels()...).Add(change) })
}

// returned counts a request that got a response.
func (s *series) returned(code int, method string, took time.Duration) {
	s.observe(func() {
		method = strings.ToLower(method)
		s.vectors.Requests.WithLabelValues(s.labels(strconv.Itoa(code), method)...).Inc()
		s.vectors.Duration.WithLabelValues(s.labels(method)...).Observe(took.Seconds())
	})
}

// dnsEvent and tlsEvent record the time from the start of a call to an event of it.
func (s *series) dnsEvent(event string, after time.Duration) {
	s.observe(func() { s.vectors.DNS.WithLabelValues(s.labels(event)...).Observe(after.Seconds()) })
}

func (s *series) tlsEvent(event string, after time.Duration) {
	s.observe(func() { s.vectors.TLS.WithLabelValues(s.labels(event)...).Observe(after.Seconds()) })
}
