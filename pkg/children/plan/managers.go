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
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// LegacyManager is the field manager of Metacontroller, and of this server's writes that are no server-side apply.
const LegacyManager = "metacontroller"

// isFormer reports whether a field manager has applied children of a controller before the present one: Metacontroller's, or one that this
// server gave to a controller of another name, which has the same children if it has the same parents. A child has one controller.
func isFormer(manager, present string) bool {
	return manager != present && (manager == LegacyManager || strings.HasPrefix(manager, LegacyManager+"/"))
}

// former returns the former managers that own fields of a child, in order.
func (in *Input) former(o *object.Object) []string {
	managers := slices.DeleteFunc(o.Appliers(), func(manager string) bool { return !isFormer(manager, in.Manager) })
	slices.Sort(managers)
	return managers
}

// ownedBy returns as FieldsV1 what some managers own together, nil if they own nothing.
func ownedBy(o *object.Object, managers []string) (json.RawMessage, error) {
	managers = slices.DeleteFunc(managers, func(manager string) bool {
		_, ok := o.AppliedFields(manager)
		return !ok
	})
	switch len(managers) {
	case 0:
		return nil, nil
	case 1:
		only, _ := o.AppliedFields(managers[0])
		return only, nil
	}
	all := fieldpath.NewSet()
	for _, manager := range managers {
		owned, _ := o.AppliedFields(manager)
		set, err := setOf(manager, owned)
		if err != nil {
			return nil, err
		}
		all = all.Union(set)
	}
	return all.ToJSON()
}

// setOf decodes FieldsV1 of a manager.
func setOf(manager string, fields []byte) (*fieldpath.Set, error) {
	var set fieldpath.Set
	if err := set.FromJSON(bytes.NewReader(fields)); err != nil {
		return nil, fmt.Errorf("reading what %s owns: %w", manager, err)
	}
	return &set, nil
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
			return ofFormer(e, manager) && !appliedBy(e, manager)
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
		// All of them: API servers apply a patch before they look at the version, and one that removes what somebody else has removed is no conflict.
		annotations := maps.Clone(whole.Annotations())
		delete(annotations, merge.Annotation)
		patch = append(patch, map[string]any{"op": "add", "path": "/metadata/annotations", "value": annotations})
	}
	return json.Marshal(patch)
}

// hidesOwned reports whether former managers own fields that an object did not show when it was observed. The schema did not declare them, and may
// do so again before their ownership is moved: then nobody would own them, and take them off.
func hidesOwned(observed map[string]any, whole *object.Object, manager string) (bool, error) {
	entries, err := managedFields(whole)
	if err != nil {
		return false, err
	}
	hides := false
	for _, e := range entries {
		if !ofFormer(e, manager) || appliedBy(e, manager) || e.FieldsV1 == nil {
			continue
		}
		set, err := setOf(e.Manager, e.FieldsV1.GetRawBytes())
		if err != nil {
			return false, err
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

// ofFormer reports whether an entry is of a former manager, or of plain writes of ours.
func ofFormer(e metav1.ManagedFieldsEntry, manager string) bool {
	applied := e.Operation == metav1.ManagedFieldsOperationApply && isFormer(e.Manager, manager)
	return e.Subresource == "" && (e.Manager == LegacyManager || applied)
}

// moveTo returns managedFields in which manager has applied what it and the former ones own.
func moveTo(manager string, entries []metav1.ManagedFieldsEntry, apiVersion string, now time.Time) (
	[]metav1.ManagedFieldsEntry, error,
) {
	all := fieldpath.NewSet()
	kept := slices.Clone(entries)
	var errs error
	kept = slices.DeleteFunc(kept, func(e metav1.ManagedFieldsEntry) bool {
		if !appliedBy(e, manager) && !ofFormer(e, manager) || e.FieldsV1 == nil {
			return false
		}
		set, err := setOf(e.Manager, e.FieldsV1.GetRawBytes())
		if err != nil {
			errs = err
			return false
		}
		all = all.Union(set)
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
