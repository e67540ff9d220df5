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
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsinstall "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Builtin returns the kinds that every server has.
var Builtin = sync.OnceValue(func() []*Kind {
	return served(slices.Concat(coreKinds(), workloadKinds(), []*Kind{definitions1()}, metacontrollerKinds(), otherKinds()))
})

// Policies returns the kinds of admission policies, which older servers do not have.
var Policies = sync.OnceValue(func() []*Kind {
	return served([]*Kind{
		registration("MutatingAdmissionPolicy", "mutatingadmissionpolicies",
			func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicy{} }),
		registration("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings",
			func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBinding{} }),
		registration("ValidatingAdmissionPolicy", "validatingadmissionpolicies",
			func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicy{} }),
		registration("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
			func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{} }),
	})
})

// served completes kinds that are served in all their versions.
func served(all []*Kind) []*Kind {
	for _, k := range all {
		if k.ListKind == "" {
			k.ListKind = k.Kind + "List"
		}
		if k.Singular == "" {
			k.Singular = strings.ToLower(k.Kind)
		}
		for _, v := range k.Versions {
			v.Kind, v.Served = k, true
		}
		k.Storage = k.Versions[0]
		k.builtinFields()
	}
	return all
}

func version(name string, subresources ...string) []*Version {
	return []*Version{{Name: name, Subresources: subresources}}
}

func coreKinds() []*Kind {
	return []*Kind{
		{
			Kind: "ConfigMap", Plural: "configmaps", ShortNames: []string{"cm"}, Namespaced: true, Unconditional: true, Versions: version("v1"),
			New: func() runtime.Object { return &corev1.ConfigMap{} }, rules: &typed{check: checkConfigMap},
		},
		{
			Kind: "Event", Plural: "events", ShortNames: []string{"ev"}, Namespaced: true, Unconditional: true,
			Versions: version("v1"), New: func() runtime.Object { return &corev1.Event{} }, rules: &typed{},
		},
		{
			Kind: "Namespace", Plural: "namespaces", ShortNames: []string{"ns"}, Unconditional: true, Singly: true, Versions: version("v1", statusOf),
			New: func() runtime.Object { return &corev1.Namespace{} }, rules: &typed{defaults: labelNamespace, prepare: prepareNamespace, name: apivalidation.ValidateNamespaceName},
		},
	}
}

// registration returns a kind of what configures the admission of objects.
func registration(kind, plural string, create func() runtime.Object) *Kind {
	return &Kind{
		Group: admissionregistrationv1.GroupName, Kind: kind, Plural: plural, Unconditional: true, Versions: version("v1"),
		New: create, rules: &typed{prepare: countGeneration("metadata")},
	}
}

// otherKinds are further ones that the engine watches.
func otherKinds() []*Kind {
	return []*Kind{
		registration("MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
			func() runtime.Object { return &admissionregistrationv1.MutatingWebhookConfiguration{} }),
		registration("ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
			func() runtime.Object { return &admissionregistrationv1.ValidatingWebhookConfiguration{} }),
		{
			Group: "apiregistration.k8s.io", Kind: "APIService", Plural: "apiservices", Unconditional: true, Versions: version("v1", statusOf),
			Categories: []string{"api-extensions"}, rules: untyped{},
			models: func() (*models, error) { return &models{types: managedfields.NewDeducedTypeConverter()}, nil },
		},
	}
}

// definitions1 is the kind of CustomResourceDefinitions.
func definitions1() *Kind {
	scheme := runtime.NewScheme()
	apiextensionsinstall.Install(scheme)
	k := &Kind{
		Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition", Plural: "customresourcedefinitions",
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"}, Versions: version("v1", statusOf),
		New: func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} },
		rules: &hub{
			scheme: scheme, object: customresourcedefinition.NewStrategy(scheme), status: customresourcedefinition.NewStatusStrategy(scheme),
			created: &memo[creation]{},
		},
	}
	return k.fromTypes(extensionsDefinitions, scheme)
}

