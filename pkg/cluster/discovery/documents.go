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
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"weak"
)

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
