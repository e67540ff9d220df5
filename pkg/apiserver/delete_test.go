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

package apiserver_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
)

// deletions are admission of the shared server: it calls what is stored for the name of an object when that is about to be deleted, once.
var deletions deletionHooks

type deletionHooks struct{ byName sync.Map }

// Handles implements admission.Interface.
func (*deletionHooks) Handles(o admission.Operation) bool { return o == admission.Delete }

// Validate implements admission.ValidationInterface.
func (d *deletionHooks) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	o, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil //nolint:nilerr // A collection is asked about as a whole before its objects are.
	}
	if f, ok := d.byName.LoadAndDelete(o.GetName()); ok {
		if call, ok := f.(func()); ok {
			call()
		}
	}
	return nil
}

func TestAnObjectThatIsGivenAFinalizerWhileItIsDeletedStaysUntilThatIsTakenOff(t *testing.T) {
	for name, path := range map[string]string{
		"delete":           composites + "/given-delete",
		"deletecollection": composites + "?fieldSelector=metadata.name%3Dgiven-deletecollection",
	} {
		t.Run(name, func(t *testing.T) {
			object := "given-" + name
			api, patched := client(t).MetacontrollerV1alpha1().CompositeControllers(), false
			ask(t, http.MethodPost, composites, compositeJSON(object, "")).must(t, http.StatusCreated)
			finalizers := func(list string) error {
				_, err := api.Patch(t.Context(), object, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
				return err
			}
			deletions.byName.Store(object, func() {
				if err := finalizers(`["example.com/hold"]`); err != nil {
					t.Errorf("while the object is deleted: %v", err)
				}
				patched = true
			})
			ask(t, http.MethodDelete, path, "").must(t, http.StatusOK)
			if !patched {
				t.Fatal("the deletion was not validated")
			}
			o, err := api.Get(t.Context(), object, metav1.GetOptions{})
			if err != nil {
				t.Fatalf("the object is gone, and its finalizer with it: %v", err)
			}
			if o.DeletionTimestamp == nil || len(o.Finalizers) != 1 {
				t.Errorf("deleted at %v with the finalizers %v, want it to be on its way out with one", o.DeletionTimestamp, o.Finalizers)
			}
			if err := finalizers(`[]`); err != nil {
				t.Fatal(err)
			}
			ask(t, http.MethodGet, composites+"/"+object, "").must(t, http.StatusNotFound)
		})
	}
}
