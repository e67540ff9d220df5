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

package fields

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Set is the set of fields of an entry of managedFields. In objects it stands where their JSON would.
type Set struct {
	fields *fieldpath.Set
	json   []byte
	// fits are the types with which the set has been reconciled.
	fits managedfields.TypeConverter
}

var _ value.Encoded = &Set{}

// JSON implements value.Encoded.
func (s *Set) JSON() []byte {
	if s.json == nil {
		encoded, err := s.fields.ToJSON()
		if err != nil {
			panic(fmt.Sprintf("encoding a set of fields: %v", err)) //nolint:forbidigo // It is an error of the program.
		}
		s.json = encoded
	}
	return s.json
}

// Ready computes what the sets of an object's managedFields compute on demand, so that servers may share them.
func Ready(list []any) {
	for _, element := range list {
		if e, ok := element.(value.Object); ok {
			if s, ok := e["fieldsV1"].(*Set); ok {
				s.JSON()
			}
		}
	}
}

// MarshalJSON implements json.Marshaler.
func (s *Set) MarshalJSON() ([]byte, error) { return s.JSON(), nil }

// identity tells entries apart. The version is empty for those of apply.
type identity struct{ manager, operation, apiVersion, subresource string }

// name is the name of an entry for the merging library.
func (i identity) name() string {
	return strings.Join([]string{i.manager, i.operation, i.apiVersion, i.subresource}, "\x00")
}

// entry is an entry of managedFields.
type entry struct {
	identity
	set *Set
	// time is as in objects.
	time string
}

// managed are the entries of managedFields.
type managed struct {
	sets  fieldpath.ManagedFields
	known map[string]entry
}

func (m *managed) identity(name string) identity { return m.known[name].identity }

// Parse makes a Set of the fields of each entry in an object's managedFields. It drops managedFields that are malformed.
func Parse(o value.Object) {
	meta := value.Map(o, "metadata")
	list, ok := meta["managedFields"].([]any)
	if !ok {
		delete(meta, "managedFields")
		return
	}
	for _, element := range list {
		e, _ := element.(value.Object)
		if _, parsed := e["fieldsV1"].(*Set); parsed || e == nil || len(e) == 0 {
			continue
		}
		set := &Set{fields: &fieldpath.Set{}}
		if plain, ok := e["fieldsV1"].(value.Object); ok {
			if err := set.fields.FromJSON(bytes.NewReader(value.Encode(plain))); err != nil {
				delete(meta, "managedFields")
				return
			}
		}
		e["fieldsV1"] = set
	}
}

// decode returns the entries of a list, nil if one is malformed.
func decode(list []any) *managed {
	m := &managed{sets: make(fieldpath.ManagedFields, len(list)+1), known: make(map[string]entry, len(list)+1)}
	for _, element := range list {
		o, ok := element.(value.Object)
		set, parsed := o["fieldsV1"].(*Set)
		operation, apiVersion := value.String(o, "operation"), value.String(o, "apiVersion")
		applied := operation == string(metav1.ManagedFieldsOperationApply)
		if !ok || !parsed || apiVersion == "" || value.String(o, "fieldsType") != "FieldsV1" ||
			!applied && operation != string(metav1.ManagedFieldsOperationUpdate) {
			return nil
		}
		e := entry{
			identity: identity{value.String(o, "manager"), operation, apiVersion, value.String(o, "subresource")},
			set:      set, time: value.String(o, "time"),
		}
		if applied {
			e.apiVersion = ""
		}
		m.known[e.name()] = e
		m.sets[e.name()] = fieldpath.NewVersionedSet(set.fields, fieldpath.APIVersion(apiVersion), applied)
	}
	return m
}

// encode returns the list of the entries in the order of kube-apiserver.
func (m *managed) encode(fits managedfields.TypeConverter) []any {
	type named struct {
		entry
		version string
	}
	entries := make([]named, 0, len(m.sets))
	for name, versioned := range m.sets {
		e := m.known[name]
		if e.set == nil || e.set.fields != versioned.Set() && !e.set.fields.Equals(versioned.Set()) {
			e.set = &Set{fields: versioned.Set()}
		}
		if e.set.fits != fits {
			e.set.fits = fits
		}
		entries = append(entries, named{e, string(versioned.APIVersion())})
	}
	slices.SortFunc(entries, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.time, b.time), cmp.Compare(a.manager, b.manager),
			cmp.Compare(a.version, b.version), cmp.Compare(a.subresource, b.subresource))
	})
	list := make([]any, len(entries))
	for i, e := range entries {
		o := value.Object{
			"manager": e.manager, "operation": e.operation, "apiVersion": e.version, "fieldsType": "FieldsV1", "fieldsV1": e.set,
		}
		if e.time != "" {
			o["time"] = e.time
		}
		if e.subresource != "" {
			o["subresource"] = e.subresource
		}
		list[i] = o
	}
	return list
}

