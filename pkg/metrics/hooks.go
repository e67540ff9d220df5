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
	"github.com/prometheus/client_golang/prometheus"
)

// Labels of the metrics of hooks.
const (
	LabelURL            = "url"
	LabelControllerName = "controller_name"
	LabelControllerType = "controller_type"
	LabelCode           = "code"
	LabelMethod         = "method"
	LabelEvent          = "event"
)

// HookVectors are the metrics of one kind of hook, under the names of docs/reference/contract.md#s19.2. Whoever makes a series
// deletes it.
type HookVectors struct {
	// Requests has the labels code and method, Duration method, DNS and TLS event, all of them url and those of the controller.
	Requests           *prometheus.CounterVec
	Duration, DNS, TLS *prometheus.HistogramVec
	InFlight           *prometheus.GaugeVec
}

// hookVectors are those of every kind of hook.
var hookVectors = map[string]HookVectors{
	"sync": declareHook("sync"), "finalize": declareHook("finalize"), "customize": declareHook("customize"),
}

// Hook returns the metrics of one kind of hook: sync, finalize or customize.
func Hook(name string) HookVectors { return hookVectors[name] }

func declareHook(hook string) HookVectors {
	declared := func(t Type, name, help string, buckets []float64, more ...string) *Family {
		return declare(Family{
			Name: "metacontroller_" + hook + "_" + name, Type: t, Help: help, Buckets: buckets,
			Labels: append([]string{LabelURL, LabelControllerName, LabelControllerType}, more...),
		})
	}
	return HookVectors{
		Requests: declared(Counter, "requests_total",
			"Requests to the "+hook+" hook that got a response, by status code and method.", nil, LabelCode, LabelMethod).counterVec(),
		Duration: declared(Histogram, "request_duration_histogram_seconds",
			"Time from sending a request to the "+hook+" hook to the headers of its response.", prometheus.DefBuckets, LabelMethod).histogramVec(),
		DNS: declared(Histogram, "dns_duration_histogram_seconds",
			"Time from the start of a call of the "+hook+" hook to the events dns_start and dns_done.",
			[]float64{.005, .01, .025, .05}, LabelEvent).histogramVec(),
		TLS: declared(Histogram, "tls_duration_histogram_seconds",
			"Time from the start of a call of the "+hook+" hook to the events tls_handshake_start and tls_handshake_done.",
			[]float64{.05, .1, .25, .5}, LabelEvent).histogramVec(),
		InFlight: declared(Gauge, "in_flight_requests",
			"Requests to the "+hook+" hook that wait for a response.", nil).gaugeVec(),
	}
}

func (v HookVectors) collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{v.Requests, v.Duration, v.DNS, v.TLS, v.InFlight} {
		c.Collect(ch)
	}
}
