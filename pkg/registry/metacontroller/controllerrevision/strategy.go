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
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
)

// Strategy rules writes of ControllerRevisions. Create it with NewStrategy.
type Strategy struct {
	rest.DeclarativeValidation
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
	return Strategy{rest.DeclarativeValidation{Scheme: scheme}, names.SimpleNameGenerator}
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
	o := obj.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The store holds objects of this kind alone.
	return validation.ValidateControllerRevision(o)
}

// ValidateUpdate checks the same, and that parentPatch stays as it is: hooks are shown what is in it as the parent's. The engine
// alone changes it, to repair what is damaged.
func (s Strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	o := obj.(*metacontroller.ControllerRevision)   //nolint:forcetypeassert // The store holds objects of this kind alone.
	was := old.(*metacontroller.ControllerRevision) //nolint:forcetypeassert // The same.
	errs := s.Validate(ctx, obj)
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

// WarningsOnCreate returns nothing.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate returns nothing.
func (Strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// Canonicalize changes nothing.
func (Strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate is false: PUT of an object that does not exist is NotFound, as with custom resources.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false: PUT needs a resourceVersion, as with custom resources.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return false }
