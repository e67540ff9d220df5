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

package kinds

import (
	"context"
	"fmt"
	"maps"
	"sort"
	"strings"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	versionutil "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// strategy is what kube-apiserver has for the endpoints of a kind.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// customSchema is the schema of a version of a custom kind, and the strategies of kube-apiserver for it.
type customSchema struct {
	structural *structuralschema.Structural
	object     strategy
	// status is nil without the subresource.
	status rest.RESTUpdateStrategy
}

// newCustomSchema returns the schema of a version. The version's schema must have passed the validation of definitions.
func newCustomSchema(v *Version, props *apiextensionsv1.JSONSchemaProps) (*customSchema, error) {
	var internal *apiextensions.JSONSchemaProps
	c := &customSchema{}
	if props != nil {
		internal = &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
			return nil, fmt.Errorf("converting the schema: %w", err)
		}
		structural, err := structuralschema.NewStructural(internal)
		if err != nil {
			return nil, fmt.Errorf("making the schema structural: %w", err)
		}
		c.structural = structural.DeepCopy()
		if err := defaulting.PruneDefaults(c.structural); err != nil {
			return nil, fmt.Errorf("pruning the defaults: %w", err)
		}
	}
	validator, _, err := schemavalidation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("making the validator: %w", err)
	}
	var statusSpec *apiextensions.CustomResourceSubresourceStatus
	var statusValidator schemavalidation.SchemaValidator
	if v.HasSubresource("status") {
		statusSpec = &apiextensions.CustomResourceSubresourceStatus{}
		if internal != nil {
			if statusSchema, ok := internal.Properties["status"]; ok {
				if statusValidator, _, err = schemavalidation.NewSchemaValidator(&statusSchema); err != nil {
					return nil, fmt.Errorf("making the validator of the status: %w", err)
				}
			}
		}
	}
	object := customresource.NewStrategy(crdserverscheme.NewUnstructuredObjectTyper(), v.Kind.Namespaced, v.GroupVersionKind(),
		validator, statusValidator, c.structural, statusSpec, nil, nil)
	c.object = object
	if statusSpec != nil {
		c.status = customresource.NewStatusStrategy(object)
	}
	return c, nil
}

// coerce drops what the schema does not know. It returns the paths of what it dropped if strict is set. Errors are possible for
// objects of clients alone, and are those of kube-apiserver.
func (c *customSchema) coerce(o value.Object, strict bool) (dropped []string, err error) {
	kind, apiVersion := o["kind"], o["apiVersion"]
	var restored value.Object
	if meta, ok := o["metadata"].(value.Object); ok && plainMetadata(meta) {
		restored = meta
	} else if _, found := o["metadata"]; found {
		meta, _, unknown, err := objectmeta.GetObjectMetaWithOptions(o, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: strict})
		if err != nil {
			return nil, err
		}
		dropped = unknown
		if err := objectmeta.SetObjectMeta(o, meta); err != nil {
			return nil, err
		}
		restored, _ = o["metadata"].(value.Object)
		delete(restored, "creationTimestamp")
		if !meta.CreationTimestamp.IsZero() {
			restored["creationTimestamp"] = meta.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z")
		}
	}
	dropped = append(dropped, pruning.PruneWithOptions(o, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: strict})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(o, c.structural)
	failed, paths := objectmeta.CoerceWithOptions(nil, o, c.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: strict})
	if failed != nil {
		return nil, failed
	}
	o["kind"], o["apiVersion"] = kind, apiVersion
	if restored != nil {
		o["metadata"] = restored
	}
	return append(dropped, paths...), nil
}

func (c *customSchema) setDefaults(o value.Object) { defaulting.Default(o, c.structural) }

// custom are the rules of custom kinds.
type custom struct{}

func (custom) normalize(v *Version, o value.Object, strict bool) (value.Object, []string, error) {
	dropped, err := v.schema.coerce(o, strict)
	if err != nil {
		return nil, nil, err
	}
	v.schema.setDefaults(o)
	return o, dropped, nil
}

func (custom) create(v *Version, o value.Object) ([]string, field.ErrorList) {
	ctx, u := context.Background(), &unstructured.Unstructured{Object: o} //nolint:forbidigo // A request has no context here.
	v.schema.object.PrepareForCreate(ctx, u)
	if v.isPlain(o) && len(validation.ValidateObjectMetaAccessor(u, v.Kind.Namespaced, validation.NameIsDNSSubdomain, metadataPath)) == 0 {
		return v.warnings(o, func() []string { return v.schema.object.WarningsOnCreate(ctx, u) }), nil
	}
	errs := rest.ValidateCreate(ctx, u, v.schema.object)
	if len(errs) > 0 {
		return nil, errs
	}
	return v.schema.object.WarningsOnCreate(ctx, u), nil
}

var metadataPath = field.NewPath("metadata")

// isPlain reports whether an object is of its kind and agrees with the schema beyond doubt.
func (v *Version) isPlain(o value.Object) bool {
	return value.String(o, "kind") == v.Kind.Kind && value.String(o, "apiVersion") == v.APIVersion() && v.schema.plain(o)
}

// warnings returns what is to be said about an object. It is about finalizers alone.
func (v *Version) warnings(o value.Object, ask func() []string) []string {
	if value.At(o, "metadata", "finalizers") == nil {
		return nil
	}
	return ask()
}

