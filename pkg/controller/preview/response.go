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

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Response returns a function that returns the body of a response of a sync or finalize hook as people may see it: with the fields alone
// that decode reads, and other values of Secrets. Its error rejects the response, as that of a sync does.
func Response(decode func([]byte, wire.ResponseOptions) (wire.Response, error)) func([]byte, wire.ResponseOptions) ([]byte, error) {
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

// CustomizeResponse returns the body of a response of a customize hook with the fields alone that are read. The error rejects the response.
func CustomizeResponse(body []byte, o wire.ResponseOptions) ([]byte, error) {
	decoded, err := wire.DecodeCustomize(body, o)
	if err != nil {
		return nil, err
	}
	known := map[string]any{"relatedResources": decoded.Rules}
	if decoded.Rules == nil {
		known["relatedResources"] = []any{}
	}
	encoded, err := json.Marshal(known)
	if err != nil {
		return nil, fmt.Errorf("encoding the rules of a customize hook: %w", err)
	}
	return encoded, nil
}
