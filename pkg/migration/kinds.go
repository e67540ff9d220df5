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

package migration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// kind is a kind of objects that move.
type kind struct {
	name, resource string
	namespaced     bool
}

// kinds are the kinds that move, revisions first: a controller without them takes all children for children of the latest revision.
func kinds() []kind {
	return []kind{
		{name: "ControllerRevision", resource: "controllerrevisions", namespaced: true},
		{name: "CompositeController", resource: "compositecontrollers"},
		{name: "DecoratorController", resource: "decoratorcontrollers"},
	}
}

func (k kind) singular() string { return strings.TrimSuffix(k.resource, "s") }

// definition is the name of the CustomResourceDefinition.
func (k kind) definition() string { return k.resource + "." + v1alpha1.GroupName }

// served is the resource as users know it, whoever serves it.
func (k kind) served() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(k.resource)
}

// stored is the resource behind the door.
func (k kind) stored() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: doorVersion, Resource: k.resource}
}

// objects are objects of all kinds.
type objects map[string]*unstructured.Unstructured

// keyOf names an object as messages do.
func keyOf(k kind, o *unstructured.Unstructured) string {
	if k.namespaced {
		return k.name + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return k.name + " " + o.GetName()
}

// digest is the same for the same objects in the same states, and for no others.
func (all objects) digest() string {
	hash := sha256.New()
	for _, key := range all.keys() {
		o := all[key]
		fmt.Fprintf(hash, "%s %s %s\n", key, o.GetUID(), o.GetResourceVersion())
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func (all objects) keys() []string { return slices.Sorted(maps.Keys(all)) }

// differing says in which objects the copies are not what they were made of, each in a sentence. A copy may have defaults beside.
func differing(of, copies objects) (sentences []string) {
	for _, key := range of.keys() {
		found, ok := copies[key]
		if !ok {
			sentences = append(sentences, key+" is missing")
			continue
		}
		if field := lacking(content(of[key]), content(found), ""); field != "" {
			sentences = append(sentences, fmt.Sprintf("%s differs in %s", key, field))
		}
	}
	for _, key := range copies.keys() {
		if _, ok := of[key]; !ok {
			sentences = append(sentences, key+" is one too many")
		}
	}
	return sentences
}

// content returns an object without what each store has of its own.
func content(o *unstructured.Unstructured) map[string]any {
	stripped := o.DeepCopy()
	for _, field := range []string{"resourceVersion", "selfLink", "managedFields"} {
		unstructured.RemoveNestedField(stripped.Object, "metadata", field)
	}
	return stripped.Object
}

// lacking returns the path of the first value in a that is not in b. An empty value and none are the same. Empty: b has all. In the metadata and
// the status of objects b has no other values either: they have no defaults, and no generation counts their changes.
func lacking(a, b any, path string) string {
	if empty(a) && empty(b) {
		return ""
	}
	switch a := a.(type) {
	case map[string]any:
		b, _ := b.(map[string]any)
		return lackingIn(a, b, path)
	case []any:
		b, _ := b.([]any)
		if len(a) != len(b) {
			return path
		}
		for i := range a {
			if field := lacking(a[i], b[i], fmt.Sprintf("%s[%d]", path, i)); field != "" {
				return field
			}
		}
		return ""
	default:
		if !reflect.DeepEqual(a, b) {
			return path
		}
		return ""
	}
}

func lackingIn(a, b map[string]any, path string) string {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if field := lacking(a[name], b[name], path+"."+name); field != "" {
			return field
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		field := path + "." + name
		if _, ok := a[name]; !ok && !empty(b[name]) && (strings.HasPrefix(field, ".metadata") || strings.HasPrefix(field, ".status")) {
			return field
		}
	}
	return ""
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return reflect.ValueOf(value).IsZero()
	}
}
