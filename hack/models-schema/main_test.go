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

package main

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	applyv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/applyconfiguration/metacontroller/v1alpha1"
)

// TestOwnElementsOfListsAreExtractedAlone extracts what one field manager owns of lists that have elements of several.
func TestOwnElementsOfListsAreExtractedAlone(t *testing.T) {
	fields := &metav1.FieldsV1{}
	fields.SetRawString(`{"f:metadata":{"f:finalizers":{"v:\"example.com/mine\"":{}}}}`)
	o := &v1alpha1.CompositeController{
		TypeMeta: metav1.TypeMeta{APIVersion: "metacontroller.k8s.io/v1alpha1", Kind: "CompositeController"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Finalizers: []string{"metacontroller.k8s.io/parents", "example.com/mine"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "mine", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "metacontroller.k8s.io/v1alpha1", FieldsType: "FieldsV1",
				FieldsV1: fields,
			}},
		},
	}
	got, err := applyv1alpha1.ExtractCompositeController(o, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"example.com/mine"}; !slices.Equal(got.Finalizers, want) {
		t.Errorf("the finalizers of this manager are %q, want %q", got.Finalizers, want)
	}
}
