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
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// migration returns the JSON patch that gives a manager what was applied to an object in other ways, by plain writes of ours and by
// Metacontroller in either way; nil if whole, the object with its managedFields, is not there. It fails for an object that
// changed since it was observed. If exact, whole shows what the manager will own; otherwise it gets all that was applied, so that the
// write after it takes away what is no longer desired.
func migration(observed, whole *object.Object, manager string, exact bool, now time.Time) ([]byte, error) {
	if whole == nil {
		return nil, nil
	}
	raw, _ := whole.Field("metadata", "managedFields")
	var entries []metav1.ManagedFieldsEntry
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &entries); err != nil {
			return nil, fmt.Errorf("reading who owns its fields: %w", err)
		}
	}
	var err error
	if exact {
		entries = slices.DeleteFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
			return ofLegacy(e) && !appliedBy(e, manager)
		})
	} else if entries, err = moveTo(manager, entries, whole.APIVersion(), now); err != nil {
		return nil, err
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
	all = all.Difference(fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations", merge.Annotation)))
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
