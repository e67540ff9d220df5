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

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

func TestANewObjectSaysThatNoServerHasLookedAtIt(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	meta := metav1.ObjectMeta{Name: "c", CreationTimestamp: now, Generation: 7}
	restored := v1alpha1.ControllerStatus{ObservedGeneration: 7, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}}
	composite := &metacontroller.CompositeController{ObjectMeta: meta}
	composite.Status.ControllerStatus = restored
	decorator := &metacontroller.DecoratorController{ObjectMeta: meta}
	for name, tc := range map[string]struct {
		create func() (generation int64, _ v1alpha1.ControllerStatus)
	}{
		"a CompositeController that comes with a status": {func() (int64, v1alpha1.ControllerStatus) {
			Composites().Strategy(runtime.NewScheme()).PrepareForCreate(t.Context(), composite)
			return composite.Generation, composite.Status.ControllerStatus
		}},
		"a DecoratorController": {func() (int64, v1alpha1.ControllerStatus) {
			Decorators().Strategy(runtime.NewScheme()).PrepareForCreate(t.Context(), decorator)
			return decorator.Generation, decorator.Status.ControllerStatus
		}},
	} {
		t.Run(name, func(t *testing.T) {
			generation, status := tc.create()
			if generation != 1 || len(status.Conditions) != 1 || status.Conditions[0].Message == "" {
				t.Fatalf("generation %d has the status %+v", generation, status)
			}
			status.Conditions[0].Message = ""
			want := v1alpha1.ControllerStatus{Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, LastTransitionTime: now,
			}}}
			if diff := cmp.Diff(want, status); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
