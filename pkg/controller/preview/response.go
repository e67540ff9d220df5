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

package preview

import (
	"encoding/json"
	"fmt"
	"maps"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Response returns a function that returns the body of a response of a sync or finalize hook as people may see it: with the fields alone
// that decode reads, and other values of Secrets. Its error rejects the response, as that of a sync does.
func Response(decode Decoder) func([]byte, wire.ResponseOptions) ([]byte, error) {
	return func(body []byte, o wire.ResponseOptions) ([]byte, error) {
		decoded, err := decode(body, o)
		if err != nil {
			return nil, err
		}
		if _, err := decoded.Children(); err != nil {
			return nil, err
		}
		known, err := decoded.Known(body)
		if err != nil {
			return nil, err
		}
		return ResponseWithoutSecrets(known)
	}
}

// fields are the names of those of an object, or of the objects in a list, that are read, each with what is read inside of it. Inside of
// what has none, all is read.
type fields map[string]fields

// customizeFields are those of the response of a customize hook.
func customizeFields() fields {
	selector := fields{"matchLabels": nil, "matchExpressions": {"key": nil, "operator": nil, "values": nil}}
	return fields{"relatedResources": {
		"apiVersion": nil, "resource": nil, "labelSelector": selector, "namespaceSelector": selector, "namespace": nil, "names": nil,
	}}
}

// CustomizeResponse returns the body of a response of a customize hook with the fields alone that are read, which are as the hook wrote them.
// The error rejects the response.
func CustomizeResponse(body []byte, o wire.ResponseOptions) ([]byte, error) {
	if _, err := wire.DecodeCustomize(body, o); err != nil {
		return nil, err
	}
	var response any
	if err := utiljson.Unmarshal(body, &response); err != nil {
		return nil, fmt.Errorf("decoding the response of a customize hook: %w", err)
	}
	customizeFields().keep(response)
	encoded, err := json.Marshal(response)
	if err != nil {
		return nil, fmt.Errorf("encoding the response of a customize hook: %w", err)
	}
	return encoded, nil
}

// keep takes all other fields out of a value.
func (f fields) keep(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			f.keep(element)
		}
	case map[string]any:
		maps.DeleteFunc(value, func(name string, _ any) bool {
			_, read := f[name]
			return !read
		})
		for name, inside := range f {
			if inside != nil {
				inside.keep(value[name])
			}
		}
	}
}
