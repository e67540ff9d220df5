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

package supervisor

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// Kinds of controller objects.
const (
	KindComposite = "CompositeController"
	KindDecorator = "DecoratorController"
)

// Definition is a controller object as the engine uses it. Exactly one of Composite and Decorator is set; both are
// read-only.
type Definition struct {
	Composite *v1alpha1.CompositeController
	Decorator *v1alpha1.DecoratorController
}

// Kind returns KindComposite or KindDecorator.
func (d Definition) Kind() string {
	if d.Decorator != nil {
		return KindDecorator
	}
	return KindComposite
}

// Meta returns the metadata of the controller object.
func (d Definition) Meta() *metav1.ObjectMeta {
	if d.Decorator != nil {
		return &d.Decorator.ObjectMeta
	}
	return &d.Composite.ObjectMeta
}

// Status returns the published status of the controller object.
func (d Definition) Status() *v1alpha1.ControllerStatus {
	if d.Decorator != nil {
		return &d.Decorator.Status.ControllerStatus
	}
	return &d.Composite.Status.ControllerStatus
}

// SameSpec reports whether an instance built from other is an instance of d too.
func (d Definition) SameSpec(other Definition) bool {
	if d.Meta().UID != other.Meta().UID {
		return false
	}
	if d.Decorator != nil {
		return other.Decorator != nil && equality.Semantic.DeepEqual(d.Decorator.Spec, other.Decorator.Spec)
	}
	return other.Composite != nil && equality.Semantic.DeepEqual(d.Composite.Spec, other.Composite.Spec)
}

// Reference returns a reference to the controller object, for events.
func (d Definition) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       d.Kind(),
		Name:       d.Meta().Name,
		UID:        d.Meta().UID,
	}
}

// Finalizes reports whether the definition has a finalize hook.
func (d Definition) Finalizes() bool {
	if d.Decorator != nil {
		return d.Decorator.Spec.Hooks != nil && d.Decorator.Spec.Hooks.Finalize != nil
	}
	return d.Composite.Spec.Hooks != nil && d.Composite.Spec.Hooks.Finalize != nil
}

// Finalizer returns the name of the finalizer that the controller puts on its parents.
func (d Definition) Finalizer() string {
	if d.Decorator != nil {
		return parent.DecoratorFinalizer(d.Meta().Name)
	}
	return parent.CompositeFinalizer(d.Meta().Name)
}

// Parents returns the resources of the parents.
func (d Definition) Parents() []v1alpha1.ResourceRule {
	if d.Decorator == nil {
		return []v1alpha1.ResourceRule{d.Composite.Spec.ParentResource.ResourceRule}
	}
	var rules []v1alpha1.ResourceRule
	for i := range d.Decorator.Spec.Resources {
		rules = append(rules, d.Decorator.Spec.Resources[i].ResourceRule)
	}
	return rules
}

// Rules returns every resource that the definition names.
func (d Definition) Rules() []v1alpha1.ResourceRule {
	rules := d.Parents()
	if d.Decorator != nil {
		for i := range d.Decorator.Spec.Attachments {
			rules = append(rules, d.Decorator.Spec.Attachments[i].ResourceRule)
		}
		return rules
	}
	for i := range d.Composite.Spec.ChildResources {
		rules = append(rules, d.Composite.Spec.ChildResources[i].ResourceRule)
	}
	return rules
}
