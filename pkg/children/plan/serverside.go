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
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

// schemaOf returns the schema by which the children of a rule are compared, nil if nothing is known.
func (in *Input) schemaOf(kind schema.GroupVersionKind, rule children.Rule) merge.Schema {
	s := in.Schemas[kind]
	if rule.ServerSide && in.SchemaErrors[kind] == nil {
		return merge.Declared(s)
	}
	return s
}

// managedPlace is where a child of server-side apply has our own record.
const managedPlace = "metadata.managedFields"

// compareApplied compares a child of a server-side rule: it is as desired if it has what is desired, and our field manager owns
// that and nothing else (docs/reference/compatibility.md#d13).
func (c *child) compareApplied(returned []Returned) (findings, error) {
	var f findings
	o := c.step.Observed
	fields, applied := o.AppliedFields(c.in.Manager)
	f.migrate = c.recorded || len(c.in.former(o)) > 0
	if f.migrate || !applied {
		// It was written in another way, by the merge strategy, by Metacontroller, or by another client.
		f.record = managedPlace
		if c.last == nil {
			var err error
			if c.last, err = c.appliedBefore(Outline); err != nil {
				return f, err
			}
		}
		_, err := merge.Objects(c.observed, c.applied(), c.step.shown, c.step.schema, f.note(&f.values, returned))
		f.separateOwner(c.in.Parent)
		return f, err
	}
	part, err := Extract(c.observed, fields)
	if err == nil {
		c.last, err = Outline(c.observed, fields)
	}
	if err != nil {
		return f, fmt.Errorf("reading what %s owns: %w", c.in.Manager, err)
	}
	c.owned = true
	if _, err := merge.Objects(c.observed, c.last, c.step.shown, c.step.schema, f.note(&f.values, returned)); err != nil {
		return f, err
	}
	// What another manager took from ours is not in the part.
	if _, err := merge.Objects(part, c.last, c.step.shown, c.step.schema, f.note(&f.ownership, returned)); err != nil {
		return f, err
	}
	differ := containing(f.values)
	f.ownership = slices.DeleteFunc(f.ownership, func(d merge.Difference) bool { return differ.Has(d.Path) })
	f.separateOwner(c.in.Parent)
	return f, nil
}

// separateOwner moves differences in the reference to the parent to the ownership: which version of the parent it names is our own
// matter, and no reason to delete a child.
func (f *findings) separateOwner(parent types.UID) {
	reference := fmt.Sprintf("metadata.ownerReferences[%s]", parent)
	f.values = slices.DeleteFunc(f.values, func(d merge.Difference) bool {
		ours := within(d.Path, reference)
		if ours {
			f.ownership = append(f.ownership, d)
		}
		return ours
	})
}

// applied returns what was applied last in the form in which it is compared.
func (c *child) applied() map[string]any {
	if c.rule.ServerSide {
		return applicableTo(observable(c.last))
	}
	return observable(c.last)
}

// containing returns the paths of differences, and all that these are within.
func containing(differences []merge.Difference) sets.Set[string] {
	all := sets.New[string]()
	for _, d := range differences {
		all.Insert(d.Path)
		for i := range len(d.Path) {
			if c := d.Path[i]; c == '.' || c == '[' {
				all.Insert(d.Path[:i])
			}
		}
	}
	return all
}

// within reports whether a path is another one or leads below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// owning returns what is applied: the desired object with the owner reference, so that it is put back like any other field, and
// without nulls, which own nothing.
func (in *Input) owning(applicable map[string]any) map[string]any {
	content, _ := withoutNulls(merge.Observable(applicable)).(map[string]any)
	return withMetadata(content, in.addOwner)
}

func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for name, field := range value {
			if field != nil {
				result[name] = withoutNulls(field)
			}
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, item := range value {
			result[i] = withoutNulls(item)
		}
		return result
	default:
		return value
	}
}

// applyBody returns the body for an existing child. The UID makes the API server refuse it for any other object.
func (c *child) applyBody(content map[string]any) ([]byte, error) {
	return json.Marshal(withMetadata(content, func(metadata map[string]any) { metadata["uid"] = string(c.step.Observed.UID()) }))
}

// applyWith returns what is applied with the observed values at some places, or without them where nothing is observed.
func (c *child) applyWith(observed []string) (map[string]any, error) {
	if len(observed) == 0 {
		return c.content, nil
	}
	stay := sets.New(observed...)
	return merge.Objects(c.content, c.content, c.observed, c.step.schema, func(d merge.Difference) bool {
		return !stay.Has(d.Path)
	})
}

// applicableTo returns what is applied, without the fields that name the object, which no manager owns.
func applicableTo(content map[string]any) map[string]any {
	if content == nil {
		return nil
	}
	shown := withMetadata(content, func(metadata map[string]any) {
		delete(metadata, "name")
		delete(metadata, "namespace")
	})
	delete(shown, "apiVersion")
	delete(shown, "kind")
	return shown
}
