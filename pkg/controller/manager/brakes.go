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

package manager

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// brakes returns the conditions about what the definition keeps the controller from. They are of interest once they held.
func (s state) brakes() []metav1.Condition { return []metav1.Condition{s.pausing(), s.holding()} }

// holding returns the condition DeletionsHeld.
func (s state) holding() metav1.Condition {
	if s.Held == "" {
		return condition(v1alpha1.ConditionDeletionsHeld, metav1.ConditionFalse, v1alpha1.ReasonNoneHeld, "No deletion is held.")
	}
	return condition(v1alpha1.ConditionDeletionsHeld, metav1.ConditionTrue, v1alpha1.ReasonLimitPassed, s.Held)
}

// pausing returns the condition Paused.
func (s state) pausing() metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionPaused, status, reason, message)
	}
	switch {
	case !s.Paused:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNotPaused, "spec.paused is not true.")
	case s.UnderWay > 0:
		return is(metav1.ConditionFalse, v1alpha1.ReasonPausing, fmt.Sprintf("spec.paused is true. Ending what is under way: %d left.", s.UnderWay))
	}
	return is(metav1.ConditionTrue, v1alpha1.ReasonPaused, s.pause())
}

// pause says what a pause is, and how it ends.
func (s state) pause() string {
	return fmt.Sprintf("spec.paused is true: no hook is called, and nothing is written to parents, children and revisions. Changes are noted, "+
		"and synced when it is false again: kubectl patch %s --type=merge -p '{\"spec\":{\"paused\":false}}'", s.Object)
}
