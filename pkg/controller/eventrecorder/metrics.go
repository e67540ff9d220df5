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

package eventrecorder

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var registerOnce sync.Once

var dropped = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "metacontroller",
	Name:           "events_dropped_total",
	Help:           "Normal events that were not recorded because the process-wide budget was used up.",
	StabilityLevel: metrics.ALPHA,
})

// RegisterMetrics registers this package's metrics with the registry that /metrics serves. Only the first call has an
// effect.
func RegisterMetrics() {
	registerOnce.Do(func() { legacyregistry.MustRegister(dropped) })
}
