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

package fake_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	applymetacontrollerv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/applyconfiguration/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/fake"
	typedfake "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1/fake"
)

func TestReactorsAnswerReadsOfSubresources(t *testing.T) {
	client := fake.NewClientset()
	controllers := client.MetacontrollerV1alpha1().CompositeControllers()
	options := v1alpha1.ControllerParentOptions{Namespace: "shop", State: "Failing"}

	if none, err := controllers.GetParents(t.Context(), "website", options); err != nil || len(none.Items) != 0 {
		t.Errorf("without a reactor there are %v, error %v", none, err)
	}
	client.PrependReactor("get", "compositecontrollers/parents", func(a clienttesting.Action) (bool, runtime.Object, error) {
		read, ok := a.(typedfake.ReadAction)
		if !ok || read.GetName() != "website" || read.GetValue() != options {
			t.Errorf("the action is %+v", a)
		}
		return true, &v1alpha1.ControllerParentList{Items: []v1alpha1.ControllerParent{{}}}, nil
	})
	if one, err := controllers.GetParents(t.Context(), "website", options); err != nil || len(one.Items) != 1 {
		t.Errorf("with a reactor there are %v, error %v", one, err)
	}
	client.PrependReactor("get", "compositecontrollers/syncs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &v1alpha1.ControllerParentList{}, nil
	})
	if _, err := controllers.GetSyncs(t.Context(), "website", v1alpha1.ControllerSyncOptions{}); err == nil {
		t.Error("a reactor that returns another type is no error")
	}
}

// The clientset that tracks fields knows the types by the names of their models.
func TestTheFakeStoresControllers(t *testing.T) {
	controllers := fake.NewClientset().MetacontrollerV1alpha1().CompositeControllers()
	controller := &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: "website"},
		Spec:       v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://hook/sync")}}}},
	}
	created, err := controllers.Create(t.Context(), controller, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Spec.Paused = new(true)
	if _, err := controllers.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	applied := applymetacontrollerv1alpha1.CompositeController("website").WithSpec(applymetacontrollerv1alpha1.CompositeControllerSpec().WithWorkers(3))
	got, err := controllers.Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: "test"})
	if err != nil || got.Spec.Workers == nil || *got.Spec.Workers != 3 || got.Spec.Paused == nil || !*got.Spec.Paused {
		t.Errorf("got %+v, error %v", got, err)
	}
	extracted, err := applymetacontrollerv1alpha1.ExtractCompositeController(got, "test")
	if err != nil || extracted.Spec == nil || extracted.Spec.Workers == nil || extracted.Spec.Paused != nil {
		t.Errorf("extracted %+v, error %v", extracted, err)
	}
}