// quickly updates an object that is valid beyond doubt as its strategy would. It returns false if there is doubt; the object may
// have been prepared then.
func (v *Version) quickly(subresource string, o, old value.Object) bool {
	if subresource == statusOf {
		status, found := o[statusOf]
		clear(o)
		maps.Copy(o, old)
		o["metadata"] = value.Shallow(value.Map(old, "metadata"))
		if delete(o, statusOf); found {
			o[statusOf] = status
		}
	} else {
		if v.schema.status != nil {
			if delete(o, statusOf); old[statusOf] != nil {
				o[statusOf] = old[statusOf]
			}
		}
		without := func(o value.Object) value.Object {
			rest := value.Shallow(o)
			delete(rest, "metadata")
			return rest
		}
		if !value.Equal(without(o), without(old)) {
			value.Map(o, "metadata")["generation"] = value.Int(old, "metadata", "generation") + 1
		}
	}
	u, was := &unstructured.Unstructured{Object: o}, &unstructured.Unstructured{Object: old}
	return v.isPlain(o) && len(validation.ValidateObjectMetaAccessor(u, v.Kind.Namespaced, validation.NameIsDNSSubdomain, metadataPath)) == 0 &&
		len(validation.ValidateObjectMetaAccessorUpdate(u, was, metadataPath)) == 0
}

func (custom) update(v *Version, subresource string, o, old value.Object) ([]string, field.ErrorList) {
	s := rest.RESTUpdateStrategy(v.schema.object)
	if subresource == statusOf {
		s = v.schema.status
	}
	ctx, u, was := context.Background(), &unstructured.Unstructured{Object: o}, &unstructured.Unstructured{Object: old} //nolint:forbidigo // A request has no context here.
	if v.quickly(subresource, o, old) {
		return v.warnings(o, func() []string { return s.WarningsOnUpdate(ctx, u, was) }), nil
	}
	s.PrepareForUpdate(ctx, u, was)
	if subresource == statusOf {
		// The strategy has put a copy of the old object into u, while the caller holds o.
		clear(o)
		maps.Copy(o, u.Object)
		u.Object = o
	}
	errs := rest.ValidateUpdate(ctx, u, was, s)
	if len(errs) > 0 {
		return nil, errs
	}
	return s.WarningsOnUpdate(ctx, u, was), nil
}

// defined is a kind, or why there is none.
type defined struct {
	kind *Kind
	err  error
}

var definitions memo[defined]

// FromDefinition returns the kind that a CustomResourceDefinition defines, which must have passed its validation.
func FromDefinition(crd value.Object) (*Kind, error) {
	spec := value.Map(crd, "spec")
	d := definitions.get(string(value.Encode(spec)), func() defined {
		kind, err := fromSpec(spec)
		return defined{kind, err}
	})
	return d.kind, d.err
}

func fromSpec(content value.Object) (*Kind, error) {
	var spec apiextensionsv1.CustomResourceDefinitionSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
		return nil, fmt.Errorf("decoding a definition: %w", err)
	}
	k := &Kind{
		Group: spec.Group, Kind: spec.Names.Kind, ListKind: spec.Names.ListKind, Plural: spec.Names.Plural, Singular: spec.Names.Singular,
		ShortNames: spec.Names.ShortNames, Categories: spec.Names.Categories,
		Namespaced: spec.Scope == apiextensionsv1.NamespaceScoped, Custom: true, rules: custom{},
	}
	if k.ListKind == "" {
		k.ListKind = k.Kind + "List"
	}
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Kind)
	}
	for i := range spec.Versions {
		if err := k.addVersion(&spec.Versions[i]); err != nil {
			return nil, fmt.Errorf("version %s of %s: %w", spec.Versions[i].Name, k.GroupResource(), err)
		}
	}
	k.fieldsFromDefinition(&spec)
	sort.SliceStable(k.Versions, func(i, j int) bool {
		return versionutil.CompareKubeAwareVersionStrings(k.Versions[i].Name, k.Versions[j].Name) > 0
	})
	return k, nil
}

func (k *Kind) addVersion(d *apiextensionsv1.CustomResourceDefinitionVersion) error {
	v := &Version{Kind: k, Name: d.Name, Served: d.Served}
	if d.Subresources != nil && d.Subresources.Status != nil {
		v.Subresources = append(v.Subresources, "status")
	}
	var props *apiextensionsv1.JSONSchemaProps
	if d.Schema != nil {
		props = d.Schema.OpenAPIV3Schema
	}
	var err error
	if v.schema, err = newCustomSchema(v, props); err != nil {
		return err
	}
	k.Versions = append(k.Versions, v)
	if d.Storage {
		k.Storage = v
	}
	return nil
}

// memo remembers results by key, for all servers of the process. It holds no channel, since servers live in bubbles of testing/synctest.
type memo[T any] struct{ known sync.Map }

// get returns what compute returned for a key when it was called first. Two callers at once may both call it.
func (m *memo[T]) get(key string, compute func() T) T {
	if known, ok := m.known.Load(key); ok {
		return known.(T) //nolint:forcetypeassert // Nothing else is stored.
	}
	computed, _ := m.known.LoadOrStore(key, compute())
	return computed.(T) //nolint:forcetypeassert // The same.
}
