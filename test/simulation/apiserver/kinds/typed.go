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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	kjson "sigs.k8s.io/json"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/fields"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// typed are the rules of a kind with a Go type. A nil function does nothing.
type typed struct {
	// defaults sets defaults.
	defaults func(runtime.Object)
	// prepare changes an object that is written; old is nil if it is created.
	prepare func(subresource string, o, old value.Object)
	// check returns what is wrong with an object; old is nil if it is created.
	check func(o, old value.Object) field.ErrorList
	// name checks the name. Nil: it is a DNS subdomain.
	name validation.ValidateNameFunc
}

func (t *typed) normalize(v *Version, o value.Object, strict bool) (value.Object, []string, error) {
	object := v.Kind.New()
	dropped, err := decode(o, object, strict)
	if err != nil {
		return nil, nil, err
	}
	if t.defaults != nil {
		t.defaults(object)
	}
	normal, err := content(object)
	if err != nil {
		return nil, nil, err
	}
	normal["apiVersion"], normal["kind"] = v.APIVersion(), v.Kind.Kind
	return normal, dropped, nil
}

// decode decodes an object into its Go type, and returns the paths of the fields that the type does not have if strict is set.
func decode(o value.Object, into runtime.Object, strict bool) ([]string, error) {
	failed := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o, into, strict)
	if failed == nil {
		return nil, nil
	}
	if unknown, ok := runtime.AsStrictDecodingError(failed); ok {
		paths := make([]string, 0, len(unknown.Errors()))
		for _, e := range unknown.Errors() {
			paths = append(paths, e.Error())
		}
		return paths, nil
	}
	// The message of a client's error is that of decoding its JSON.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value.Encode(o), into); err != nil {
		return nil, err
	}
	return nil, failed
}

// content returns the JSON of an object, decoded.
func content(object runtime.Object) (value.Object, error) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", object, err)
	}
	if meta := value.Map(o, "metadata"); meta != nil && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return o, nil
}

func (t *typed) create(v *Version, o value.Object) ([]string, field.ErrorList) {
	if t.prepare != nil {
		t.prepare("", o, nil)
	}
	path, meta := field.NewPath("metadata"), &unstructured.Unstructured{Object: o}
	errs := validation.ValidateObjectMetaAccessor(meta, v.Kind.Namespaced, t.nameCheck(), path)
	if t.check != nil {
		errs = append(errs, t.check(o, nil)...)
	}
	return nil, errs
}

// anyName accepts what the kind's own check refuses.
func anyName(string, bool) []string { return nil }

func (t *typed) nameCheck() validation.ValidateNameFunc {
	if t.name != nil {
		return t.name
	}
	return validation.NameIsDNSSubdomain
}

func (t *typed) update(v *Version, subresource string, o, old value.Object) ([]string, field.ErrorList) {
	if t.prepare != nil {
		t.prepare(subresource, o, old)
	}
	path, meta, was := field.NewPath("metadata"), &unstructured.Unstructured{Object: o}, &unstructured.Unstructured{Object: old}
	errs := validation.ValidateObjectMetaAccessor(meta, v.Kind.Namespaced, anyName, path)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(meta, was, path)...)
	if t.check != nil {
		errs = append(errs, t.check(o, old)...)
	}
	return nil, append(errs, validation.ValidateObjectMetaAccessor(meta, v.Kind.Namespaced, t.nameCheck(), path)...)
}

// hub are the rules of a kind that has an internal Go type and strategies of its own.
type hub struct {
	scheme *runtime.Scheme
	object strategy
	// status is nil without the subresource.
	status rest.RESTUpdateStrategy
	// created remembers what creating made of objects, nil for a kind whose strategy is fast.
	created *memo[creation]
	// normal and owned remember the same of normalizing, and of the fields that creators own.
	normal memo[normalized]
	owned  memo[[]any]
}

// normalized is what normalizing an object returned.
type normalized struct {
	object  value.Object
	dropped []string
	err     error
}

// creation is what a strategy made of an object that was created.
type creation struct {
	object   value.Object
	warnings []string
	errs     field.ErrorList
}

func (h *hub) normalize(v *Version, o value.Object, strict bool) (value.Object, []string, error) {
	t := &typed{defaults: h.scheme.Default}
	if h.created == nil || value.At(o, "metadata", "uid") != nil || value.Map(o, "metadata") == nil {
		return t.normalize(v, o, strict)
	}
	n := h.normal.get(string(value.Encode(o)), func() normalized {
		object, dropped, err := t.normalize(v, o, true)
		return normalized{object, dropped, err}
	})
	return value.Copy(n.object), slices.Clone(n.dropped), n.err
}