// quickly updates the entries of a write by comparing what the write has changed alone, as merge.Updater does with the whole objects.
// It returns false, having done nothing, if entries are of other versions or of another schema.
func (m *Manager) quickly(live, o value.Object, entries *managed) bool {
	if !m.fits(entries) {
		return false
	}
	before, after := changed(bare(live), bare(o))
	was, ok := m.unvalidated(before)
	if !ok {
		return false
	}
	is, _ := m.unvalidated(after)
	compare, err := was.Compare(is)
	if err != nil {
		return false
	}
	compare = compare.FilterFields(m.updater.IgnoreFilter[fieldpath.APIVersion(m.apiVersion)]) //nolint:staticcheck // As in merge.Updater.
	written := compare.Modified.Union(compare.Added)
	for name, versioned := range entries.sets {
		kept := versioned.Set()
		if lost := kept.Intersection(written); !lost.Empty() {
			kept = kept.Difference(lost)
		}
		if !compare.Removed.Empty() {
			kept = kept.Difference(compare.Removed)
		}
		switch {
		case kept.Empty():
			delete(entries.sets, name)
		case kept != versioned.Set():
			entries.sets[name] = fieldpath.NewVersionedSet(kept, versioned.APIVersion(), versioned.Applied())
		}
	}
	if !written.Empty() {
		entries.sets[self] = fieldpath.NewVersionedSet(written, fieldpath.APIVersion(m.apiVersion), false)
	}
	return true
}

// fits reports whether all entries are of this version and have been reconciled with its schema.
func (m *Manager) fits(entries *managed) bool {
	for name, versioned := range entries.sets {
		s := entries.known[name].set
		if string(versioned.APIVersion()) != m.apiVersion || s == nil || s.fits != m.converter.Types {
			return false
		}
	}
	return true
}

// split returns the fields of a live object that applying a patch may change, and the others, which it leaves alone: those that neither
// the patch has nor what the manager applied before.
func (m *Manager) split(live, patch value.Object, entries *managed, name string) (concerned, others value.Object) {
	if !m.fits(entries) {
		return live, nil
	}
	concerned, others = value.Object{}, value.Object{}
	last := fieldpath.NewSet()
	if versioned, ok := entries.sets[name]; ok {
		last = versioned.Set()
	}
	for field, inner := range live {
		path := fieldpath.PathElement{FieldName: &field}
		_, applied := last.Children.Get(path)
		if _, patched := patch[field]; patched || applied || last.Members.Has(path) {
			concerned[field] = inner
		} else {
			others[field] = inner
		}
	}
	return concerned, others
}

// unvalidated returns an object with its type.
func (m *Manager) unvalidated(o value.Object) (*typed.TypedValue, bool) {
	if m.blank == nil {
		return nil, false
	}
	//nolint:staticcheck // Comparing validates what is compared, and the rest is as it was.
	return typed.AsTypedUnvalidated(smdvalue.NewValueInterface(o), m.blank.Schema(), m.blank.TypeRef()), true
}

// changed returns two objects without the fields that are equal in both. A field stays in each map that would become empty, since an
// empty map is another thing than one with fields.
func changed(a, b value.Object) (value.Object, value.Object) {
	x, y := make(value.Object, len(a)), make(value.Object, len(b))
	kept := ""
	for name, inner := range a {
		other, found := b[name]
		if !found {
			x[name] = inner
			continue
		}
		if value.Equal(inner, other) {
			if kept == "" || name < kept {
				kept = name
			}
			continue
		}
		p, isMap := inner.(value.Object)
		q, isToo := other.(value.Object)
		if isMap && isToo {
			x[name], y[name] = changed(p, q)
		} else {
			x[name], y[name] = inner, other
		}
	}
	for name, other := range b {
		if _, found := a[name]; !found {
			y[name] = other
		}
	}
	if kept != "" && (len(x) == 0 || len(y) == 0) {
		x[kept], y[kept] = a[kept], b[kept]
	}
	return x, y
}
