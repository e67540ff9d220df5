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
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

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
