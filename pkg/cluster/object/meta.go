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

package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DeepCopyObject implements runtime.Object. It returns the object itself, which never changes.
func (o *Object) DeepCopyObject() runtime.Object { return o }

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return kindOf{o} }

// GroupVersionKind returns the object's kind in full.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.apiVersion, o.kind)
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, through which client-go's reflector reads versions and names. The
// result is a copy of the parts that a reflector needs; setting something in it changes nothing here.
func (o *Object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Namespace:       o.namespace,
		Name:            o.name,
		UID:             o.uid,
		ResourceVersion: o.resourceVersion,
		Generation:      o.generation,
		Labels:          o.labels,
		Annotations:     o.bookmark(),
	}
}

// bookmark returns the annotations of an object that only tells a version (KEP-3157); others are not decoded.
func (o *Object) bookmark() map[string]string {
	if o.name != "" {
		return nil
	}
	return o.Annotations()
}

// kindOf shows an object's kind without letting it be changed.
type kindOf struct{ o *Object }

func (k kindOf) GroupVersionKind() schema.GroupVersionKind   { return k.o.GroupVersionKind() }
func (k kindOf) SetGroupVersionKind(schema.GroupVersionKind) {}
