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

package clusterwarnings_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// some is a list with one object.
func some() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
}

// annotated is a page of a list, of objects of which one has an annotation.
func annotated(next string, annotations map[string]string) *metav1.PartialObjectMetadataList {
	page := some()
	page.Continue = next
	page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: annotations}})
	return page
}

// endless is a list of which each page says that there is another one.
func endless(path string) world {
	return world{path: annotated("more", nil), path + "&more": annotated("more", nil)}
}

func TestWarningsAboutADeletion(t *testing.T) {
	selected := deployments(func(s *v1alpha1.CompositeControllerSpec) {
		s.ParentResource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	})
	finalizing := deployments(func(s *v1alpha1.CompositeControllerSpec) {
		s.Hooks = &v1alpha1.CompositeControllerHooks{Finalize: &v1alpha1.Hook{}}
	})
	decorator := func(change ...func(*v1alpha1.DecoratorControllerSpec)) *metacontroller.DecoratorController {
		d := &metacontroller.DecoratorController{Spec: v1alpha1.DecoratorControllerSpec{Resources: []v1alpha1.DecoratorControllerResourceRule{
			{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
			{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}},
		}}}
		for _, c := range change {
			c(&d.Spec)
		}
		return d
	}
	attaching := func(s *v1alpha1.DecoratorControllerSpec) {
		s.Attachments = []v1alpha1.DecoratorControllerAttachmentRule{{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "services"}}}
	}
	ending := func(s *v1alpha1.DecoratorControllerSpec) {
		s.Hooks = &v1alpha1.DecoratorControllerHooks{Finalize: &v1alpha1.Hook{}}
	}
	noted := func(s *v1alpha1.DecoratorControllerSpec) {
		s.Resources = s.Resources[:1]
		s.Resources[0].AnnotationSelector = &v1alpha1.AnnotationSelector{MatchAnnotations: map[string]string{"a": "b"}}
	}
	attachments := "spec.resources[0]: the controller handles pods, of which there are some: their attachments stay, and nobody updates them until you " +
		"create a controller for them again; to have the attachments deleted as well, have the hook return none before you delete the controller"
	for name, test := range map[string]struct {
		world world
		old   runtime.Object
		want  []string
	}{
		"there are parents": {world{"/apis/apps/v1/deployments": some()}, deployments(), []string{
			"spec.parentResource: the controller handles deployments.apps, of which there are some: their children stay, and nobody updates them until " +
				"you create a controller for them again; to have the children deleted as well, delete the deployments.apps before the controller",
		}},
		"there is a finalize hook": {world{"/apis/apps/v1/deployments": some()}, finalizing, []string{
			"spec.parentResource: the controller handles deployments.apps, of which there are some: their children stay, and nobody updates them, " +
				"nor are they finalized until you create a controller for them again; to have the children deleted as well, delete the deployments.apps " +
				"before the controller",
		}},
		"there are targets": {
			world{"/api/v1/pods": some(), "/apis/apps/v1/deployments": &metav1.PartialObjectMetadataList{}}, decorator(attaching), []string{attachments},
		},
		"there are targets that are finalized": {world{"/api/v1/pods": some()}, decorator(ending), []string{
			"spec.resources[0]: the controller handles pods, of which there are some: they are not finalized until you create a controller for them again",
		}},
		"there are targets without attachments": {world{"/api/v1/pods": some()}, decorator(), nil},
		"there are parents without children": {world{"/apis/apps/v1/deployments": some()}, deployments(func(s *v1alpha1.CompositeControllerSpec) {
			s.ChildResources = nil
		}), nil},
		"no annotation is selected": {world{"/api/v1/pods": annotated("", map[string]string{"a": "c"})}, decorator(attaching, noted), nil},
		"an annotation is selected": {world{"/api/v1/pods": annotated("", map[string]string{"a": "b"})}, decorator(attaching, noted), []string{attachments}},
		"an annotation on another page is selected": {
			world{"/api/v1/pods": annotated("2", nil), "/api/v1/pods&2": annotated("", map[string]string{"a": "b"})},
			decorator(attaching, noted),
			[]string{attachments},
		},
		"there are too many to look at": {endless("/api/v1/pods"), decorator(attaching, noted), nil},
		"there are none":                {world{"/apis/apps/v1/deployments": &metav1.PartialObjectMetadataList{}}, deployments(), nil},
		"there are others only":         {world{"/apis/apps/v1/deployments": some(), "/apis/apps/v1/deployments?a=b": &metav1.PartialObjectMetadataList{}}, selected, nil},
		"the kind is not served":        {world{}, deployments(), nil},
		"the server may not look":       {world{"/apis/apps/v1/deployments": http.StatusForbidden}, deployments(), nil},
		"another object of the group":   {world{"/apis/apps/v1/deployments": some()}, &metacontroller.ControllerRevision{}, nil},
		"the API server does not tell":  {world{"/apis/apps/v1/deployments": hangs{}}, deployments(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, warningsIn(t, test.world, nil, test.old)); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}
