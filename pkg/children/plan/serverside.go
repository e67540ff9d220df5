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
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/owned"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// schemaOf returns the schema by which the children of a rule are compared, nil if nothing is known.
func (in *Input) schemaOf(kind schema.GroupVersionKind, rule children.Rule) merge.Schema {
	s := in.Schemas[kind]
	if rule.ServerSide && in.SchemaErrors[kind] == nil {
		return merge.Declared(s)
	}
	return s
}

// LegacyManager is the field manager of Metacontroller, and of this server's writes that are no server-side apply.
const LegacyManager = "metacontroller"

// managedPlace is where a child of server-side apply has our own record.
const managedPlace = "metadata.managedFields"

// compareApplied compares a child of a server-side rule: it is as desired if it has what is desired, and our field manager owns
// that and nothing else (docs/reference/compatibility.md#d13).
func (c *child) compareApplied(returned []record.Returned) (findings, error) {
	var f findings
	o := c.step.Observed
	fields, applied := o.AppliedFields(c.in.Manager)
	_, legacy := o.AppliedFields(LegacyManager)
	f.migrate = c.recorded || legacy && c.in.Manager != LegacyManager
	if f.migrate || !applied {
		// It was written in another way, by the merge strategy, by Metacontroller, or by another client.
		f.record = managedPlace
		if c.last == nil {
			var err error
			if c.last, err = c.appliedBefore(c.outline); err != nil {
				return f, err
			}
		}
		_, err := merge.Objects(c.observed, c.applied(), c.step.shown, c.step.schema, f.note(&f.values, returned))
		f.separateOwner(c.in.Parent)
		return f, err
	}
	part, err := owned.Extract(c.observed, fields)
	if err == nil {
		c.last, err = c.outline(c.observed, fields)
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
	f.ownership = slices.DeleteFunc(f.ownership, func(d merge.Difference) bool {
		return slices.ContainsFunc(f.values, func(value merge.Difference) bool { return within(value.Path, d.Path) })
	})
	f.separateOwner(c.in.Parent)
	return f, nil
}

// outline returns what was applied of an object, as far as FieldsV1 tell.
func (c *child) outline(content map[string]any, fields []byte) (map[string]any, error) {
	return owned.Outline(content, fields, c.step.schema)
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
	return merge.Objects(c.content, c.content, c.observed, c.step.schema, func(d merge.Difference) bool {
		return !slices.Contains(observed, d.Path)
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

// migration returns the JSON patch that gives a manager what was applied to an object in other ways, by plain writes of ours and by
// Metacontroller in either way; nil if whole, the object with its managedFields, is not there. It fails for an object that
// changed since it was observed. If exact, whole shows what the manager will own; otherwise it gets all that was applied, so that the
// write after it takes away what is no longer desired.
func migration(observed, whole *object.Object, manager string, exact bool, now time.Time) ([]byte, error) {
	if whole == nil {
		return nil, nil
	}
	entries, err := managedFields(whole)
	if err != nil {
		return nil, err
	}
	if exact {
		entries = slices.DeleteFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
			return ofLegacy(e) && !appliedBy(e, manager)
		})
	} else {
		// A dry run shows what the manager owns without what is no longer desired, which the write after this one is to take away.
		if before, ok := observed.AppliedFields(manager); ok {
			entries = append(entries, metav1.ManagedFieldsEntry{
				Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields(before),
			})
		}
		if entries, err = moveTo(manager, entries, whole.APIVersion(), now); err != nil {
			return nil, err
		}
	}
	patch := []map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": observed.ResourceVersion()},
		{"op": "add", "path": "/metadata/managedFields", "value": entries},
	}
	if _, recorded := whole.Annotation(merge.Annotation); recorded {
		patch = append(patch, map[string]any{"op": "remove", "path": "/metadata/annotations/" + strings.ReplaceAll(merge.Annotation, "/", "~1")})
	}
	return json.Marshal(patch)
}

// hidesOwned reports whether LegacyManager owns fields that an object did not show when it was observed. The schema did not declare them, and may
// do so again before their ownership is moved: then nobody would own them, and take them off.
func hidesOwned(observed map[string]any, whole *object.Object) (bool, error) {
	entries, err := managedFields(whole)
	if err != nil {
		return false, err
	}
	hides := false
	for _, e := range entries {
		if !ofLegacy(e) || e.FieldsV1 == nil {
			continue
		}
		var set fieldpath.Set
		if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
			return false, fmt.Errorf("reading what %s owns: %w", e.Manager, err)
		}
		set.Leaves().Iterate(func(path fieldpath.Path) {
			hides = hides || !path.Equals(annotationPath) && !shows(observed, path)
		})
	}
	return hides, nil
}

// shows reports whether an object has a field.
func shows(has any, path fieldpath.Path) bool {
	for _, step := range path {
		switch {
		case step.FieldName != nil:
			fields, _ := has.(map[string]any)
			field, there := fields[*step.FieldName]
			if !there {
				return false
			}
			has = field
		case step.Key != nil:
			list, _ := has.([]any)
			at := slices.IndexFunc(list, func(element any) bool {
				fields, _ := element.(map[string]any)
				return !slices.ContainsFunc(*step.Key, func(key value.Field) bool {
					return !merge.Equal(fields[key.Name], key.Value.Unstructured())
				})
			})
			if at < 0 {
				return false
			}
			has = list[at]
		case step.Value != nil:
			list, _ := has.([]any)
			return slices.ContainsFunc(list, func(element any) bool { return merge.Equal(element, (*step.Value).Unstructured()) })
		}
	}
	return true
}

// annotationPath is that of the record of the merge strategy.
var annotationPath = fieldpath.MakePathOrDie("metadata", "annotations", merge.Annotation) //nolint:gochecknoglobals // It does not change.

// managedFields returns those of an object.
func managedFields(o *object.Object) ([]metav1.ManagedFieldsEntry, error) {
	raw, _ := o.Field("metadata", "managedFields")
	var entries []metav1.ManagedFieldsEntry
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &entries); err != nil {
			return nil, fmt.Errorf("reading who owns its fields: %w", err)
		}
	}
	return entries, nil
}

func appliedBy(e metav1.ManagedFieldsEntry, manager string) bool {
	return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

func ofLegacy(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == LegacyManager && e.Subresource == ""
}

// moveTo returns managedFields in which manager has applied what it and LegacyManager own.
func moveTo(manager string, entries []metav1.ManagedFieldsEntry, apiVersion string, now time.Time) (
	[]metav1.ManagedFieldsEntry, error,
) {
	all := fieldpath.NewSet()
	kept := slices.Clone(entries)
	var errs error
	kept = slices.DeleteFunc(kept, func(e metav1.ManagedFieldsEntry) bool {
		if !appliedBy(e, manager) && !ofLegacy(e) || e.FieldsV1 == nil {
			return false
		}
		var set fieldpath.Set
		if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
			errs = fmt.Errorf("reading what %s owns: %w", e.Manager, err)
			return false
		}
		all = all.Union(&set)
		return true
	})
	if errs != nil {
		return nil, errs
	}
	// The record of the merge strategy goes, so no manager owns it.
	all = all.Difference(fieldpath.NewSet(annotationPath))
	if all.Empty() {
		return kept, nil
	}
	encoded, err := all.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding what %s owns: %w", manager, err)
	}
	moved := metav1.NewTime(now)
	return append(kept, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, Time: &moved,
		FieldsType: "FieldsV1", FieldsV1: fields(encoded),
	}), nil
}

func fields(encoded []byte) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	f.SetRawBytes(encoded)
	return f
}
