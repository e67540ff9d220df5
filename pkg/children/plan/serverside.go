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
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
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
			if c.last, err = c.appliedBefore(outline); err != nil {
				return f, err
			}
		}
		_, err := merge.Objects(c.observed, c.applied(), c.step.shown, c.step.schema, f.note(&f.values, returned))
		f.separateOwner(c.in.Parent)
		c.separateKeeper(&f)
		return f, err
	}
	set, err := setOf(c.in.Manager, fields)
	if err != nil {
		return f, err
	}
	c.last, c.owned = owned(c.observed, set, outline), true
	if _, err := merge.Objects(c.observed, c.last, c.step.shown, c.step.schema, f.note(&f.values, returned)); err != nil {
		return f, err
	}
	// What another manager took from ours is not in the part that is owned.
	if _, err := merge.Objects(owned(c.observed, set, whole), c.last, c.step.shown, c.step.schema, f.note(&f.ownership, returned)); err != nil {
		return f, err
	}
	differ := containing(f.values)
	f.ownership = slices.DeleteFunc(f.ownership, func(d merge.Difference) bool { return differ.Has(d.Path) })
	f.separateOwner(c.in.Parent)
	c.separateKeeper(&f)
	return f, nil
}

// separateOwner moves differences in the reference to an owner that we set to the ownership: which version of the parent it names is our own
// matter, and no reason to delete a child.
func (f *findings) separateOwner(owner types.UID) {
	if owner == "" {
		return
	}
	reference := fmt.Sprintf("metadata.ownerReferences[%s]", owner)
	f.values = slices.DeleteFunc(f.values, func(d merge.Difference) bool {
		ours := within(d.Path, reference)
		if ours {
			f.ownership = append(f.ownership, d)
		}
		return ours
	})
}

// separateKeeper does the same with the reference to the child's keeper. One that the rule does not want any more is observed.
func (c *child) separateKeeper(f *findings) {
	if !slices.ContainsFunc(f.values, func(d merge.Difference) bool { return within(d.Path, "metadata.ownerReferences") }) {
		return
	}
	if c.keeper == "" {
		c.keeper, _ = children.KeptBy(c.step.Observed)
	}
	f.separateOwner(c.keeper)
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

// ownedBy returns what some managers own together, nil if they own nothing.
func ownedBy(o *object.Object, managers []string) (*fieldpath.Set, error) {
	var all *fieldpath.Set
	for _, manager := range managers {
		fields, ok := o.AppliedFields(manager)
		if !ok {
			continue
		}
		set, err := setOf(manager, fields)
		if err != nil {
			return nil, err
		}
		if all != nil {
			set = all.Union(set)
		}
		all = set
	}
	return all, nil
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
				Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(string(before)),
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
	kept := slices.Clone(entries)[:0]
	for _, e := range entries {
		if !appliedBy(e, manager) && !ofFormer(e, manager) || e.FieldsV1 == nil {
			kept = append(kept, e)
			continue
		}
		set, err := setOf(e.Manager, e.FieldsV1.GetRawBytes())
		if err != nil {
			return nil, err
		}
		all = all.Union(set)
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
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(encoded)),
	}), nil
}

// owned returns the part of an object that a set, of the fields of a manager, has. The result shares what is in content and must not be changed;
// it has the order of content in its lists. Fields that content does not have are left out. leaf is whole or outline.
func owned(content map[string]any, set *fieldpath.Set, leaf func(any) any) map[string]any {
	part, _ := extract(content, set, leaf).(map[string]any)
	return part
}

// whole keeps a value that is owned as a whole.
func whole(leaf any) any { return leaf }

// outline leaves a value that is owned as a whole empty. The API server completes such values with defaults, so not all that is in them was
// applied. Items of lists keep what names them: the key fields of one, or the value of an item of a set.
func outline(leaf any) any {
	switch leaf.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return leaf
}

