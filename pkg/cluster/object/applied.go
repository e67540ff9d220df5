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
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// appliedOperation is how managedFields mark what was sent by server-side apply.
var appliedOperation = []byte(`"operation":"Apply"`)

// managedEntry is an entry of metadata.managedFields.
type managedEntry struct {
	Manager     string          `json:"manager"`
	Operation   string          `json:"operation"`
	Subresource string          `json:"subresource"`
	FieldsV1    json.RawMessage `json:"fieldsV1"`
}

// appliedIn returns, as a JSON object by field manager, the fields that managers whose names begin with one of prefixes have
// applied to the object itself. It is nil if there are none, as in most objects.
func appliedIn(managedFields []byte, prefixes []string) *string {
	if len(prefixes) == 0 || !bytes.Contains(managedFields, appliedOperation) {
		return nil
	}
	var entries []managedEntry
	if json.Unmarshal(managedFields, &entries) != nil {
		return nil
	}
	kept := map[string]json.RawMessage{}
	for _, e := range entries {
		begins := func(prefix string) bool { return strings.HasPrefix(e.Manager, prefix) }
		if e.Operation == "Apply" && e.Subresource == "" && len(e.FieldsV1) > 0 && slices.ContainsFunc(prefixes, begins) {
			kept[e.Manager] = e.FieldsV1
		}
	}
	if len(kept) == 0 {
		return nil
	}
	encoded, err := json.Marshal(kept)
	if err != nil {
		// What was decoded a moment ago can be encoded.
		return nil
	}
	text := string(encoded)
	return &text
}

// AppliedFields returns the fields that manager owns by server-side apply, as FieldsV1, and whether it owns any. It knows of the
// managers that [ParseOptions] name.
func (o *Object) AppliedFields(manager string) (fields json.RawMessage, ok bool) {
	if o.applied == nil {
		return nil, false
	}
	at, ok := member(*o.applied, manager)
	return bytesOf(at), ok
}

// Appliers returns the field managers of which [Object.AppliedFields] knows that they own fields.
func (o *Object) Appliers() []string {
	if o.applied == nil {
		return nil
	}
	var managers []string
	s := scanner{data: bytesOf(*o.applied)}
	_ = s.members(func(at span, _ bool) error { // It was encoded here.
		managers = append(managers, unquote((*o.applied)[at.start:at.end]))
		_, err := s.value()
		return err
	})
	return managers
}
