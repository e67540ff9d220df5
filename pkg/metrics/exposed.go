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

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

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
