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
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Codec decodes what an API server sends into objects and lists of this package. It is a runtime.NegotiatedSerializer
// for a rest.Config whose client only lists and watches; it cannot encode anything but errors.
type Codec struct {
	// Options say how objects are taken in.
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
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true,
			Serializer:    c,
			Framer:        jsonserializer.Framer,
		},
	}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (c Codec) EncoderForVersion(runtime.Encoder, runtime.GroupVersioner) runtime.Encoder { return c }

// DecoderToVersion implements runtime.NegotiatedSerializer. Objects stay in the version in which they were sent.
func (c Codec) DecoderToVersion(runtime.Decoder, runtime.GroupVersioner) runtime.Decoder { return c }

// Identifier implements runtime.Encoder.
func (c Codec) Identifier() runtime.Identifier { return "metacontroller-compact" }

// Encode implements runtime.Encoder, for the options of requests.
func (c Codec) Encode(o runtime.Object, w io.Writer) error {
	if err := json.NewEncoder(w).Encode(o); err != nil {
		return fmt.Errorf("encoding %T: %w", o, err)
	}
	return nil
}

// Decode implements runtime.Decoder for an object, a list, an event of a watch and an error.
func (c Codec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		return event, nil, decodeEvent(data, event)
	}
	decoded, err := c.decode(data)
	if err != nil {
		return nil, nil, err
	}
	kind := decoded.GetObjectKind().GroupVersionKind()
	switch into := into.(type) {
	case *List:
		if list, ok := decoded.(*List); ok {
			*into = *list
			return into, &kind, nil
		}
	case *Object:
		if o, ok := decoded.(*Object); ok {
			*into = *o
			return into, &kind, nil
		}
	}
	return decoded, &kind, nil
}

func (c Codec) decode(data []byte) (runtime.Object, error) {
	kind, list, err := shape(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("parsing an answer: %w", err)
	case kind == "Status":
		status := &metav1.Status{}
		if err := json.Unmarshal(data, status); err != nil {
			return nil, fmt.Errorf("parsing an error of the API server: %w", err)
		}
		return status, nil
	case list:
		return ParseList(data, c.Options)
	}
	return Parse(data, c.Options)
}

// shape returns the kind of what is in data, and whether it is a list.
func shape(data []byte) (kind string, list bool, err error) {
	s := scanner{data: data}
	named := false
	err = s.members(func(key []byte) (bool, error) {
		var err error
		switch string(key) {
		case "kind":
			kind, err = s.text()
			return true, err
		case "items":
			list = true
		case "metadata":
			if s.peek() == '{' {
				err = s.members(func(key []byte) (bool, error) {
					named = named || string(key) == "name"
					return false, nil
				})
				return true, err
			}
		}
		return false, nil
	})
	// A kind may have a field of that name; only objects have names.
	return kind, list && !named, err
}

// decodeEvent reads the envelope of a watch event. The object in it shares data's memory; it is parsed, and thereby
// copied, before the memory is used again.
func decodeEvent(data []byte, event *metav1.WatchEvent) error {
	s := scanner{data: data}
	err := s.members(func(key []byte) (bool, error) {
		var err error
		switch string(key) {
		case "type":
			var quoted []byte
			if quoted, err = s.quoted(); err == nil {
				event.Type = string(quoted[1 : len(quoted)-1])
			}
		case "object":
			event.Object.Raw, err = s.value()
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("parsing a watch event: %w", err)
	}
	return nil
}
