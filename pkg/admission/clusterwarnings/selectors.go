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

package clusterwarnings

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// overlap reports whether an object may match both selectors. Nil selects everything. Those that cannot be read match nothing.
func overlap(a, b *metav1.LabelSelector) bool {
	first, ok := requirements(a)
	if !ok {
		return false
	}
	second, ok := requirements(b)
	if !ok {
		return false
	}
	for _, x := range first {
		if slices.ContainsFunc(second, func(y labels.Requirement) bool { return excludes(x, y) || excludes(y, x) }) {
			return false
		}
	}
	return true
}

func requirements(s *metav1.LabelSelector) (labels.Requirements, bool) {
	if s == nil {
		return nil, true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, false
	}
	list, selectable := selector.Requirements()
	return list, selectable
}

// excludes reports whether no value of their key satisfies both requirements; y is what x is compared with, not the reverse.
func excludes(x, y labels.Requirement) bool {
	if x.Key() != y.Key() {
		return false
	}
	switch x.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
	default:
		return x.Operator() == selection.Exists && y.Operator() == selection.DoesNotExist
	}
	values := sets.New(x.Values().UnsortedList()...)
	switch y.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return !values.HasAny(y.Values().UnsortedList()...)
	case selection.NotIn, selection.NotEquals:
		return values.Difference(sets.New(y.Values().UnsortedList()...)).Len() == 0
	case selection.DoesNotExist:
		return true
	default:
		return false
	}
}
