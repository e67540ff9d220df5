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
)

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
