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

package controllerobject

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Documents splits a file into its documents: YAML between lines of ---, and JSON values that follow one another, as kubectl takes them.
func Documents(in io.Reader) ([][]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var list [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if !utilyaml.IsJSONBuffer(document) {
			list = append(list, document)
			continue
		}
		values, err := jsonValues(document)
		switch {
		case err != nil && len(values) == 0: // Flow style of YAML begins like JSON.
			list = append(list, document)
		case err != nil:
			return nil, err
		default:
			list = append(list, values...)
		}
	}
}

func jsonValues(document []byte) (list [][]byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	for {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return list, fmt.Errorf("reading JSON: %w", err)
		}
		list = append(list, value)
	}
}
