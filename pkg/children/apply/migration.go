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

package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// maxFields is how many fields of a conflict are told.
const maxFields = 5

func joined(fields []string) string {
	if more := len(fields) - maxFields; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(fields[:maxFields], ", "), more)
	}
	return strings.Join(fields, ", ")
}

// migration returns the JSON patch that gives manager what was applied to an object by plain writes of ours, and by
// Metacontroller in either way. It fails for an object that changed since it was read.
func migration(live *object.Object, manager string) ([]byte, error) {
	raw, _ := live.Field("metadata", "managedFields")
	var entries []metav1.ManagedFieldsEntry
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &entries); err != nil {
			return nil, fmt.Errorf("reading who owns its fields: %w", err)
		}
	}
	moved, err := moveTo(manager, entries, live.APIVersion())
	if err != nil {
		return nil, err
	}
	patch := []map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.ResourceVersion()},
		{"op": "add", "path": "/metadata/managedFields", "value": moved},
	}
	if _, recorded := live.Annotation(merge.Annotation); recorded {
		patch = append(patch, map[string]any{"op": "remove", "path": "/metadata/annotations/" + strings.ReplaceAll(merge.Annotation, "/", "~1")})
	}
	return json.Marshal(patch)
}

// moveTo returns managedFields in which manager has applied what it and LegacyManager own.
func moveTo(manager string, entries []metav1.ManagedFieldsEntry, apiVersion string) ([]metav1.ManagedFieldsEntry, error) {
	all := fieldpath.NewSet()
	kept := slices.Clone(entries)
	var errs error
	kept = slices.DeleteFunc(kept, func(e metav1.ManagedFieldsEntry) bool {
		ours := e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply || e.Manager == plan.LegacyManager
		if !ours || e.Subresource != "" || e.FieldsV1 == nil {
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
	// The record of the merge strategy goes, so nobody owns it.
	all = all.Difference(fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations", merge.Annotation)))
	if all.Empty() {
		return kept, nil
	}
	encoded, err := all.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding what %s owns: %w", manager, err)
	}
	now := metav1.Now()
	return append(kept, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, Time: &now,
		FieldsType: "FieldsV1", FieldsV1: fields(encoded),
	}), nil
}

func fields(encoded []byte) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	f.SetRawBytes(encoded)
	return f
}
