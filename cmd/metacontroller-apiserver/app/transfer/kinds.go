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

package transfer

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// kind is a kind of objects that move.
type kind struct {
	name, plural string
	namespaced   bool
	// controller says that it is one of the kinds that run.
	controller bool
}

// kinds are the kinds that move, in the order in which they are created: a controller begins as soon as it is there, and then needs its
// revisions.
func kinds() []kind {
	return []kind{
		{name: "ControllerRevision", plural: "controllerrevisions", namespaced: true},
		{name: "CompositeController", plural: "compositecontrollers", controller: true},
		{name: "DecoratorController", plural: "decoratorcontrollers", controller: true},
	}
}

func (k kind) resource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(k.plural)
}

// kindOf returns the kind of an object; false if it does not move.
func kindOf(o *unstructured.Unstructured) (kind, bool) {
	if o.GroupVersionKind().Group != v1alpha1.GroupName {
		return kind{}, false
	}
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == o.GetKind() })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// describe names an object as kubectl does.
func describe(k kind, o *unstructured.Unstructured) string {
	name := k.plural[:len(k.plural)-1] + "." + v1alpha1.GroupName + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name += " in namespace " + o.GetNamespace()
	}
	return name
}

// holdFinalizer is what the server puts on controllers itself.
const holdFinalizer = "metacontroller.k8s.io/parents"

// clean takes off what whoever stores an object gives it. Owners stay, with their UIDs: they are objects of the cluster.
func clean(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	finalizers := slices.DeleteFunc(o.GetFinalizers(), func(name string) bool { return name == holdFinalizer })
	if len(finalizers) == 0 {
		finalizers = nil
	}
	o.SetFinalizers(finalizers)
	finalized, found, err := unstructured.NestedSlice(o.Object, "status", finalizedResources)
	unstructured.RemoveNestedField(o.Object, "status")
	if found && err == nil && len(finalized) > 0 {
		o.Object["status"] = map[string]any{finalizedResources: finalized}
	}
	return o
}

// finalizedResources is the field of the status that is kept: what is in it that the definition does not finalize any more is to be
// released.
const finalizedResources = "finalizedResources"
