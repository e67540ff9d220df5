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

package history

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// perParent are the values of the metric of what is remembered that have at most one element for each parent.
var perParent = []string{"parents", "customize_responses", "own_writes"}

// remembers checks that controllers remember nothing of parents that are gone, by the metrics of the engine.
func (r *runner) remembers() bool {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		r.violated(invariant.NothingRemembered, "the metrics cannot be read: %v", err)
		return false
	}
	for _, family := range families {
		if family.GetName() != "metacontroller_remembered" {
			continue
		}
		for _, m := range family.GetMetric() {
			if !r.remembersNoMore(m) {
				return false
			}
		}
	}
	return true
}

func (r *runner) remembersNoMore(m *dto.Metric) bool {
	labels := map[string]string{}
	for _, pair := range m.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	_, name, _ := strings.Cut(labels["controller"], "-")
	for _, what := range perParent {
		if limit := r.tracker.Parents(name); labels["what"] == what && m.GetGauge().GetValue() > float64(limit) {
			r.violated(invariant.NothingRemembered, "%s", fmt.Sprintf("%s remembers %v %s, and has %d parents",
				name, m.GetGauge().GetValue(), what, limit))
			return false
		}
	}
	return true
}
