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

package controllerrevision

import (
	"bytes"
	"context"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/ratcheting"
)

// Strategy rules writes of ControllerRevisions. Create it with NewStrategy.
type Strategy struct {
	ratcheting.Validation
	names.NameGenerator
}

var (
	_ rest.RESTCreateStrategy            = Strategy{}
	_ rest.RESTUpdateStrategy            = Strategy{}
	_ rest.RESTDeleteStrategy            = Strategy{}
	_ rest.DeclarativeValidationStrategy = Strategy{}
)

// NewStrategy returns the strategy for objects of scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy {
	return Strategy{
		ratcheting.Validation{
			DeclarativeValidation: rest.DeclarativeValidation{Scheme: scheme},
			Version:               v1alpha1.SchemeGroupVersion,
			Rules:                 rules,
		},
		names.SimpleNameGenerator,
	}
}

func rules(obj runtime.Object) field.ErrorList {
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.ValidateControllerRevision(o)
}

// NamespaceScoped is true.
func (Strategy) NamespaceScoped() bool { return true }

// PrepareForCreate starts the generation.
func (Strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	o.Generation = 1
}

// PrepareForUpdate counts the generation up when anything outside of the metadata changes, as with custom resources.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	if !samePatch(o.ParentPatch.Raw, was.ParentPatch.Raw) || !apiequality.Semantic.DeepEqual(o.Children, was.Children) {
		o.Generation = was.Generation + 1
	}
}

// samePatch compares by meaning, since server-side apply may order keys differently.
func samePatch(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && apiequality.Semantic.DeepEqual(x, y)
}

// Validate checks what the generated validation cannot.
func (Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return rules(obj)
}

// WarningsOnCreate tells what is said twice.
func (Strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.WarningsForControllerRevision(o)
}

// ValidateUpdate checks the same, where what was wrong before and did not change is no error, and that parentPatch stays as it is:
// hooks are shown what is in it as the parent's. The engine alone changes it, to repair what is damaged.
func (Strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	errs := rules(obj)
	if !samePatch(o.ParentPatch.Raw, was.ParentPatch.Raw) && !byServer(ctx) {
		errs = append(errs, field.Forbidden(field.NewPath("parentPatch"), "may not change; only this server writes it"))
	}
	return errs
}

// byServer reports whether the request was made by this server itself, through its loopback client.
func byServer(ctx context.Context) bool {
	requester, ok := request.UserFrom(ctx)
	return ok && requester.GetName() == user.APIServerUser && slices.Contains(requester.GetGroups(), user.SystemPrivilegedGroup)
}

// WarningsOnUpdate tells the same when the children change.
func (s Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	if apiequality.Semantic.DeepEqual(o.Children, was.Children) {
		return nil
	}
	return s.WarningsOnCreate(ctx, obj)
}

// Canonicalize changes nothing.
func (Strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate is false: PUT of an object that does not exist is NotFound, as with custom resources.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: PUT needs a resourceVersion, as with custom resources.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return false }