func metacontrollerKinds() []*Kind {
	kind := func(name, plural string, create func() runtime.Object, h *hub, short []string) *Kind {
		h.scheme = apiserver.Scheme
		k := &Kind{
			Group: v1alpha1.GroupName, Kind: name, Plural: plural, ShortNames: short, Categories: []string{"metacontroller"}, New: create,
			rules: h, Versions: version("v1alpha1"),
		}
		return k.fromTypes(metacontrollerDefinitions, metacontrollerScheme)
	}
	composite := controller.Composites().Strategy(apiserver.Scheme)
	decorator := controller.Decorators().Strategy(apiserver.Scheme)
	all := []*Kind{
		kind("CompositeController", "compositecontrollers", func() runtime.Object { return &v1alpha1.CompositeController{} },
			&hub{object: composite, status: composite.ForStatus()}, []string{"cc", "cctl"}),
		kind("DecoratorController", "decoratorcontrollers", func() runtime.Object { return &v1alpha1.DecoratorController{} },
			&hub{object: decorator, status: decorator.ForStatus()}, []string{"dc", "dec", "decorators"}),
		kind("ControllerRevision", "controllerrevisions", func() runtime.Object { return &v1alpha1.ControllerRevision{} },
			&hub{object: controllerrevision.NewStrategy(apiserver.Scheme)}, nil),
	}
	for _, controller := range all[:2] {
		controller.Versions[0].Subresources = []string{statusOf}
		controller.Inspections = []Inspection{
			{"parents", "ControllerParentList", "get"},
			{"plan", "ControllerPlan", "create"},
			{"request", "HookRequestList", "get"},
			{"resync", "ControllerResync", "create"},
			{"syncs", "ControllerSyncList", "get"},
		}
	}
	all[0].Inspections = append(all[0].Inspections, Inspection{"rollback", "ControllerRollback", "create"})
	all[2].Namespaced = true
	return all
}

// untyped are the rules of a kind that takes what it is given.
type untyped struct{}

func (untyped) normalize(_ *Version, o value.Object, _ bool) (value.Object, []string, error) {
	return o, nil, nil
}

func (untyped) create(_ *Version, o value.Object) ([]string, field.ErrorList) {
	countGeneration("metadata", statusOf)("", o, nil)
	return nil, nil
}

func (untyped) update(_ *Version, subresource string, o, old value.Object) ([]string, field.ErrorList) {
	countGeneration("metadata", statusOf)(subresource, o, old)
	return nil, nil
}

// countGeneration counts the generation up when anything but some fields changes.
func countGeneration(but ...string) func(string, value.Object, value.Object) {
	return func(_ string, o, old value.Object) {
		meta := value.Map(o, "metadata")
		if old == nil {
			meta["generation"] = int64(1)
			return
		}
		without := func(o value.Object) value.Object {
			rest := maps.Clone(o)
			for _, name := range but {
				delete(rest, name)
			}
			return rest
		}
		if !value.Equal(without(o), without(old)) {
			meta["generation"] = value.Int(old, "metadata", "generation") + 1
		}
	}
}

func checkConfigMap(o, old value.Object) field.ErrorList {
	errs := checkKeys(field.NewPath("data"), value.Map(o, "data"))
	errs = append(errs, checkKeys(field.NewPath("binaryData"), value.Map(o, "binaryData"))...)
	if old != nil && value.Bool(old, "immutable") {
		if !value.Bool(o, "immutable") {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
		}
		for _, part := range []string{"data", "binaryData"} {
			if !value.Equal(o[part], old[part]) {
				errs = append(errs, field.Forbidden(field.NewPath(part), "field is immutable when `immutable` is set"))
			}
		}
	}
	return errs
}

func checkKeys(path *field.Path, data value.Object) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, message := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(path.Key(key), key, message))
		}
	}
	return errs
}

