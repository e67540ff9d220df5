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

package inline

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// registry has the types of objects that the type checker meets. Types are made when they are asked for, since most of a schema is
// never used. It serves one compilation, and what is planned in it.
type registry struct {
	types.Provider
	objects map[string]*objectType
	// missed is the field that was last asked for in vain.
	missed missing
	// compared is how many types have been compared for the value at hand.
	compared int
}

// objectType is an object as the type checker sees it. Its name begins with objectPrefix, so that no expression can make one.
type objectType struct {
	celType *cel.Type
	shape   shape
	// fields are those of an object that has no schema: variables, children, related.
	fields map[string]*cel.Type
}

type missing struct{ object, field string }

const objectPrefix = "object "

func newRegistry(base types.Provider) *registry {
	return &registry{Provider: base, objects: map[string]*objectType{}}
}

// object returns the type of an object.
func (r *registry) object(s shape) *cel.Type {
	name := objectPrefix + s.path
	for known := r.objects[name]; known != nil; known = r.objects[name] {
		if known.shape.kind == s.kind {
			return known.celType
		}
		name += "'" // Another kind has the same name.
	}
	t := &objectType{celType: cel.ObjectType(name), shape: s}
	r.objects[name] = t
	return t.celType
}

// record returns the type of an object with certain fields, which may be added later.
func (r *registry) record(name string, fields map[string]*cel.Type) *cel.Type {
	t := &objectType{celType: cel.ObjectType(objectPrefix + name), fields: fields}
	r.objects[objectPrefix+name] = t
	return t.celType
}

// FindStructType implements [types.Provider].
func (r *registry) FindStructType(name string) (*types.Type, bool) {
	if t, ok := r.objects[name]; ok {
		return types.NewTypeTypeWithParam(t.celType), true
	}
	return r.Provider.FindStructType(name)
}

// FindStructFieldNames implements [types.Provider].
func (r *registry) FindStructFieldNames(name string) ([]string, bool) {
	if t, ok := r.objects[name]; ok {
		return t.names(), true
	}
	return r.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements [types.Provider].
func (r *registry) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	t, ok := r.objects[name]
	if !ok {
		return r.Provider.FindStructFieldType(name, field)
	}
	found := t.fields[field]
	if t.fields == nil {
		if s, open := t.shape.field(field); open {
			found = r.celType(s)
		}
	}
	if found == nil {
		r.missed = missing{object: name, field: field}
		return nil, false
	}
	return &types.FieldType{Type: found}, true
}

func (t *objectType) names() []string {
	if t.fields == nil {
		return t.shape.names()
	}
	return slices.Sorted(maps.Keys(t.fields))
}

// suggest says what would fit in place of the field that was missed.
func (r *registry) suggest(m missing) string {
	t, ok := r.objects[m.object]
	if !ok {
		return ""
	}
	return fits(m.field, t.names())
}

// fits returns which of the names a wrong one may have meant, as the end of a sentence.
func fits(wrong string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	best, distance := "", len(wrong)/3+2
	for _, name := range names {
		if len(wrong) > maxNesting || len(name) > maxNesting {
			continue // It would take long.
		}
		if d := Distance(strings.ToLower(wrong), strings.ToLower(name)); d < distance {
			best, distance = name, d
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	const most = 12
	if len(names) > most {
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}

// Distance is the number of letters to insert, delete or replace to get from one text to the other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
