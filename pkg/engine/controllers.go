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

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// Composite is a CompositeController whose hooks are Go functions.
type Composite struct {
	// Controller has the name and the spec. Required. Its hooks may be inline ones; webhooks are refused. It is copied. The name is a part of the
	// finalizer that parents get: no other controller of the cluster has it, be it one that a server runs.
	Controller *v1alpha1.CompositeController
	// Sync returns the desired children and the status of a parent. Required, unless the controller has an inline one.
	Sync CompositeFunc
	// Finalize is called in place of Sync while a parent is being deleted, until it returns that it is finalized. Nil: nothing is to be cleaned up,
	// and a finalizer that parents have from a former version of the program is removed.
	Finalize CompositeFunc
	// Customize selects related objects. Nil: there are none.
	Customize CustomizeFunc
	// Timeout limits each call of a function by its context. Default 10 s, at most 1 h.
	Timeout time.Duration
}

// Decorator is a DecoratorController whose hooks are Go functions.
type Decorator struct {
	// Controller has the name and the spec. Required. Its hooks may be inline ones; webhooks are refused. It is copied. The name is as that of a
	// [Composite].
	Controller *v1alpha1.DecoratorController
	// Sync returns the desired attachments, labels and annotations of a target. Required, unless the controller has an inline one.
	Sync DecoratorFunc
	// Finalize is called in place of Sync while a target is being deleted, until it returns that it is finalized. Nil: as for a [Composite].
	Finalize DecoratorFunc
	// Customize selects related objects. Nil: there are none.
	Customize CustomizeFunc
	// Timeout limits each call of a function by its context. Default 10 s, at most 1 h.
	Timeout time.Duration
}

// declaration is what a controller says of one of its hooks.
type declaration struct {
	name hook.Name
	// into is the field of the spec, and function nil if the hook is none.
	into     **v1alpha1.Hook
	function function
}

// definitions are controllers that were checked.
type definitions struct {
	scheme    *runtime.Scheme
	functions functions
	// declared are the kinds and names of the controllers.
	declared sets.Set[string]
	// objects are controller objects with defaults, and with URLs in place of functions.
	objects []runtime.Object
	// warnings are those that the API server would give.
	warnings []string
}

// define checks all controllers, as the API server does. The error has everything that is wrong.
func define(ctx context.Context, composites []Composite, decorators []Decorator) (*definitions, error) {
	d := &definitions{scheme: runtime.NewScheme(), functions: functions{}, declared: sets.New[string]()}
	install.Install(d.scheme)
	var errs []error
	for i, c := range composites {
		if c.Controller == nil {
			errs = append(errs, fmt.Errorf("there is no Controller in Composites[%d]", i))
			continue
		}
		o := c.Controller.DeepCopy()
		o.Spec.Hooks = new(ptr.Deref(o.Spec.Hooks, v1alpha1.CompositeControllerHooks{}))
		errs = append(errs, d.add(ctx, v1alpha1.KindComposite, o, &o.ObjectMeta, c.Timeout,
			declaration{hook.Sync, &o.Spec.Hooks.Sync, optional(c.Sync)},
			declaration{hook.Finalize, &o.Spec.Hooks.Finalize, optional(c.Finalize)},
			declaration{hook.Customize, &o.Spec.Hooks.Customize, optional(c.Customize)}))
	}
	for i, c := range decorators {
		if c.Controller == nil {
			errs = append(errs, fmt.Errorf("there is no Controller in Decorators[%d]", i))
			continue
		}
		o := c.Controller.DeepCopy()
		o.Spec.Hooks = new(ptr.Deref(o.Spec.Hooks, v1alpha1.DecoratorControllerHooks{}))
		errs = append(errs, d.add(ctx, v1alpha1.KindDecorator, o, &o.ObjectMeta, c.Timeout,
			declaration{hook.Sync, &o.Spec.Hooks.Sync, optional(c.Sync)},
			declaration{hook.Finalize, &o.Spec.Hooks.Finalize, optional(c.Finalize)},
			declaration{hook.Customize, &o.Spec.Hooks.Customize, optional(c.Customize)}))
	}
	if len(composites)+len(decorators) == 0 {
		errs = append(errs, errors.New("there is no controller to run: set Composites or Decorators"))
	}
	return d, errors.Join(errs...)
}

// optional returns the function of a hook, nil if the hook is nil.
func optional[F ~func(context.Context, *Request) (*Response, error), Request, Response any](f F) function {
	if f == nil {
		return nil
	}
	return functionOf(f)
}

// add adds a controller object, whose metadata is given, unless something is wrong with it.
func (d *definitions) add(
	ctx context.Context, kind string, o runtime.Object, metadata *metav1.ObjectMeta, timeout time.Duration, hooks ...declaration,
) error {
	o.GetObjectKind().SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	subject := kind + " " + cmp.Or(metadata.Name, "without a name")
	place := "/" + strings.ToLower(kind) + "/" + metadata.Name
	var errs field.ErrorList
	if d.declared.Has(place) {
		errs = append(errs, field.Duplicate(field.NewPath("metadata", "name"), metadata.Name))
	}
	d.declared.Insert(place)
	for _, h := range hooks {
		if err := d.declare(h, place, timeout); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		invalid, warnings, err := d.check(ctx, o)
		if err != nil {
			return fmt.Errorf("checking the %s: %w", subject, err)
		}
		errs = invalid
		for _, w := range warnings {
			d.warnings = append(d.warnings, fmt.Sprintf("%s: %s", subject, w))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the %s is invalid: %w", subject, errs.ToAggregate())
	}
	d.objects = append(d.objects, o)
	return nil
}

// declare puts a URL into the field of a hook that is a function.
func (d *definitions) declare(h declaration, place string, timeout time.Duration) *field.Error {
	given, at := *h.into, field.NewPath("spec", "hooks", string(h.name))
	switch {
	case given != nil && given.Webhook != nil:
		return field.Forbidden(at.Child("webhook"), "an engine in a Go program calls no webhooks: give it a function")
	case given != nil && given.Inline != nil && h.function != nil:
		return field.Forbidden(at.Child("inline"), "there is a function for this hook, too: remove one of them")
	case h.function == nil && given == nil && h.name == hook.Sync:
		return field.Required(at, "give the controller a function for Sync")
	case h.function == nil:
		return nil
	}
	path := place + "/" + string(h.name)
	d.functions[path] = h.function
	url := &v1alpha1.Webhook{URL: new("http://" + webhook.FunctionHost + path)}
	if timeout > 0 {
		url.Timeout = &metav1.Duration{Duration: timeout}
	}
	*h.into = &v1alpha1.Hook{Version: new(v1alpha1.HookVersionV2), Webhook: url}
	return nil
}

// check sets the defaults of a controller object, and says what the API server would say of it.
func (d *definitions) check(ctx context.Context, o runtime.Object) (errs field.ErrorList, warnings []string, err error) {
	d.scheme.Default(o)
	hub, err := d.scheme.ConvertToVersion(o.DeepCopyObject(), metacontroller.SchemeGroupVersion)
	if err != nil {
		return nil, nil, err
	}
	switch hub := hub.(type) {
	case *metacontroller.CompositeController:
		errs, warnings = validation.ValidateCompositeController(hub), validation.WarningsForCompositeController(hub)
	case *metacontroller.DecoratorController:
		errs, warnings = validation.ValidateDecoratorController(hub), validation.WarningsForDecoratorController(hub)
	}
	return append(errs, d.scheme.Validate(ctx, nil, o)...), warnings, nil
}
