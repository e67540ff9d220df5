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

package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// jsonOnly is what the group's endpoints speak: JSON and YAML.
//
// Protobuf is taken off, because the types do not implement it. The generic server would offer it all the same, and a
// client that asks for it first, as the namespace controller does, would get errors instead of the next best
// (kubernetes/kubernetes#86666).
type jsonOnly struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes are those of the wrapped serializer without protobuf.
func (j jsonOnly) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(j.NegotiatedSerializer.SupportedMediaTypes()),
		func(info runtime.SerializerInfo) bool { return info.MediaType == runtime.ContentTypeProtobuf })
}

// DecoderToVersion returns a decoder whose errors name the field.
func (j jsonOnly) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return explaining{j.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

// explaining decodes objects. Where an object has a duration that Go cannot parse (contract §1.5), the error names the field,
// which the decoder of JSON does not know.
type explaining struct {
	runtime.Decoder
}

// Decode decodes data.
func (e explaining) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, gvk, err := e.Decoder.Decode(data, defaults, into)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		if bad := badDurations(data); len(bad) > 0 {
			err = bad.ToAggregate()
		}
	}
	return object, gvk, err
}

// badDurations finds the timeouts of webhooks that are not durations.
func badDurations(data []byte) field.ErrorList {
	var tree any
	if json.Unmarshal(data, &tree) != nil && yaml.Unmarshal(data, &tree) != nil {
		return nil
	}
	var errs field.ErrorList
	var visit func(node any, path *field.Path)
	visit = func(node any, path *field.Path) {
		object, ok := node.(map[string]any)
		if !ok {
			return
		}
		for key, value := range object {
			at := path.Child(key)
			if webhook, ok := value.(map[string]any); ok && key == "webhook" {
				if err := checkDuration(webhook["timeout"]); err != nil {
					errs = append(errs, field.Invalid(at.Child("timeout"), webhook["timeout"], err.Error()))
				}
			}
			visit(value, at)
		}
	}
	visit(tree, nil)
	slices.SortFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	return errs
}

var errDuration = errors.New(`must be a duration in hours, minutes and seconds, such as "1h30m", "90s" or "500ms"`)

func checkDuration(value any) error {
	if value == nil {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return errDuration
	}
	if _, err := time.ParseDuration(text); err != nil {
		return errDuration
	}
	return nil
}
