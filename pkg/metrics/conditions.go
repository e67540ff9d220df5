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
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// ConditionTypes are the types of the conditions that the engine publishes: nobody changes them. Other clients may add others, which are not shown, so
// that labels are bounded.
var ConditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionEstablished, v1alpha1.ConditionHooksHealthy, v1alpha1.ConditionPermitted,
	v1alpha1.ConditionProgressing, v1alpha1.ConditionResourcesServed, v1alpha1.ConditionFinalizersReleased, v1alpha1.ConditionPaused,
	v1alpha1.ConditionDeletionsHeld,
}

// A ConditionSource returns the conditions of a controller object, which are not changed afterwards. It must not block.
type ConditionSource func() []metav1.Condition

// conditionSources are the sources by the controller's label.
type conditionSources struct {
	mu      sync.Mutex
	sources map[string]*ConditionSource
}

// ExposeConditions shows the conditions of a controller object at /metrics until withdraw is called, whether an instance of it runs or
// not. The kind is CompositeController or DecoratorController. Of two sources with one kind and name the later one is shown. It is safe
// for concurrent use.
func ExposeConditions(kind, name string, source ConditionSource) (withdraw func()) {
	label, own := kind+"-"+name, &source
	exposed.conditions.mu.Lock()
	defer exposed.conditions.mu.Unlock()
	exposed.conditions.sources[label] = own
	return func() {
		exposed.conditions.mu.Lock()
		defer exposed.conditions.mu.Unlock()
		if exposed.conditions.sources[label] == own {
			delete(exposed.conditions.sources, label)
		}
	}
}

func (s *conditionSources) collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for controller, source := range s.sources {
		present := map[string]metav1.ConditionStatus{}
		for _, c := range (*source)() {
			present[c.Type] = c.Status
		}
		for _, condition := range ConditionTypes {
			now, ok := present[condition]
			if !ok {
				continue
			}
			for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
				value := 0.0
				if status == now {
					value = 1
				}
				ch <- controllerCondition.constant(value, controller, condition, string(status))
			}
		}
	}
}
