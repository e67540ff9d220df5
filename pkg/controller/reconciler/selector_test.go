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

package reconciler

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

func TestBothSelectorsOfARuleMustMatch(t *testing.T) {
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"l": "1"}}
	annotations := &v1alpha1.AnnotationSelector{
		MatchAnnotations: map[string]string{"a": "1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	const plain, labeled, annotated, both, skipped = `{}`, `{"labels":{"l":"1"}}`, `{"annotations":{"a":"1"}}`,
		`{"labels":{"l":"1"},"annotations":{"a":"1"}}`, `{"labels":{"l":"1"},"annotations":{"a":"1","skip":""}}`
	cases := map[string]struct {
		reason string
		rule   v1alpha1.DecoratorControllerResourceRule
		want   map[string]bool
	}{
		"None": {
			reason: "A rule without selectors selects everything.",
			want:   map[string]bool{plain: true, both: true},
		},
		"Empty": {
			reason: "Empty selectors do too.",
			rule: v1alpha1.DecoratorControllerResourceRule{
				LabelSelector: &metav1.LabelSelector{}, AnnotationSelector: &v1alpha1.AnnotationSelector{},
			},
			want: map[string]bool{plain: true, both: true},
		},
		"Labels": {
			reason: "Labels alone decide without an annotation selector.",
			rule:   v1alpha1.DecoratorControllerResourceRule{LabelSelector: labels},
			want:   map[string]bool{plain: false, labeled: true, annotated: false, skipped: true},
		},
		"Both": {
			reason: "Both must match when both are given.",
			rule:   v1alpha1.DecoratorControllerResourceRule{LabelSelector: labels, AnnotationSelector: annotations},
			want:   map[string]bool{plain: false, labeled: false, annotated: false, both: true, skipped: false},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := newSelector(tc.rule.LabelSelector, tc.rule.AnnotationSelector)
			if err != nil {
				t.Fatalf("%s\nunexpected error: %v", tc.reason, err)
			}
			for metadata, want := range tc.want {
				o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":`+metadata+`}`), object.ParseOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got := s.selects(o); got != want {
					t.Errorf("%s\n%s matches: %v, want %v", tc.reason, metadata, got, want)
				}
			}
		})
	}
}

func TestASelectorThatCannotMatchIsRefused(t *testing.T) {
	bad := []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
	for name, rule := range map[string]v1alpha1.DecoratorControllerResourceRule{
		"Labels":      {LabelSelector: &metav1.LabelSelector{MatchExpressions: bad}},
		"Annotations": {AnnotationSelector: &v1alpha1.AnnotationSelector{MatchExpressions: bad}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newSelector(rule.LabelSelector, rule.AnnotationSelector); err == nil {
				t.Error("there is no error")
			}
		})
	}
}
