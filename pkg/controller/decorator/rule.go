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

package decorator

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// selector selects targets (docs/reference/contract.md#s17.1). Both parts must match.
type selector struct {
	labels, annotations labels.Selector
}

// newSelector compiles the selectors of a rule. Those that are absent select everything.
func newSelector(r *v1alpha1.DecoratorControllerResourceRule) (selector, error) {
	s := selector{labels: labels.Everything(), annotations: labels.Everything()}
	var err error
	if r.LabelSelector != nil {
		if s.labels, err = metav1.LabelSelectorAsSelector(r.LabelSelector); err != nil {
			return s, fmt.Errorf("labelSelector: %w", err)
		}
	}
	if r.AnnotationSelector != nil {
		s.annotations, err = metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchLabels: r.AnnotationSelector.MatchAnnotations, MatchExpressions: r.AnnotationSelector.MatchExpressions,
		})
		if err != nil {
			return s, fmt.Errorf("annotationSelector: %w", err)
		}
	}
	return s, nil
}

// matches reports whether o is selected.
func (s selector) matches(o *object.Object) bool {
	if !s.labels.Matches(o.LabelSet()) {
		return false
	}
	return s.annotations.Empty() || s.annotations.Matches(labels.Set(o.Annotations()))
}