// normalizeStatus normalizes an object of which nothing but the status is not as it was stored. It returns another one.
func (h *hub) normalizeStatus(v *Version, o value.Object) (value.Object, error) {
	managed := value.At(o, "metadata", "managedFields")
	normal := value.Copy(bare(o))
	part := value.Object{"apiVersion": normal["apiVersion"], "kind": normal["kind"], "metadata": value.Object{}, statusOf: normal[statusOf]}
	part, _, err := (&typed{defaults: h.scheme.Default}).normalize(v, part, false)
	if err != nil {
		return nil, err
	}
	if delete(normal, statusOf); part[statusOf] != nil {
		normal[statusOf] = part[statusOf]
	}
	putManaged(normal, managed)
	fields.Parse(normal)
	return normal, nil
}

// internal returns an object in its internal type.
func (h *hub) internal(v *Version, o value.Object) (runtime.Object, error) {
	versioned := v.Kind.New()
	if _, err := decode(o, versioned, false); err != nil {
		return nil, err
	}
	internal, err := h.scheme.UnsafeConvertToVersion(versioned, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, fmt.Errorf("converting a %T: %w", versioned, err)
	}
	return internal, nil
}

// replace puts what a strategy made of an object into it.
func (h *hub) replace(v *Version, o value.Object, internal runtime.Object) error {
	versioned, err := h.scheme.UnsafeConvertToVersion(internal, v.GroupVersion())
	if err != nil {
		return fmt.Errorf("converting a %T: %w", internal, err)
	}
	made, err := content(versioned)
	if err != nil {
		return err
	}
	made["apiVersion"], made["kind"] = v.APIVersion(), v.Kind.Kind
	clear(o)
	maps.Copy(o, made)
	return nil
}

func (h *hub) create(v *Version, o value.Object) ([]string, field.ErrorList) {
	if h.created == nil {
		return h.createAnew(v, o)
	}
	meta := o["metadata"]
	key := value.Shallow(o)
	key["metadata"] = value.Object{"name": value.String(o, "metadata", "name")}
	made := h.created.get(string(value.Encode(key)), func() creation {
		c := creation{object: value.Copy(o)}
		c.warnings, c.errs = h.createAnew(v, c.object)
		delete(c.object, "metadata")
		return c
	})
	clear(o)
	maps.Copy(o, value.Copy(made.object))
	o["metadata"] = meta
	o["metadata"].(value.Object)["generation"] = int64(1) //nolint:forcetypeassert // Every object has metadata.
	return made.warnings, made.errs
}

func (h *hub) createAnew(v *Version, o value.Object) ([]string, field.ErrorList) {
	internal, err := h.internal(v, o)
	if err != nil {
		return nil, failed(err)
	}
	ctx := v.context("")
	h.object.PrepareForCreate(ctx, internal)
	if errs := rest.ValidateCreate(ctx, internal, h.object); len(errs) > 0 {
		return nil, errs
	}
	warnings := h.object.WarningsOnCreate(ctx, internal)
	if err := h.replace(v, o, internal); err != nil {
		return nil, failed(err)
	}
	return warnings, nil
}

func (h *hub) update(v *Version, subresource string, o, old value.Object) ([]string, field.ErrorList) {
	s := rest.RESTUpdateStrategy(h.object)
	if subresource == statusOf {
		s = h.status
	}
	internal, err := h.internal(v, o)
	was, failure := h.internal(v, old)
	if err = errors.Join(err, failure); err != nil {
		return nil, failed(err)
	}
	ctx := v.context(subresource)
	s.PrepareForUpdate(ctx, internal, was)
	if errs := rest.ValidateUpdate(ctx, internal, was, s); len(errs) > 0 {
		return nil, errs
	}
	warnings := s.WarningsOnUpdate(ctx, internal, was)
	if err := h.replace(v, o, internal); err != nil {
		return nil, failed(err)
	}
	return warnings, nil
}

// context is what strategies are called with.
func (v *Version) context(subresource string) context.Context {
	return request.WithRequestInfo(context.Background(), &request.RequestInfo{ //nolint:forbidigo // A request has no context here.
		IsResourceRequest: true, APIGroup: v.Kind.Group, APIVersion: v.Name, Resource: v.Kind.Plural, Subresource: subresource,
	})
}

