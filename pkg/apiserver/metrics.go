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
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

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
