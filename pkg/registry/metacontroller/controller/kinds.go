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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/table"
)

// Composites returns what CompositeControllers have of their own.
func Composites() Kind[*metacontroller.CompositeController] {
	return Kind[*metacontroller.CompositeController]{
		Resource:   "compositecontrollers",
		Singular:   "compositecontroller",
		ShortNames: []string{"cc", "cctl"},
		New:        func() *metacontroller.CompositeController { return &metacontroller.CompositeController{} },
		NewList:    func() runtime.Object { return &metacontroller.CompositeControllerList{} },
		Spec:       func(o *metacontroller.CompositeController) any { return &o.Spec },
		Status: func(o *metacontroller.CompositeController) *v1alpha1.ControllerStatus {
			return &o.Status.ControllerStatus
		},
		Validate:       validation.ValidateCompositeController,
		ValidateUpdate: validation.ValidateCompositeControllerUpdate,
		Warnings:       validation.WarningsForCompositeController,
		Fields:         compositeFields,
		Table:          table.OfControllers("Parents", compositeColumns, compositeCells),
	}
}

// compositeFields are the parent resource.
func compositeFields(o *metacontroller.CompositeController) fields.Set {
	return fields.Set{
		v1alpha1.FieldParentAPIVersion: o.Spec.ParentResource.APIVersion,
		v1alpha1.FieldParentResource:   o.Spec.ParentResource.Resource,
	}
}

var compositeColumns = []metav1.TableColumnDefinition{
	{Name: "Parent", Type: "string", Description: "Resource whose objects the controller handles."},
	{Name: "Children", Type: "string", Description: "Resources that the hooks may return as children."},
}

// compositeCells returns the cells of compositeColumns, and what tables of both kinds have.
func compositeCells(o *metacontroller.CompositeController) table.Controller {
	children := make([]string, 0, len(o.Spec.ChildResources))
	c := table.Controller{Status: o.Status.ControllerStatus, Account: o.Spec.ServiceAccountRef}
	for _, rule := range o.Spec.ChildResources {
		children = append(children, table.Resource(rule.ResourceRule))
		c.Methods = append(c.Methods, ptr.Deref(rule.UpdateStrategy, v1alpha1.CompositeControllerChildUpdateStrategy{}).Method)
	}
	if hooks := o.Spec.Hooks; hooks != nil {
		c.Sync, c.Finalize, c.Customize = hooks.Sync, hooks.Finalize, hooks.Customize
	}
	c.Cells = []any{table.Resource(o.Spec.ParentResource.ResourceRule), table.List(children)}
	return c
}

// Decorators returns what DecoratorControllers have of their own.
func Decorators() Kind[*metacontroller.DecoratorController] {
	return Kind[*metacontroller.DecoratorController]{
		Resource:   "decoratorcontrollers",
		Singular:   "decoratorcontroller",
		ShortNames: []string{"dc", "dec", "decorators"},
		New:        func() *metacontroller.DecoratorController { return &metacontroller.DecoratorController{} },
		NewList:    func() runtime.Object { return &metacontroller.DecoratorControllerList{} },
		Spec:       func(o *metacontroller.DecoratorController) any { return &o.Spec },
		Status: func(o *metacontroller.DecoratorController) *v1alpha1.ControllerStatus {
			return &o.Status.ControllerStatus
		},
		Validate:       validation.ValidateDecoratorController,
		ValidateUpdate: validation.ValidateDecoratorControllerUpdate,
		Warnings:       validation.WarningsForDecoratorController,
		Fields:         decoratorFields,
		Table:          table.OfControllers("Targets", decoratorColumns, decoratorCells),
	}
}

// decoratorFields are the resources of the targets.
func decoratorFields(o *metacontroller.DecoratorController) fields.Set {
	set := fields.Set{}
	for i := range o.Spec.Resources {
		for label, value := range map[string]string{
			v1alpha1.FieldTargetAPIVersion: o.Spec.Resources[i].APIVersion, v1alpha1.FieldTargetResource: o.Spec.Resources[i].Resource,
		} {
			name, is := v1alpha1.FieldOfTarget(label, value)
			set[name] = is
		}
	}
	return set
}

var decoratorColumns = []metav1.TableColumnDefinition{
	{Name: "Resources", Type: "string", Description: "Resources whose objects are decorated."},
	{Name: "Attachments", Type: "string", Description: "Resources that the hooks may return as attachments."},
}

// decoratorCells returns the cells of decoratorColumns, and what tables of both kinds have.
func decoratorCells(o *metacontroller.DecoratorController) table.Controller {
	resources := make([]string, 0, len(o.Spec.Resources))
	for _, rule := range o.Spec.Resources {
		resources = append(resources, table.Resource(rule.ResourceRule))
	}
	attachments := make([]string, 0, len(o.Spec.Attachments))
	c := table.Controller{Status: o.Status.ControllerStatus, Account: o.Spec.ServiceAccountRef}
	for _, rule := range o.Spec.Attachments {
		attachments = append(attachments, table.Resource(rule.ResourceRule))
		c.Methods = append(c.Methods, ptr.Deref(rule.UpdateStrategy, v1alpha1.DecoratorControllerAttachmentUpdateStrategy{}).Method)
	}
	if hooks := o.Spec.Hooks; hooks != nil {
		c.Sync, c.Finalize, c.Customize = hooks.Sync, hooks.Finalize, hooks.Customize
	}
	c.Cells = []any{table.List(resources), table.List(attachments)}
	return c
}
