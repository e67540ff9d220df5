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

package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Schema says how the lists in a kind's fields are merged. It is read-only. All methods may be called on nil, which knows
// nothing.
type Schema struct {
	node     *node
	document *document
	// mapType is that of the node, or of the reference to it that says otherwise.
	mapType string
}

// node is the part of an OpenAPI v3 schema that matters here.
type node struct {
	Ref                  string           `json:"$ref"`
	AllOf                []*node          `json:"allOf"`
	Properties           map[string]*node `json:"properties"`
	Items                *node            `json:"items"`
	AdditionalProperties json.RawMessage  `json:"additionalProperties"`
	Default              any              `json:"default"`
	MapType              string           `json:"x-kubernetes-map-type"`
	ListType             string           `json:"x-kubernetes-list-type"`
	ListMapKeys          []string         `json:"x-kubernetes-list-map-keys"`
	PatchMergeKey        string           `json:"x-kubernetes-patch-merge-key"`
	PatchStrategy        string           `json:"x-kubernetes-patch-strategy"`
	Kinds                []struct {
		Kind string `json:"kind"`
	} `json:"x-kubernetes-group-version-kind"`
}

const refPrefix = "#/components/schemas/"

// Schema returns the schema of a kind, nil if the cluster publishes none.
func (d *Discovery) Schema(ctx context.Context, kind schema.GroupVersionKind) (*Schema, error) {
	kinds, err := responseFor(ctx, d, d.schemas, kind.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("asking for the schema of %s: %w", kind, err)
	}
	return kinds[kind.Kind], nil
}

func (d *Discovery) askSchemas(ctx context.Context, version schema.GroupVersion) (map[string]*Schema, error) {
	data, err := d.OpenAPI(ctx, version)
	if err != nil || data == nil {
		return nil, err
	}
	return decodedOnce.schemas(data)
}

// OpenAPI returns the document, version 3, that the cluster publishes of a group-version, nil if there is none. It asks the API server every time:
// documents are large.
func (d *Discovery) OpenAPI(ctx context.Context, version schema.GroupVersion) ([]byte, error) {
	path := []string{"openapi", "v3", "api", version.Version}
	if version.Group != "" {
		path = []string{"openapi", "v3", "apis", version.Group, version.Version}
	}
	data, err := d.client.Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return data, err
}

// at returns the schema of a node with its reference followed.
func (s *Schema) at(n *node) *Schema {
	mapType := ""
	for range 16 { // references do not go in circles without a field between
		if n == nil {
			return nil
		}
		mapType = cmp.Or(mapType, n.MapType)
		ref := n.Ref
		if ref == "" && len(n.AllOf) == 1 {
			ref = n.AllOf[0].Ref
		}
		if ref == "" {
			return &Schema{node: n, document: s.document, mapType: mapType}
		}
		n = s.document.nodes[strings.TrimPrefix(ref, refPrefix)]
	}
	return nil
}

// Field returns the schema of a field of an object, or of a value of a map.
func (s *Schema) Field(name string) *Schema {
	if s == nil {
		return nil
	}
	if field, ok := s.node.Properties[name]; ok {
		return s.at(field)
	}
	if raw := s.node.AdditionalProperties; len(raw) > 0 && raw[0] == '{' {
		var values node
		if json.Unmarshal(raw, &values) == nil {
			return s.at(&values)
		}
	}
	return nil
}

// Item returns the schema of the elements of a list.
func (s *Schema) Item() *Schema {
	if s == nil {
		return nil
	}
	return s.at(s.node.Items)
}

// ListType says how a list is merged: "map" by the keys that are returned with it, "set" of values, "atomic" as a whole,
// or "" when the schema does not say.
func (s *Schema) ListType() (kind string, keys []string) {
	if s == nil {
		return "", nil
	}
	n := s.node
	switch {
	case n.ListType == "map" && len(n.ListMapKeys) > 0:
		return "map", n.ListMapKeys
	case n.ListType == "set" || n.ListType == "atomic":
		return n.ListType, nil
	case n.PatchMergeKey != "" && strings.Contains(n.PatchStrategy, "merge"):
		return "map", []string{n.PatchMergeKey}
	case strings.Contains(n.PatchStrategy, "merge") && n.Items != nil:
		return "set", nil
	}
	// Every list of a built-in kind says how it is merged. Lists of custom resources often do not, and are merged by guessing,
	// as Metacontroller does (docs/reference/contract.md#s12.3).
	return "", nil
}

// Default returns the default of a field, and whether it has one.
func (s *Schema) Default() (any, bool) {
	if s == nil || s.node.Default == nil {
		return nil, false
	}
	return s.node.Default, true
}

// Atomic reports whether an object, or a map, is written as a whole: no two clients own parts of it.
func (s *Schema) Atomic() bool { return s != nil && s.mapType == "atomic" }

// Shared reports whether an object is a map to which several clients may add entries: not a struct, nor one that is written as a whole.
func (s *Schema) Shared() bool {
	if s == nil || len(s.node.Properties) > 0 || s.Atomic() {
		return false
	}
	entries := string(s.node.AdditionalProperties)
	return entries != "" && entries != "false"
}

// documents remembers what was decoded from OpenAPI documents for as long as somebody uses it. They are large, and are asked for again
// whenever a definition may have changed, which most of them did not. It is safe for concurrent use.
type documents struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[document]
}

// document is what is needed of an OpenAPI document. It is read-only.
type document struct{ nodes map[string]*node }

// decodedOnce serves all clusters: the same bytes mean the same everywhere.
var decodedOnce = documents{known: map[[sha256.Size]byte]weak.Pointer[document]{}} //nolint:gochecknoglobals // It remembers, and decides nothing.

// schemas returns the schemas of a document by their kinds.
func (d *documents) schemas(data []byte) (map[string]*Schema, error) {
	whole, err := d.decode(data)
	if err != nil {
		return nil, err
	}
	kinds := map[string]*Schema{}
	for _, n := range whole.nodes {
		for _, k := range n.Kinds {
			// Some helper types carry the kinds of all groups; those have no metadata.
			if n.Properties["metadata"] != nil {
				kinds[k.Kind] = &Schema{node: n, document: whole, mapType: n.MapType}
			}
		}
	}
	return kinds, nil
}

func (d *documents) decode(data []byte) (*document, error) {
	hash := sha256.Sum256(data)
	d.mu.Lock()
	known := d.known[hash].Value()
	d.mu.Unlock()
	if known != nil {
		return known, nil
	}
	var read struct {
		Components struct {
			Schemas map[string]*node `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("decoding the OpenAPI document: %w", err)
	}
	whole := &document{nodes: read.Components.Schemas}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.known, func(_ [sha256.Size]byte, p weak.Pointer[document]) bool { return p.Value() == nil })
	d.known[hash] = weak.Make(whole)
	return whole, nil
}
