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
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// What client-go's reflector asks of objects. The setters change nothing, since objects do not change.

// DeepCopyObject implements runtime.Object. It returns the object itself, which never changes.
func (o *Object) DeepCopyObject() runtime.Object { return o }

// GetObjectKind implements runtime.Object.
func (o *Object) GetObjectKind() schema.ObjectKind { return (*view)(o) }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *Object) GetObjectMeta() metav1.Object { return (*view)(o) }

// GetName is [Object.Name], for klog.KObj.
func (o *Object) GetName() string { return o.Name() }

// GetNamespace is [Object.Namespace], for klog.KObj.
func (o *Object) GetNamespace() string { return o.Namespace() }

// GroupVersionKind is the object's kind in full.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion(), o.Kind())
}

// view is an Object under the names that apimachinery uses.
type view Object

func (v *view) object() *Object { return (*Object)(v) }

func (v *view) GroupVersionKind() schema.GroupVersionKind   { return v.object().GroupVersionKind() }
func (v *view) SetGroupVersionKind(schema.GroupVersionKind) {}

func (v *view) GetNamespace() string                       { return v.object().Namespace() }
func (v *view) SetNamespace(string)                        {}
func (v *view) GetName() string                            { return v.object().Name() }
func (v *view) SetName(string)                             {}
func (v *view) SetGenerateName(string)                     {}
func (v *view) GetUID() types.UID                          { return v.object().UID() }
func (v *view) SetUID(types.UID)                           {}
func (v *view) GetResourceVersion() string                 { return v.object().ResourceVersion() }
func (v *view) SetResourceVersion(string)                  {}
func (v *view) GetGeneration() int64                       { return v.generation }
func (v *view) SetGeneration(int64)                        {}
func (v *view) GetSelfLink() string                        { return "" }
func (v *view) SetSelfLink(string)                         {}
func (v *view) SetCreationTimestamp(metav1.Time)           {}
func (v *view) SetDeletionTimestamp(*metav1.Time)          {}
func (v *view) GetDeletionGracePeriodSeconds() *int64      { return nil }
func (v *view) SetDeletionGracePeriodSeconds(*int64)       {}
func (v *view) GetLabels() map[string]string               { return v.object().Labels() }
func (v *view) SetLabels(map[string]string)                {}
func (v *view) GetAnnotations() map[string]string          { return v.object().Annotations() }
func (v *view) SetAnnotations(map[string]string)           {}
func (v *view) GetFinalizers() []string                    { return v.object().Finalizers() }
func (v *view) SetFinalizers([]string)                     {}
func (v *view) SetOwnerReferences([]metav1.OwnerReference) {}

// GetManagedFields returns nil: they are not read, even when they are kept.
func (v *view) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (v *view) SetManagedFields([]metav1.ManagedFieldsEntry)  {}

func (v *view) GetGenerateName() string {
	raw, ok := v.object().Field("metadata", "generateName")
	if !ok || raw[0] != '"' {
		return ""
	}
	return unquote(stringOf(raw))
}

func (v *view) GetCreationTimestamp() metav1.Time {
	return metav1.Time{Time: v.object().CreationTime()}
}

func (v *view) GetDeletionTimestamp() *metav1.Time {
	if !v.object().Deleting() {
		return nil
	}
	return &metav1.Time{Time: v.object().DeletionTime()}
}

func (v *view) GetOwnerReferences() []metav1.OwnerReference {
	owners := v.object().OwnerReferences()
	if owners == nil {
		return nil
	}
	references := make([]metav1.OwnerReference, len(owners))
	for i, owner := range owners {
		references[i] = metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
		if owner.Controller {
			references[i].Controller = &owner.Controller
		}
		if owner.BlockOwnerDeletion {
			references[i].BlockOwnerDeletion = &owner.BlockOwnerDeletion
		}
	}
	return references
}

// Codec decodes what an API server returns into objects of this package, and errors into *metav1.Status. It is the
// runtime.NegotiatedSerializer of a rest.Config whose client reads. It cannot serve a client's lists and watches: see [ReadList]
// and [EventReader].
type Codec struct {
	// Options say what of objects is kept.
	Options ParseOptions
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c Codec) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType:        runtime.ContentTypeJSON,
		MediaTypeType:    "application",
		MediaTypeSubType: "json",
		EncodesAsText:    true,
		Serializer:       c,
	}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (c Codec) EncoderForVersion(runtime.Encoder, runtime.GroupVersioner) runtime.Encoder { return c }

// DecoderToVersion implements runtime.NegotiatedSerializer. Objects stay in the version in which they were sent.
func (c Codec) DecoderToVersion(runtime.Decoder, runtime.GroupVersioner) runtime.Decoder { return c }

// Identifier implements runtime.Encoder.
func (c Codec) Identifier() runtime.Identifier { return "metacontroller-compact" }

// Encode implements runtime.Encoder.
func (c Codec) Encode(o runtime.Object, w io.Writer) error {
	if err := json.NewEncoder(w).Encode(o); err != nil {
		return fmt.Errorf("encoding %T: %w", o, err)
	}
	return nil
}

// Decode implements runtime.Decoder for an object and an error. What is decoded is always a new value.
func (c Codec) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	decoded, err := c.decode(data)
	if err != nil {
		return nil, nil, err
	}
	kind := decoded.GetObjectKind().GroupVersionKind()
	return decoded, &kind, nil
}

func (c Codec) decode(data []byte) (runtime.Object, error) {
	s := scanner{data: data}
	if s.space() != '{' {
		return nil, fmt.Errorf("decoding a response: %w", s.fail("an object"))
	}
	kind := ""
	err := s.members(func(key span, _ bool) error {
		named := unquote(stringOf(data[key.start:key.end])) == "kind" && s.space() == '"'
		at, err := s.value()
		if named {
			kind = textIn(stringOf(data), at)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("decoding a response: %w", err)
	case kind == "Status":
		return decodeStatus(data)
	default:
		return Parse(data, c.Options)
	}
}

func decodeStatus(data []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	if err := json.Unmarshal(data, status); err != nil {
		return nil, fmt.Errorf("decoding an error of the API server: %w", err)
	}
	return status, nil
}
