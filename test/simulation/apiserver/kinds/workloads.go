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
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// workloadKinds are kinds whose lists are merged by keys, and which have defaults that are not in their schema. Of the defaults and
// the validation of kube-apiserver they have what concerns the usual fields. Nothing runs their Pods.
func workloadKinds() []*Kind {
	return []*Kind{
		{
			Kind: "Pod", Plural: "pods", ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true, Unconditional: true,
			Versions: version("v1", statusOf), New: func() runtime.Object { return &corev1.Pod{} },
			rules: &typed{defaults: defaultPod, prepare: preparePod, check: checkPod},
		},
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

func defaultPod(object runtime.Object) {
	pod := object.(*corev1.Pod) //nolint:forcetypeassert // The kind has objects of this type alone.
	defaultPodSpec(&pod.Spec)
	orPointer(&pod.Spec.EnableServiceLinks, true)
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

func preparePod(subresource string, o, old value.Object) {
	if old == nil {
		o[statusOf] = value.Object{"phase": string(corev1.PodPending), "qosClass": string(corev1.PodQOSBestEffort)}
		countGeneration("metadata", statusOf)("", o, nil)
		return
	}
	keepHalf(subresource, o, old)
	countGeneration("metadata", statusOf)(subresource, o, old)
}

// checkPod accepts changes of what may be changed in a Pod.
func checkPod(o, old value.Object) field.ErrorList {
	path := field.NewPath("spec")
	errs := checkContainers(path, value.Map(o, "spec"))
	if old == nil || len(errs) > 0 {
		return errs
	}
	fixed := func(o value.Object) value.Object {
		spec := value.Copy(value.Map(o, "spec"))
		for _, name := range []string{"containers", "initContainers"} {
			for _, e := range value.List(spec, name) {
				if container, ok := e.(value.Object); ok {
					delete(container, "image")
				}
			}
		}
		for _, name := range []string{"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"} {
			delete(spec, name)
		}
		return spec
	}
	if !value.Equal(fixed(o), fixed(old)) {
		errs = append(errs, field.Forbidden(path, "pod updates may not change fields other than `spec.containers[*].image`,"+
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
	}
	return errs
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