// failed returns an error that is no client's.
func failed(err error) field.ErrorList { return field.ErrorList{field.InternalError(nil, err)} }

// workloadKinds are kinds whose lists are merged by keys, and which have defaults that are not in their schema. Of the defaults and
// the validation of kube-apiserver they have what concerns the usual fields. Nothing runs them.
func workloadKinds() []*Kind {
	return []*Kind{
		{
			Group: appsv1.GroupName, Kind: "Deployment", Plural: "deployments", ShortNames: []string{"deploy"}, Categories: []string{"all"},
			Namespaced: true, Unconditional: true, Versions: version("v1", statusOf),
			New:   func() runtime.Object { return &appsv1.Deployment{} },
			rules: &typed{defaults: defaultDeployment, prepare: prepareDeployment, check: checkDeployment},
		},
	}
}

// orDefault sets a field that has its zero value.
func orDefault[T comparable](at *T, standard T) {
	if *at == *new(T) {
		*at = standard
	}
}

// orPointer sets a pointer that is nil.
func orPointer[T any](at **T, standard T) {
	if *at == nil {
		*at = &standard
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	orDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	orPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	orPointer(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	orDefault(&spec.DeprecatedServiceAccount, spec.ServiceAccountName)
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
}

func defaultContainer(c *corev1.Container) {
	policy := corev1.PullIfNotPresent
	name := c.Image[strings.LastIndex(c.Image, "/")+1:]
	if _, tag, tagged := strings.Cut(name, ":"); (!tagged || tag == "latest") && !strings.Contains(name, "@") {
		policy = corev1.PullAlways
	}
	orDefault(&c.ImagePullPolicy, policy)
	orDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			orDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
}

func defaultDeployment(object runtime.Object) {
	deployment := object.(*appsv1.Deployment) //nolint:forcetypeassert // The kind has objects of this type alone.
	spec := &deployment.Spec
	defaultPodSpec(&spec.Template.Spec)
	orPointer(&spec.Replicas, 1)
	orPointer(&spec.RevisionHistoryLimit, 10)
	orPointer(&spec.ProgressDeadlineSeconds, 600)
	orDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orPointer(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orPointer(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orPointer(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

// keepHalf keeps the part of an object that an endpoint does not write.
func keepHalf(subresource string, o, old value.Object) {
	if subresource != statusOf {
		o[statusOf] = old[statusOf]
		return
	}
	o["spec"] = old["spec"]
}

func checkContainers(path *field.Path, spec value.Object) field.ErrorList {
	var errs field.ErrorList
	containers := value.List(spec, "containers")
	if len(containers) == 0 {
		return field.ErrorList{field.Required(path.Child("containers"), "")}
	}
	names := map[string]bool{}
	for i, e := range containers {
		container, _ := e.(value.Object)
		at, name := path.Child("containers").Index(i), value.String(container, "name")
		switch {
		case name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[name]:
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		if names[name] = true; value.String(container, "image") == "" {
			errs = append(errs, field.Required(at.Child("image"), ""))
		}
	}
	return errs
}

func prepareDeployment(subresource string, o, old value.Object) {
	if old == nil {
		o[statusOf] = value.Object{}
	} else {
		keepHalf(subresource, o, old)
	}
	countGeneration("metadata", statusOf)(subresource, o, old)
}

func checkDeployment(o, old value.Object) field.ErrorList {
	path := field.NewPath("spec")
	errs := field.ErrorList{}
	if n := value.Int(o, "spec", "replicas"); n < 0 {
		errs = append(errs, field.Invalid(path.Child("replicas"), n, "must be greater than or equal to 0").WithOrigin("minimum"))
	}
	selector, labels := value.Map(o, "spec", "selector", "matchLabels"), value.Map(o, "spec", "template", "metadata", "labels")
	if value.Map(o, "spec", "selector") == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if labels[key] != selector[key] {
			errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), labels, "`selector` does not match template `labels`"))
			break
		}
	}
	errs = append(errs, checkContainers(path.Child("template", "spec"), value.Map(o, "spec", "template", "spec"))...)
	if old != nil && !value.Equal(value.At(o, "spec", "selector"), value.At(old, "spec", "selector")) {
		errs = append(errs, field.Invalid(path.Child("selector"), immutableSelector(selector), "field is immutable").WithOrigin("immutable"))
	}
	return errs
}

// immutableSelector returns a selector as messages show it.
func immutableSelector(labels value.Object) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for k, v := range labels {
		s.MatchLabels[k], _ = v.(string)
	}
	return s
}
