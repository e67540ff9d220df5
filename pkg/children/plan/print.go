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

package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// hidden stands for a value of a Secret.
const hidden = "(hidden)"

// secret reports whether values of the child are not to be shown.
func (s Step) secret() bool { return s.Group == "" && s.Kind == "Secret" }

// MarshalJSON encodes the step for people and programs. Of a Secret it shows no values.
func (s Step) MarshalJSON() ([]byte, error) {
	encoded := struct {
		Group      string          `json:"group,omitempty"`
		Version    string          `json:"version"`
		Kind       string          `json:"kind"`
		Namespace  string          `json:"namespace,omitempty"`
		Name       string          `json:"name"`
		Action     Action          `json:"action"`
		Reason     Reason          `json:"reason,omitempty"`
		Observed   string          `json:"observedVersion,omitempty"`
		Manager    string          `json:"fieldManager,omitempty"`
		Force      bool            `json:"force,omitempty"`
		RecordOnly bool            `json:"recordOnly,omitempty"`
		Changed    []Change        `json:"changed,omitempty"`
		Migration  json.RawMessage `json:"migration,omitempty"`
		Body       json.RawMessage `json:"body,omitempty"`
	}{
		Group: s.Group, Version: s.Resource.Version, Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, Action: s.Action,
		Reason: s.Reason, Manager: s.Manager, Force: s.Force, RecordOnly: s.RecordOnly, Changed: s.shownChanges(),
		Migration: s.Migration, Body: s.Body,
	}
	if s.Observed != nil {
		encoded.Observed = s.Observed.ResourceVersion()
	}
	if s.secret() {
		encoded.Body = nil
	}
	return json.Marshal(encoded)
}

func (s Step) shownChanges() []Change {
	if !s.secret() {
		return s.Changed
	}
	shown := make([]Change, len(s.Changed))
	for i, c := range s.Changed {
		shown[i].Path = c.Path
		if c.Observed != nil {
			shown[i].Observed = hidden
		}
		if c.Desired != nil {
			shown[i].Desired = hidden
		}
	}
	return shown
}

// String prints the plan for people: each child with what is done, and below it the places at which it differs with the
// observed and the desired value.
func (p Plan) String() string {
	var b strings.Builder
	for i := range p.Steps {
		s := &p.Steps[i]
		fmt.Fprintf(&b, "%s %s", s.Action, s.Key)
		if s.Reason != "" {
			fmt.Fprintf(&b, " (%s)", s.Reason)
		}
		b.WriteByte('\n')
		for _, c := range s.shownChanges() {
			fmt.Fprintf(&b, "  %s: %s -> %s\n", c.Path, shownValue(c.Observed), shownValue(c.Desired))
		}
	}
	return b.String()
}

func shownValue(value any) string {
	if value == nil {
		return "(none)"
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		// Not reached: it was decoded from JSON.
		return "(unknown)"
	}
	return string(encoded)
}
