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
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
	applyv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/applyconfiguration/metacontroller/v1alpha1"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
)

// fieldManager owns the status of controller objects.
const fieldManager = "metacontroller-apiserver"

// publisher writes the status of controller objects by server-side apply, which needs no read before and writes nothing
// when nothing changed.
type publisher struct {
	client typedv1alpha1.MetacontrollerV1alpha1Interface
}

// Publish implements supervisor.Publisher.
func (p publisher) Publish(ctx context.Context, d supervisor.Definition, status *v1alpha1.ControllerStatus) error {
	name, options := d.Meta().Name, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	var err error
	switch d.Kind() {
	case supervisor.KindDecorator:
		applied := applyv1alpha1.DecoratorControllerStatus()
		applied.ControllerStatusApplyConfiguration = *statusConfiguration(status)
		_, err = p.client.DecoratorControllers().ApplyStatus(ctx,
			applyv1alpha1.DecoratorController(name).WithUID(d.Meta().UID).WithStatus(applied), options)
	default:
		applied := applyv1alpha1.CompositeControllerStatus()
		applied.ControllerStatusApplyConfiguration = *statusConfiguration(status)
		_, err = p.client.CompositeControllers().ApplyStatus(ctx,
			applyv1alpha1.CompositeController(name).WithUID(d.Meta().UID).WithStatus(applied), options)
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", d.Kind(), name, err)
	}
	return nil
}

func statusConfiguration(status *v1alpha1.ControllerStatus) *applyv1alpha1.ControllerStatusApplyConfiguration {
	applied := applyv1alpha1.ControllerStatus().WithObservedGeneration(status.ObservedGeneration)
	for _, c := range status.Conditions {
		applied.WithConditions(metav1apply.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
			WithMessage(c.Message).WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	if n := status.Counters; n != nil {
		applied.WithCounters(applyv1alpha1.ControllerCounters().WithParents(n.Parents).WithSyncs(n.Syncs).
			WithFailedSyncs(n.FailedSyncs).WithRejectedAnswers(n.RejectedAnswers).WithConflicts(n.Conflicts).
			WithFlapping(n.Flapping))
	}
	return applied
}
