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
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	cached "github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// lazyMap is a map whose values are made when they are first used.
type lazyMap struct {
	makers map[string]func() ref.Val
	values map[string]ref.Val
}

var _ traits.Mapper = (*lazyMap)(nil)

var errLazy = errors.New("variables cannot be converted")

// Find implements [traits.Mapper].
func (m *lazyMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	if value, ok := m.values[string(name)]; ok {
		return value, true
	}
	maker, ok := m.makers[string(name)]
	if !ok {
		return nil, false
	}
	m.values[string(name)] = maker()
	return m.values[string(name)], true
}

// Get implements [traits.Indexer].
func (m *lazyMap) Get(key ref.Val) ref.Val { return found(m, key) }

// found is what a map finds, or the error that it finds nothing.
func found(in traits.Mapper, key ref.Val) ref.Val {
	if value, ok := in.Find(key); ok {
		return value
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements [traits.Container].
func (m *lazyMap) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	_, found := m.makers[string(name)]
	return types.Bool(ok && found)
}

// Iterator implements [traits.Iterable].
func (m *lazyMap) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(m.makers))).Iterator()
}

// Size implements [traits.Sizer].
func (m *lazyMap) Size() ref.Val { return types.Int(len(m.makers)) }

// ConvertToNative implements [ref.Val].
func (m *lazyMap) ConvertToNative(reflect.Type) (any, error) { return nil, errLazy }

// ConvertToType implements [ref.Val].
func (m *lazyMap) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errLazy) }

// Equal implements [ref.Val].
func (m *lazyMap) Equal(other ref.Val) ref.Val { return types.Bool(other == ref.Val(m)) }

// Type implements [ref.Val].
func (m *lazyMap) Type() ref.Type { return types.MapType }

// Value implements [ref.Val].
func (m *lazyMap) Value() any { return m.values }

// document is a JSON object whose fields are decoded when they are first used: hooks use few of them. The JSON was checked.
type document struct {
	data   []byte
	budget *budget
	// fields are those of an object that has few. An object with many is decoded as a whole, as is one that is walked.
	fields []docField
	whole  traits.Mapper
	err    ref.Val
}

type docField struct {
	name  string
	data  []byte
	value ref.Val
}

// fewFields is how many fields an object may have to be decoded in parts: they are searched one after the other.
const fewFields = 16

var (
	_ traits.Mapper   = (*document)(nil)
	_ traits.Foldable = (*document)(nil)
)

// decode decodes all fields.
func (d *document) decode() (traits.Mapper, ref.Val) {
	if d.whole == nil && d.err == nil {
		value, err := decodeWhole(d.data, d.budget)
		if err != nil {
			d.err = types.WrapErr(fmt.Errorf("decoding an object: %w", err))
		} else {
			d.whole = value.(traits.Mapper) //nolint:forcetypeassert // It is that of a map.
		}
	}
	return d.whole, d.err
}

// value is the map of all fields, or the error of decoding it, which is a value, too.
func (d *document) value() ref.Val {
	whole, err := d.decode()
	if err != nil {
		return err
	}
	return whole
}

// few reports whether the object has few fields, and finds them.
func (d *document) few() bool {
	if d.fields != nil || d.whole != nil || d.err != nil {
		return d.whole == nil && d.err == nil
	}
	fields, count := make([]docField, 0, fewFields/2), 0
	cached.EachPart(d.data, func(name string, value []byte) {
		if count++; count <= fewFields {
			fields = append(fields, docField{name: name, data: value})
		}
	})
	if count > fewFields {
		d.decode()
		return false
	}
	d.fields = fields
	return true
}

// Find implements [traits.Mapper].
func (d *document) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok || !d.few() {
		whole, err := d.decode()
		if err != nil {
			return err, true
		}
		return whole.Find(key)
	}
	for i := range slices.Backward(d.fields) { // The last one of a name counts.
		f := &d.fields[i]
		if f.name != string(name) {
			continue
		}
		if f.value == nil {
			f.value = decodeField(f.data, d.budget)
		}
		return f.value, true
	}
	return nil, false
}

// decodeField returns the value of JSON that was checked.
func decodeField(data []byte, b *budget) ref.Val {
	switch data[0] {
	case '{':
		return &document{data: data, budget: b}
	case '"':
		if text := data[1 : len(data)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
			return types.String(text)
		}
	default:
	}
	var value any
	if err := b.decode(data, &value); err != nil {
		return types.WrapErr(fmt.Errorf("decoding a field: %w", err))
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// Get implements [traits.Indexer].
func (d *document) Get(key ref.Val) ref.Val { return found(d, key) }

// Contains implements [traits.Container].
func (d *document) Contains(key ref.Val) ref.Val {
	value, found := d.Find(key)
	if found && types.IsError(value) {
		return value
	}
	return types.Bool(found)
}

// Iterator implements [traits.Iterable].
func (d *document) Iterator() traits.Iterator {
	whole, err := d.decode()
	if err != nil {
		return types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{err}).(traits.Iterable).Iterator() //nolint:forcetypeassert // It is a list.
	}
	return whole.Iterator()
}

// Fold implements [traits.Foldable].
func (d *document) Fold(f traits.Folder) {
	whole, err := d.decode()
	if err != nil {
		f.FoldEntry(err, err)
		return
	}
	types.ToFoldableMap(whole).Fold(f)
}

// Size implements [traits.Sizer].
func (d *document) Size() ref.Val {
	whole, err := d.decode()
	if err != nil {
		return err
	}
	return whole.Size()
}

// Equal implements [ref.Val].
func (d *document) Equal(other ref.Val) ref.Val { return d.value().Equal(other) }

// ConvertToNative implements [ref.Val].
func (d *document) ConvertToNative(t reflect.Type) (any, error) {
	return d.value().ConvertToNative(t)
}

// ConvertToType implements [ref.Val].
func (d *document) ConvertToType(t ref.Type) ref.Val { return d.value().ConvertToType(t) }

// Type implements [ref.Val].
func (*document) Type() ref.Type { return types.MapType }

// Value implements [ref.Val].
func (d *document) Value() any { return d.value().Value() }
