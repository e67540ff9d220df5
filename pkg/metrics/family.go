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
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Type is the type of a metric.
type Type string

// The types of metrics that there are here.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// A Family describes a metric and its labels.
type Family struct {
	// Name is the name as it is scraped.
	Name string
	Type Type
	// Help is one or more sentences. Families that client-go declares too have its very words: two texts are an error.
	Help string
	// Labels are the names of the labels, and Values what a label can have, for those with a fixed list.
	Labels []string
	Values map[string][]string
	// Buckets are the upper bounds of a histogram's buckets in seconds.
	Buckets []float64

	desc *prometheus.Desc
}

// families are all that are declared, in order of declaration.
var families []*Family

// declare is called for variables of this package alone.
func declare(f Family) *Family {
	f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	families = append(families, &f)
	return &f
}

// Families returns a description of every metric of the engine, by name.
func Families() []Family {
	var all []Family
	for _, f := range families {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (f *Family) labels(values []string) prometheus.Labels {
	set := prometheus.Labels{}
	for i, name := range f.Labels {
		set[name] = values[i]
	}
	return set
}

// counter returns a series, which is not registered.
func (f *Family) counter(values ...string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: f.Name, Help: f.Help, ConstLabels: f.labels(values)})
}

// histogram returns a series, which is not registered.
func (f *Family) histogram(values ...string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: f.Name, Help: f.Help, ConstLabels: f.labels(values), Buckets: f.Buckets,
	})
}

func (f *Family) counterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

func (f *Family) gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: f.Name, Help: f.Help})
}

func (f *Family) gaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

func (f *Family) histogramVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.Labels)
}

// constant returns a gauge with a value that was taken now.
func (f *Family) constant(value float64, values ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value, values...)
}

// registry is what is shown at /metrics. It is a collector without descriptors: the registry of the process lets such a one
// add to families that others declare too, as client-go's queues declare workqueue_depth.
type registry struct {
	once        sync.Once
	mu          sync.Mutex
	controllers map[string]*Controller
	conditions  conditionSources
}

var exposed = registry{controllers: map[string]*Controller{}, conditions: conditionSources{sources: map[string]*ConditionSource{}}}

// Register shows the metrics of the engine at /metrics. Only the first call has an effect.
func Register() {
	exposed.once.Do(func() { legacyregistry.Registerer().MustRegister(&exposed) })
}

// Collector returns what collects the metrics of the controllers that run, for a registry other than that of /metrics.
func Collector() prometheus.Collector { return &exposed }

func (r *registry) add(c *Controller) {
	Register()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.controllers[c.name] = c
}

func (r *registry) remove(c *Controller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.controllers[c.name] == c {
		delete(r.controllers, c.name)
	}
}

// Describe implements prometheus.Collector.
func (r *registry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *registry) Collect(ch chan<- prometheus.Metric) {
	global.collect(ch)
	r.conditions.collect(ch)
	for _, vectors := range hookVectors {
		vectors.collect(ch)
	}
	r.mu.Lock()
	controllers := slices.Collect(maps.Values(r.controllers))
	r.mu.Unlock()
	for _, c := range controllers {
		c.collect(ch)
	}
}
