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

package inline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Published are the schemas that a cluster publishes. It reads each document once, and is not safe for concurrent use. Large parts of
// documents stay in memory with it.
type Published struct {
	// Kind returns the kind of a resource, empty when it is not served.
	Kind func(apiVersion, resource string) (string, error)
	// Document returns the OpenAPI document, version 3, of a group-version, nil when there is none.
	Document func(version schema.GroupVersion) ([]byte, error)

	documents map[string]map[string]*spec.Schema
	err       error
}

var _ Schemas = (*Published)(nil)

// Err returns the errors of reading. What could not be read counted as not served, or as without a schema.
func (p *Published) Err() error { return p.err }

// Resource implements [Schemas].
func (p *Published) Resource(apiVersion, resource string) (*Kind, bool) {
	name, err := p.Kind(apiVersion, resource)
	if err != nil {
		p.err = errors.Join(p.err, err)
		return nil, false
	}
	if name == "" {
		return nil, false
	}
	kind := &Kind{APIVersion: apiVersion, Name: name, Definitions: p.read(apiVersion)}
	for _, s := range kind.Definitions {
		if _, ok := s.Properties["metadata"]; ok && isOf(s, apiVersion, name) {
			kind.Schema = s
		}
	}
	return kind, true
}

// read returns the schemas of a group-version.
func (p *Published) read(apiVersion string) map[string]*spec.Schema {
	known, ok := p.documents[apiVersion]
	if ok {
		return known
	}
	var data []byte
	version, err := schema.ParseGroupVersion(apiVersion)
	if err == nil {
		data, err = p.Document(version)
	}
	var document struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &document)
	}
	if err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("reading the schemas of %s: %w", apiVersion, err))
	}
	if p.documents == nil {
		p.documents = map[string]map[string]*spec.Schema{}
	}
	p.documents[apiVersion] = document.Components.Schemas
	return document.Components.Schemas
}

// isOf reports whether a schema says that it is that of a kind.
func isOf(s *spec.Schema, apiVersion, name string) bool {
	kinds, _ := s.Extensions["x-kubernetes-group-version-kind"].([]any)
	for _, each := range kinds {
		kind, _ := each.(map[string]any)
		group, _ := kind["group"].(string)
		version, _ := kind["version"].(string)
		if kind[kindField] == name && strings.TrimPrefix(group+"/"+version, "/") == apiVersion {
			return true
		}
	}
	return false
}
