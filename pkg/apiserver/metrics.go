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

package apiserver

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const metricsPath = "/metrics"

// serveProcessMetrics replaces /metrics by a handler that gathers the default Prometheus registry too.
func serveProcessMetrics(s *genericapiserver.GenericAPIServer) {
	mux := s.Handler.NonGoRestfulMux
	if !slices.Contains(mux.ListedPaths(), metricsPath) {
		return // switched off
	}
	mux.Unregister(metricsPath)
	both := gatherers{legacyregistry.DefaultGatherer, prometheus.DefaultGatherer}
	mux.Handle(metricsPath, promhttp.HandlerFor(both, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
}

// gatherers gathers from all; of metrics with the same name, those of the first count. Both registries describe the process
// and the Go runtime.
type gatherers []prometheus.Gatherer

// Gather returns the metrics sorted by name.
func (g gatherers) Gather() ([]*dto.MetricFamily, error) {
	families := map[string]*dto.MetricFamily{}
	var failed error
	for _, gatherer := range g {
		found, err := gatherer.Gather()
		if err != nil && failed == nil {
			failed = err
		}
		for _, family := range found {
			if _, known := families[family.GetName()]; !known {
				families[family.GetName()] = family
			}
		}
	}
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int {
		return strings.Compare(a.GetName(), b.GetName())
	}), failed
}

var disabledParts = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name:           "metacontroller_apiserver_disabled_part",
	Help:           "1 for each admission plugin, and API priority and fairness, that is off because the cluster does not serve or forbids what it needs.",
	StabilityLevel: metrics.ALPHA,
}, []string{"part"})

var registerDisabledParts = sync.OnceFunc(func() { legacyregistry.MustRegister(disabledParts) })

// ReportDisabled shows a part in the metrics as switched off.
func ReportDisabled(part string) {
	registerDisabledParts()
	disabledParts.WithLabelValues(part).Set(1)
}
