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

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
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
