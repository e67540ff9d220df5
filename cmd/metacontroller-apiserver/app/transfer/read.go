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
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// readFile returns the objects in a file, in the order in which they are to be created.
func readFile(filename string, in io.Reader) ([]*unstructured.Unstructured, error) {
	f, err := open(filename, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	objects, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filename, err)
	}
	return objects, nil
}

// read returns the objects in documents of YAML or JSON. Lists are taken apart.
func read(in io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents, err := controllerobject.Documents(in)
	if err != nil {
		return nil, err
	}
	for i, document := range documents {
		found, err := decode(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		objects = append(objects, found...)
	}
	if len(objects) == 0 {
		return nil, errors.New("it holds no controller and no ControllerRevision: export writes such a file, and so does kubectl get -o yaml")
	}
	order := map[string]int{}
	for i, k := range kinds() {
		order[k.name] = i
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(order[a.GetKind()], order[b.GetKind()]) })
	return objects, nil
}

// decode returns the objects in one document.
func decode(document []byte) ([]*unstructured.Unstructured, error) {
	encoded, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(encoded, &content); err != nil {
		return nil, errors.New("it is no object")
	}
	if len(content) == 0 {
		return nil, nil
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(encoded); err != nil {
		return nil, err
	}
	if !o.IsList() {
		if err := accept(o); err != nil {
			return nil, err
		}
		return []*unstructured.Unstructured{o}, nil
	}
	list, err := o.ToList()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for i := range list.Items {
		if err := accept(&list.Items[i]); err != nil {
			return nil, err
		}
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

// accept refuses an object of a kind that does not move. It takes the namespace off one of a kind that has none, as API servers do with a body.
func accept(o *unstructured.Unstructured) error {
	k, ok := kindOf(o)
	if !ok {
		return fmt.Errorf("%s %s is neither a controller nor a ControllerRevision", o.GetKind(), o.GetName())
	}
	if !k.namespaced {
		o.SetNamespace("") // It would be part of the address.
	}
	return nil
}

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
