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

package metacontroller_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
)

func TestCompositesAreSelectedByTheirParents(t *testing.T) {
	o := &metacontroller.CompositeController{}
	o.Name, o.Labels = "a", map[string]string{"team": "x"}
	o.Spec.ParentResource.APIVersion, o.Spec.ParentResource.Resource = "example.com/v1", "things"
	for selector, want := range map[string]bool{
		"spec.parentResource.resource=things":                                                    true,
		"spec.parentResource.resource==things,spec.parentResource.apiVersion=example.com/v1":     true,
		"spec.parentResource.resource!=things":                                                   false,
		"spec.parentResource.resource=pods":                                                      false,
		"spec.parentResource.resource=things,spec.parentResource.apiVersion=example.com/v1beta1": false,
		"metadata.name=a,spec.parentResource.resource=things":                                    true,
		"metadata.name=b,spec.parentResource.resource=things":                                    false,
	} {
		parsed, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		field, err := parsed.Transform(func(label, value string) (string, string, error) {
			return newServer().scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("CompositeController"), label, value)
		})
		if err != nil {
			t.Fatalf("%s: %v", selector, err)
		}
		predicate := controller.Composites().Predicate(labels.SelectorFromSet(labels.Set{"team": "x"}), field)
		if got, err := predicate.Matches(o); err != nil || got != want {
			t.Errorf("%s selects: %v, want %v (%v)", selector, got, want, err)
		}
	}
	if _, _, err := newServer().scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("CompositeController"), "spec.workers", "5"); err == nil {
		t.Error("a field is accepted that nothing is selected by")
	}
}