func labelNamespace(object runtime.Object) {
	namespace := object.(*corev1.Namespace) //nolint:forcetypeassert // The kind has objects of this type alone.
	if namespace.Name == "" {
		return
	}
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

// prepareNamespace does what the strategies of kube-apiserver do.
func prepareNamespace(subresource string, o, old value.Object) {
	if old == nil {
		o["spec"] = value.Object{"finalizers": []any{string(corev1.FinalizerKubernetes)}}
		o[statusOf] = value.Object{"phase": string(corev1.NamespaceActive)}
		return
	}
	o["spec"] = old["spec"]
	if subresource != statusOf {
		o[statusOf] = old[statusOf]
	}
}

// plainlyValid reports whether a value is valid beyond doubt. It knows the common part of what a schema may demand and says no to
// everything else, for kube-apiserver's validation to decide, which is a hundred times slower.
func plainlyValid(v any, s *structuralschema.Structural) bool {
	if s == nil {
		return true
	}
	if s.XEmbeddedResource || len(s.XValidations) > 0 || !plainRules(v, s.ValueValidation) {
		return false
	}
	switch v := v.(type) {
	case value.Object:
		return (s.Type == "object" || s.Type == "" && s.XPreserveUnknownFields) && plainObject(v, s)
	case []any:
		return s.Type == "array" && plainItems(v, s)
	case string:
		return s.Type == "string"
	case bool:
		return s.Type == "boolean"
	case int64:
		return s.Type == "integer" || s.Type == "number"
	case float64:
		return s.Type == "number" || s.Type == "integer" && v == math.Trunc(v)
	case nil:
		return s.Nullable
	}
	return false
}

func plainObject(o value.Object, s *structuralschema.Structural) bool {
	for name, inner := range o {
		if property, ok := s.Properties[name]; ok {
			if !plainlyValid(inner, &property) {
				return false
			}
			continue
		}
		switch a := s.AdditionalProperties; {
		case a != nil && a.Structural != nil:
			if !plainlyValid(inner, a.Structural) {
				return false
			}
		case a == nil && !s.XPreserveUnknownFields || a != nil && !a.Bool:
			return false
		}
	}
	return true
}

func plainItems(list []any, s *structuralschema.Structural) bool {
	for i, e := range list {
		if !plainlyValid(e, s.Items) {
			return false
		}
		if s.XListType == nil || *s.XListType == "atomic" {
			continue
		}
		for _, other := range list[:i] {
			if *s.XListType == "set" && value.Equal(e, other) || *s.XListType == "map" && sameKeys(e, other, s.XListMapKeys) {
				return false
			}
		}
	}
	return true
}

func sameKeys(a, b any, keys []string) bool {
	x, _ := a.(value.Object)
	y, _ := b.(value.Object)
	for _, key := range keys {
		if !value.Equal(x[key], y[key]) {
			return false
		}
	}
	return true
}

// plainRules reports whether a value obeys rules that demand no more than that some fields are there.
func plainRules(v any, rules *structuralschema.ValueValidation) bool {
	if rules == nil {
		return true
	}
	o, _ := v.(value.Object)
	for _, name := range rules.Required {
		if _, ok := o[name]; !ok {
			return false
		}
	}
	rest := *rules
	rest.Required = nil
	return reflect.ValueOf(rest).IsZero()
}

// plain reports that an object agrees with the schema of its kind. Its metadata has been checked.
func (c *customSchema) plain(o value.Object) bool {
	if c.structural == nil {
		return true
	}
	s := c.structural
	if len(s.XValidations) > 0 || s.Type != "object" || !plainRules(o, s.ValueValidation) {
		return false
	}
	for name, inner := range o {
		switch name {
		case "apiVersion", "kind", "metadata":
			if property, ok := s.Properties[name]; ok && (len(property.Properties) > 0 || property.ValueValidation != nil) {
				return false
			}
			continue
		}
		if property, ok := s.Properties[name]; ok {
			if !plainlyValid(inner, &property) {
				return false
			}
		} else if !s.XPreserveUnknownFields {
			return false
		}
	}
	return true
}
