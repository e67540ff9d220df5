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

package apply

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

const recreate = "; to have the child deleted and created anew, set updateStrategy.method of its kind to Recreate, or RollingRecreate for a " +
	"rolling update; to keep it, return the present value"

func TestInvalidChildrenAreToldByFieldAndReason(t *testing.T) {
	for _, test := range []struct {
		why    string
		action plan.Action
		secret bool
		causes []metav1.StatusCause
		want   string
	}{
		{
			"a struct is not repeated, and another method would work", plan.Update, false,
			[]metav1.StatusCause{{
				Field:   "spec.selector",
				Message: `Invalid value: v1.LabelSelector{MatchLabels:map[string]string{"app":"a: b}"}, MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: field is immutable`,
			}},
			"spec.selector: field is immutable" + recreate,
		},
		{
			"a value in JSON is not repeated", plan.Update, false,
			[]metav1.StatusCause{{Field: "spec.selector", Message: `Invalid value: {"matchLabels":{"app":"a"}}: field is immutable`}},
			"spec.selector: field is immutable" + recreate,
		},
		{
			"further lines are not repeated", plan.Update, false,
			[]metav1.StatusCause{{Field: "spec", Message: "Forbidden: pod updates may not change fields other than `spec.containers[*].image`\n  core.PodSpec{\n+ A: 1"}},
			"spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`" + recreate,
		},
		{
			"a creation cannot meet an immutable field", plan.Create, false,
			[]metav1.StatusCause{{Field: "spec.a", Message: "Forbidden: field is immutable"}},
			"spec.a: Forbidden: field is immutable",
		},
		{
			"a short value helps", plan.Create, false,
			[]metav1.StatusCause{{Field: "spec.replicas", Message: "Invalid value: -1: must be greater than or equal to 0"}},
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0",
		},
		{
			"a value of a Secret is not repeated", plan.Create, true,
			[]metav1.StatusCause{{Field: "data[a b]", Message: `Invalid value: "a b": no spaces`}},
			"data[a b]: no spaces",
		},
		{
			"a colon in a text does not end it", plan.Create, false,
			[]metav1.StatusCause{{Field: "f", Message: `Invalid value: "a\": b": not good`}},
			`f: Invalid value: "a\": b": not good`,
		},
		{
			"of many fields the first are named", plan.Create, false,
			[]metav1.StatusCause{{Field: "a", Message: "x"}, {Field: "b", Message: "x"}, {Field: "c", Message: "x"}, {Field: "d", Message: "x"}},
			"a: x; b: x; c: x; and more",
		},
		{"a message without a field is kept", plan.Create, false, []metav1.StatusCause{{Message: "no"}}, "no"},
	} {
		t.Run(test.why, func(t *testing.T) {
			refused := &apierrors.StatusError{ErrStatus: metav1.Status{
				Reason: metav1.StatusReasonInvalid, Message: "pages of text", Details: &metav1.StatusDetails{Causes: test.causes},
			}}
			step := &plan.Step{Action: test.action}
			if test.secret {
				step.Kind = "Secret"
			}
			err := (&Applier{}).invalid(refused, step)
			if err.Error() != test.want {
				t.Errorf("error\n%s, want\n%s", err, test.want)
			}
			if !apierrors.IsInvalid(err) {
				t.Error("it is not known any more that the API server refused the child as invalid")
			}
		})
	}
	other := errors.New("another one")
	if err := (&Applier{}).invalid(other, &plan.Step{Action: plan.Update}); !errors.Is(err, other) || err.Error() != other.Error() {
		t.Errorf("another error became %v", err)
	}
}

// TestAnnotationsThatAreTooLongAreToldWithTheRecordAmongThem is about admission that adds more than is left.
func TestAnnotationsThatAreTooLongAreToldWithTheRecordAmongThem(t *testing.T) {
	refused := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
		Type: "FieldValueTooLong", Field: "metadata.annotations", Message: "Too long: may not be more than 262144 bytes",
	}}}}}
	for manager, want := range map[string]bool{"": true, "metacontroller/x": false} {
		err := (&Applier{}).invalid(refused, &plan.Step{Action: plan.Create, Manager: manager})
		if got := strings.Contains(err.Error(), "last-applied-configuration") && strings.Contains(err.Error(), "ServerSide"); got != want {
			t.Errorf("of a child by %q: %v", manager, err)
		}
	}
}
