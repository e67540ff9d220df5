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

package parent

import (
	"maps"
	"strconv"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Key names a parent of a controller. Keys of the same resource, namespace and name are equal. There are many: each mechanism that remembers
// something of parents has one for each of them.
type Key struct {
	// resource is the zero handle for the zero resource.
	resource unique.Handle[schema.GroupResource]
	// Namespace is empty for cluster-scoped parents.
	Namespace string
	// Name is the parent's name.
	Name string
}

// NewKey returns the key of the parent with a name, in a namespace, which is empty for cluster-scoped parents.
func NewKey(resource schema.GroupResource, namespace, name string) Key {
	k := Key{Namespace: namespace, Name: name}
	if !resource.Empty() {
		k.resource = unique.Make(resource)
	}
	return k
}

// Resource is the parent's resource. A decorator has parents of several. It is the zero value for a key that NewKey did not make.
func (k Key) Resource() schema.GroupResource {
	if k.resource == (unique.Handle[schema.GroupResource]{}) {
		return schema.GroupResource{}
	}
	return k.resource.Value()
}

// String returns resource.group/namespace/name, for logs.
func (k Key) String() string {
	return k.Resource().String() + "/" + klog.KRef(k.Namespace, k.Name).String()
}

// KeyOf returns the key of an object. The key shares no memory with the object's JSON, since it is remembered longer than the object.
func KeyOf(resource schema.GroupResource, o *object.Object) Key {
	return NewKey(resource, o.Namespace(), strings.Clone(o.Name()))
}

// StatusOnly reports whether an update changed nothing that ignoreStatusChanges looks at: neither generation nor labels
// nor annotations, and the object is not being deleted (docs/reference/contract.md#s5.2).
func StatusOnly(before, after *object.Object) bool {
	return before != nil && after != nil && before.UID() == after.UID() &&
		before.Generation() == after.Generation() &&
		!after.Deleting() &&
		maps.Equal(before.Labels(), after.Labels()) &&
		maps.Equal(before.Annotations(), after.Annotations())
}

// Unsettled reports whether a change of o has not been synced, as far as o itself shows: it is being deleted, or its status
// does not show the present generation, which the engine writes with every sync (docs/reference/contract.md#s6). Of kinds without a generation
// it is false.
func Unsettled(o *object.Object) bool {
	if o.Deleting() {
		return true
	}
	if o.Generation() == 0 {
		return false
	}
	observed, _ := o.Field("status", "observedGeneration")
	return string(observed) != strconv.FormatInt(o.Generation(), 10)
}

// Ended reports whether an object, as a write returned it, is gone by that write: it is being deleted, and neither a finalizer nor a grace
// period holds it. Namespaces have finalizers of their own besides.
func Ended(o *object.Object) bool {
	if !o.Deleting() || len(o.Finalizers()) > 0 {
		return false
	}
	if grace, set := o.Field("metadata", "deletionGracePeriodSeconds"); set && string(grace) != "0" {
		return false
	}
	held, set := o.Field("spec", "finalizers")
	return !set || o.APIVersion() != "v1" || o.Kind() != "Namespace" || string(held) == "[]" || string(held) == "null"
}
