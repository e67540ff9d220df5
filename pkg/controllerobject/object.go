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

package controllerobject

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Object is a controller object of either kind: exactly one of the fields is set.
type Object struct {
	Composite *v1alpha1.CompositeController
	Decorator *v1alpha1.DecoratorController
}

// Kind is the kind as the API writes it, such as CompositeController.
func (o Object) Kind() string {
	if o.Composite != nil {
		return v1alpha1.KindComposite
	}
	return v1alpha1.KindDecorator
}

// Name is the name of the object.
func (o Object) Name() string {
	if o.Composite != nil {
		return o.Composite.Name
	}
	return o.Decorator.Name
}

// Argument names the object as commands take it, such as cc/web.
func (o Object) Argument() string {
	if o.Composite != nil {
		return "cc/" + o.Composite.Name
	}
	return "dc/" + o.Decorator.Name
}

// Resource names the object as kubectl takes it, such as compositecontroller/web.
func (o Object) Resource() string {
	if o.Composite != nil {
		return string(Composite) + "/" + o.Composite.Name
	}
	return string(Decorator) + "/" + o.Decorator.Name
}

// Generation is metadata.generation.
func (o Object) Generation() int64 {
	if o.Composite != nil {
		return o.Composite.Generation
	}
	return o.Decorator.Generation
}

// Status is the part of the status that both kinds have.
func (o Object) Status() *v1alpha1.ControllerStatus {
	if o.Composite != nil {
		return &o.Composite.Status.ControllerStatus
	}
	return &o.Decorator.Status.ControllerStatus
}

// Account is the service account of the definition, nil if it names none.
func (o Object) Account() *v1alpha1.ServiceAccountReference {
	if o.Composite != nil {
		return o.Composite.Spec.ServiceAccountRef
	}
	return o.Decorator.Spec.ServiceAccountRef
}

// Parents are the rules of the objects that the controller handles.
func (o Object) Parents() []v1alpha1.ResourceRule {
	if o.Composite != nil {
		return []v1alpha1.ResourceRule{o.Composite.Spec.ParentResource.ResourceRule}
	}
	rules := make([]v1alpha1.ResourceRule, 0, len(o.Decorator.Spec.Resources))
	for i := range o.Decorator.Spec.Resources {
		rules = append(rules, o.Decorator.Spec.Resources[i].ResourceRule)
	}
	return rules
}

// Children are the rules of the objects that the controller creates.
func (o Object) Children() []v1alpha1.ResourceRule {
	var rules []v1alpha1.ResourceRule
	if o.Composite != nil {
		for i := range o.Composite.Spec.ChildResources {
			rules = append(rules, o.Composite.Spec.ChildResources[i].ResourceRule)
		}
		return rules
	}
	for i := range o.Decorator.Spec.Attachments {
		rules = append(rules, o.Decorator.Spec.Attachments[i].ResourceRule)
	}
	return rules
}

// Customizes reports whether the controller has a customize hook.
func (o Object) Customizes() bool {
	if o.Composite != nil {
		hooks := o.Composite.Spec.Hooks
		return hooks != nil && hooks.Customize != nil && hooks.Customize.Webhook != nil
	}
	hooks := o.Decorator.Spec.Hooks
	return hooks != nil && hooks.Customize != nil && hooks.Customize.Webhook != nil
}

// Runtime returns the object itself, with its kind and version set, which clients leave out.
func (o Object) Runtime() runtime.Object {
	if o.Composite != nil {
		o.Composite.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(o.Kind()))
		return o.Composite
	}
	o.Decorator.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(o.Kind()))
	return o.Decorator
}

// Paused reports whether the definition says that the controller is to be paused.
func (o Object) Paused() bool {
	if o.Composite != nil {
		return ptr.Deref(o.Composite.Spec.Paused, false)
	}
	return ptr.Deref(o.Decorator.Spec.Paused, false)
}