// extract returns what a set has of a value, nil for all of it; leaf says what is returned of a value that is owned as a whole.
func extract(content any, set *fieldpath.Set, leaf func(any) any) any {
	switch content := content.(type) {
	case map[string]any:
		if set == nil {
			break
		}
		part := make(map[string]any, set.Members.Size())
		for name, field := range content {
			if inner, ok := below(set, fieldpath.PathElement{FieldName: &name}); ok {
				part[name] = extract(field, inner, leaf)
			}
		}
		return part
	case []any:
		if set == nil {
			break
		}
		part := make([]any, 0, min(len(content), set.Members.Size()))
		keys := keysOf(set)
		for i, item := range content {
			for element := range elementsOf(i, item, keys) {
				if inner, ok := below(set, element); ok {
					part = append(part, extractItem(item, element, inner, leaf))
					break
				}
			}
		}
		return part
	}
	return leaf(content)
}

// below returns what a set has below an element, nil for all of it; false if it has nothing.
func below(set *fieldpath.Set, element fieldpath.PathElement) (*fieldpath.Set, bool) {
	if inner, ok := set.Children.Get(element); ok {
		return inner, true
	}
	return nil, set.Members.Has(element)
}

// keysOf returns the names of the key fields by which a set names items of a list: mostly all by the same.
func keysOf(set *fieldpath.Set) (keys [][]string) {
	note := func(element fieldpath.PathElement) {
		if element.Key == nil || slices.ContainsFunc(keys, func(names []string) bool {
			return slices.EqualFunc(names, *element.Key, func(name string, field value.Field) bool { return name == field.Name })
		}) {
			return
		}
		names := make([]string, len(*element.Key))
		for i, field := range *element.Key {
			names[i] = field.Name
		}
		keys = append(keys, names)
	}
	set.Members.Iterate(note)
	set.Children.Iterate(note)
	return keys
}

// elementsOf yields the elements by which a set may name an item of a list.
func elementsOf(index int, item any, keys [][]string) iter.Seq[fieldpath.PathElement] {
	return func(yield func(fieldpath.PathElement) bool) {
		if !yield(fieldpath.PathElement{Index: &index}) {
			return
		}
		fields, _ := item.(map[string]any)
		for _, names := range keys {
			key := make(value.FieldList, 0, len(names))
			for _, name := range names {
				if field, ok := fields[name]; ok {
					key = append(key, value.Field{Name: name, Value: value.NewValueInterface(field)})
				}
			}
			if len(key) == len(names) && !yield(fieldpath.PathElement{Key: &key}) {
				return
			}
		}
		of := value.NewValueInterface(item)
		yield(fieldpath.PathElement{Value: &of})
	}
}

// extractItem returns what a set has of the item of a list that an element names.
func extractItem(item any, element fieldpath.PathElement, set *fieldpath.Set, leaf func(any) any) any {
	if set == nil && element.Value != nil {
		return item
	}
	part := extract(item, set, leaf)
	fields, ok := part.(map[string]any)
	if set != nil || element.Key == nil || !ok {
		return part
	}
	fields = maps.Clone(fields)
	for _, field := range *element.Key {
		fields[field.Name] = field.Value.Unstructured()
	}
	return fields
}

// Managers returns the field managers that own a place of an object, such as spec.ports[53,UDP].name, by its metadata.managedFields: the
// one that wrote last comes first. A manager of any item of a list counts for all of them. For no place they are those that wrote the object
// itself, and not a subresource. It fails if managed is no list of entries.
func Managers(managed []byte, place string) ([]string, error) {
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(managed, &entries); err != nil {
		return nil, fmt.Errorf("reading managedFields: %w", err)
	}
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return ptr.Deref(b.Time, metav1.Time{}).Compare(ptr.Deref(a.Time, metav1.Time{}).Time)
	})
	var names []string
	for _, e := range entries {
		of := place == "" && e.Subresource == ""
		if place != "" && e.FieldsV1 != nil {
			set, err := setOf(e.Manager, e.FieldsV1.GetRawBytes())
			if err != nil {
				return nil, err
			}
			of = owns(set, place)
		}
		if of && !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	return names, nil
}

// items are those of lists in a path.
var items = regexp.MustCompile(`\[[^]]*]`)

// owns reports whether a set of fields has a place, or something in it, or has what is around it as a whole.
func owns(set *fieldpath.Set, place string) (owns bool) {
	place = items.ReplaceAllString(place, "[]")
	set.Leaves().Iterate(func(path fieldpath.Path) {
		leaf := strings.TrimPrefix(items.ReplaceAllString(path.String(), "[]"), ".")
		owns = owns || within(leaf, place) || within(place, leaf)
	})
	return owns
}
