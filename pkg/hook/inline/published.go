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
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Published are the schemas that a cluster publishes. It reads each document once, and is not safe for concurrent use. The documents stay in
// memory with it.
type Published struct {
	// Definition returns the CustomResourceDefinition of a resource as JSON, nil when there is none, or it may not be read. API servers publish
	// its schema about a second later than it counts. A nil function leaves it at what they publish.
	Definition func(schema.GroupResource) ([]byte, error)
	// Kind returns the kind of a resource, empty when it is not served.
	Kind func(apiVersion, resource string) (string, error)
	// Document returns the OpenAPI document, version 3, of a group-version, nil when there is none.
	Document func(version schema.GroupVersion) ([]byte, error)

	kinds     map[string]*Kind
	documents map[string]*openAPI
	err       error
}

var _ Schemas = (*Published)(nil)

// Err returns the errors of reading. What could not be read counted as not served, or as without a schema.
func (p *Published) Err() error { return p.err }

// Read reads the kinds of some resources, and returns a sum of what the cluster says of them, empty if something cannot be read. Hooks that name no
// others compile with the same sum as before.
func (p *Published) Read(resources []v1alpha1.ResourceRule) string {
	all := sha256.New()
	for _, r := range resources {
		if kind, served := p.Resource(r.APIVersion, r.Resource); served {
			fmt.Fprintln(all, kind.Name, p.read(r.APIVersion).sum)
		}
		fmt.Fprintln(all)
	}
	if p.err != nil {
		return ""
	}
	return string(all.Sum(nil))
}

// Resource implements [Schemas].
func (p *Published) Resource(apiVersion, resource string) (*Kind, bool) {
	name := apiVersion + " " + resource
	if _, known := p.kinds[name]; !known {
		if p.kinds == nil {
			p.kinds = map[string]*Kind{}
		}
		kind, err := p.find(apiVersion, resource)
		p.kinds[name], p.err = kind, errors.Join(p.err, err)
	}
	return p.kinds[name], p.kinds[name] != nil
}

func (p *Published) find(apiVersion, resource string) (*Kind, error) {
	if version, err := schema.ParseGroupVersion(apiVersion); err == nil && p.Definition != nil && strings.Contains(version.Group, ".") {
		encoded, err := p.Definition(version.WithResource(resource).GroupResource())
		if kind := Defined(encoded)[apiVersion+" "+resource]; kind != nil || err != nil {
			return kind, err
		}
	}
	name, err := p.Kind(apiVersion, resource)
	if err != nil || name == "" {
		return nil, err
	}
	d := p.read(apiVersion)
	kind := &Kind{APIVersion: apiVersion, Name: name, Definition: func(name string) *spec.Schema {
		s, err := d.schema(name)
		if err != nil { // Each Join wraps the former errors once more, and references are followed again and again.
			p.err = errors.Join(p.err, err)
		}
		return s
	}}
	for id, encoded := range d.Components.Schemas {
		if !isOf(encoded, apiVersion, name) {
			continue
		}
		s := kind.Definition(id)
		if s == nil {
			continue
		}
		if _, ok := s.Properties[metadataField]; ok {
			kind.Schema = s
		}
	}
	return kind, nil
}

// CustomResource is what a CustomResourceDefinition says of a kind.
type CustomResource struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name    string `json:"name"`
		Deleted string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		// PreserveUnknownFields says that the schema leaves fields out, and need not be structural: what API servers make of it counts.
		PreserveUnknownFields bool `json:"preserveUnknownFields"`
		Names                 struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name         string         `json:"name"`
			Served       bool           `json:"served"`
			Subresources map[string]any `json:"subresources"`
			Schema       map[string]any `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// Defined returns the kinds of a CustomResourceDefinition, by "apiVersion resource". There are none of other objects, nor while it is deleted or
// its names are another's, nor if it preserves unknown fields, as definitions of v1beta1 do.
func Defined(encoded []byte) map[string]*Kind {
	var d CustomResource
	kinds := map[string]*Kind{}
	if json.Unmarshal(encoded, &d) != nil || d.Kind != "CustomResourceDefinition" || d.Metadata.Deleted != "" ||
		d.Spec.PreserveUnknownFields || meta.IsStatusConditionFalse(d.Status.Conditions, "NamesAccepted") {
		return kinds
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Served {
			continue
		}
		kind := &Kind{APIVersion: d.Spec.Group + "/" + v.Name, Name: d.Spec.Names.Kind}
		if open := v.Schema["openAPIV3Schema"]; open != nil {
			text, err := json.Marshal(open)
			if kind.Schema = new(spec.Schema); err != nil || json.Unmarshal(text, kind.Schema) != nil {
				kind.Schema = nil
			}
		}
		kinds[kind.APIVersion+" "+d.Spec.Names.Plural] = kind
	}
	return kinds
}

// openAPI is what a group-version publishes. Few of its schemas are asked for, and to decode all of them takes tens of milliseconds.
type openAPI struct {
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
	decoded map[string]*spec.Schema
	sum     [sha256.Size]byte
}

// read returns the document of a group-version, an empty one if there is none.
func (p *Published) read(apiVersion string) *openAPI {
	if known, ok := p.documents[apiVersion]; ok {
		return known
	}
	d := &openAPI{decoded: map[string]*spec.Schema{}}
	var data []byte
	version, err := schema.ParseGroupVersion(apiVersion)
	if err == nil {
		data, err = p.Document(version)
	}
	if d.sum = sha256.Sum256(data); err == nil && len(data) > 0 {
		err = json.Unmarshal(data, d)
	}
	if err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("reading the schemas of %s: %w", apiVersion, err))
	}
	if p.documents == nil {
		p.documents = map[string]*openAPI{}
	}
	p.documents[apiVersion] = d
	return d
}

// schema returns a schema by its name, nil if there is none.
func (d *openAPI) schema(name string) (*spec.Schema, error) {
	known, ok := d.decoded[name]
	encoded := d.Components.Schemas[name]
	if ok || encoded == nil {
		return known, nil
	}
	known = new(spec.Schema)
	err := json.Unmarshal(encoded, known)
	if err != nil {
		known, err = nil, fmt.Errorf("reading the schema %s: %w", name, err)
	}
	d.decoded[name] = known
	return known, err
}

// isOf reports whether a schema says that it is that of a kind.
func isOf(encoded []byte, apiVersion, name string) bool {
	if !bytes.Contains(encoded, []byte(strconv.Quote(name))) {
		return false // To look for the kind alone is faster.
	}
	var s struct {
		Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
	}
	if json.Unmarshal(encoded, &s) != nil {
		return false
	}
	return slices.ContainsFunc(s.Kinds, func(k metav1.GroupVersionKind) bool {
		return k.Kind == name && metav1.GroupVersion{Group: k.Group, Version: k.Version}.String() == apiVersion
	})
}
