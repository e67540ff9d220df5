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
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Manifest is a document of a file, or an item of a list in one.
type Manifest struct {
	// APIVersion and Kind are empty for what is no object.
	APIVersion, Kind string
	// Document counts the documents of the file from 1.
	Document int
	// Text is the document as it was written, and JSON the same; of an item of a list both are JSON.
	Text, JSON []byte
	// Err says why the document cannot be read, nil if it can.
	Err error
}

// Manifests reads the documents of a file, which toJSON converts. Lists as kubectl prints them, and those of a kind of the group, are taken apart.
func Manifests(in io.Reader, toJSON func(document []byte) ([]byte, error)) ([]Manifest, error) {
	documents, err := Documents(in)
	if err != nil {
		return nil, err
	}
	var list []Manifest
	for i, document := range documents {
		m := Manifest{Document: i + 1, Text: document}
		if m.JSON, err = toJSON(document); err != nil {
			m.Err = fmt.Errorf("error converting YAML to JSON: %w", err)
		}
		list = append(list, m.apart()...)
	}
	return list, nil
}

// Ours reports whether the manifest is one of the API group, of whatever version and kind.
func (m Manifest) Ours() bool {
	version, err := schema.ParseGroupVersion(m.APIVersion)
	return err == nil && version.Group == v1alpha1.GroupName
}

// apart returns the objects in a list, or else the manifest itself.
func (m Manifest) apart() []Manifest {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	err := json.Unmarshal(m.JSON, &head) // What is no object is no list.
	m.APIVersion, m.Kind = head.APIVersion, head.Kind
	kind, isList := strings.CutSuffix(m.Kind, "List")
	switch {
	case !isList || !m.Ours() && (kind != "" || m.APIVersion != "v1"):
		return []Manifest{m}
	case err != nil:
		m.Err = errors.New("items must be an array")
		return []Manifest{m}
	}
	var objects []Manifest
	for _, item := range head.Items {
		if kind != "" {
			item = completed(item, m.APIVersion, kind)
		}
		objects = append(objects, Manifest{Document: m.Document, Text: item, JSON: item}.apart()...)
	}
	return objects
}

// completed returns an item of a list with what the list says that it is, if it does not say so itself.
func completed(item json.RawMessage, apiVersion, kind string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(item, &fields) != nil || fields == nil || fields["kind"] != nil {
		return item
	}
	fields["apiVersion"], fields["kind"] = json.RawMessage(strconv.Quote(apiVersion)), json.RawMessage(strconv.Quote(kind))
	if encoded, err := json.Marshal(fields); err == nil {
		return encoded
	}
	return item
}

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
