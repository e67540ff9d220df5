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
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// objects are the observed objects of one resource: a list in the order of their keys, and a map by their keys. The key of an object is
// its name, or namespace/name where it is in another namespace than the parent. They are decoded when they are first used.
type objects struct {
	budget          *budget
	groups          []wire.Group
	key             string
	parentNamespace string

	loaded bool
	keys   []string
	values traits.Lister
	err    error
}

var (
	_ traits.Lister   = (*objects)(nil)
	_ traits.Mapper   = (*objects)(nil)
	_ traits.Foldable = (*objects)(nil)
)

// decode returns the objects with their keys, sorted by these.
func (o *objects) decode() ([]string, traits.Lister, error) {
	if !o.loaded {
		o.keys, o.values, o.err = o.load()
		o.loaded = true
	}
	return o.keys, o.values, o.err
}

func (o *objects) load() ([]string, traits.Lister, error) {
	shown := map[string]wire.Object{}
	for _, group := range o.groups {
		if group.Key != o.key {
			continue
		}
		for _, observed := range group.Objects {
			name := observed.Name()
			if namespace := observed.Namespace(); namespace != "" && namespace != o.parentNamespace {
				name = namespace + "/" + name
			}
			if _, ok := shown[name]; !ok {
				shown[name] = observed
			}
		}
	}
	keys := slices.Sorted(maps.Keys(shown))
	values := make([]ref.Val, len(keys))
	for i, name := range keys {
		value, err := decode(shown[name].JSON(), o.budget)
		if err != nil {
			return nil, nil, fmt.Errorf("decoding %s %s: %w", o.key, name, err)
		}
		values[i] = value
	}
	return keys, types.NewRefValList(types.DefaultTypeAdapter, values), nil
}

// decode returns the value of a JSON object.
func decode(data []byte, b *budget) (ref.Val, error) {
	if len(data) > 0 && data[0] == '{' {
		return &document{data: data, budget: b}, nil
	}
	return decodeWhole(data, b)
}

func decodeWhole(data []byte, b *budget) (ref.Val, error) {
	var content map[string]any
	if err := b.decode(data, &content); err != nil {
		return nil, err
	}
	return types.DefaultTypeAdapter.NativeToValue(content), nil
}

// list returns the objects as CEL's own list, which reports the error of each use where they cannot be decoded.
func (o *objects) list() (traits.Lister, ref.Val) {
	_, list, err := o.decode()
	if err != nil {
		return nil, types.WrapErr(err)
	}
	return list, nil
}

// value is the list, or the error of decoding it, which is a value, too.
func (o *objects) value() ref.Val {
	list, failed := o.list()
	if failed != nil {
		return failed
	}
	return list
}

// Find implements [traits.Mapper]. A number finds the object at that place of the list.
func (o *objects) Find(key ref.Val) (ref.Val, bool) {
	keys, list, err := o.decode()
	if err != nil {
		return types.WrapErr(err), true
	}
	switch key := key.(type) {
	case types.String:
		if i, ok := slices.BinarySearch(keys, string(key)); ok {
			return list.Get(types.Int(i)), true
		}
	case types.Int:
		if key >= 0 && int(key) < len(keys) {
			return list.Get(key), true
		}
	default:
		return types.MaybeNoSuchOverloadErr(key), true
	}
	return nil, false
}

// Get implements [traits.Indexer].
func (o *objects) Get(key ref.Val) ref.Val { return found(o, key) }

// Contains implements [traits.Container]: a text is the key of an object.
func (o *objects) Contains(value ref.Val) ref.Val {
	if key, ok := value.(types.String); ok {
		_, found := o.Find(key)
		return types.Bool(found)
	}
	list, failed := o.list()
	if failed != nil {
		return failed
	}
	return list.Contains(value)
}

// Iterator implements [traits.Iterable]: over the objects, not over their keys.
func (o *objects) Iterator() traits.Iterator {
	list, failed := o.list()
	if failed != nil {
		return types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{failed}).Iterator()
	}
	return list.Iterator()
}

// Fold implements [traits.Foldable]: over places and objects, as a list.
func (o *objects) Fold(f traits.Folder) {
	list, failed := o.list()
	if failed != nil {
		f.FoldEntry(types.IntZero, failed)
		return
	}
	types.ToFoldableList(list).Fold(f)
}

// Size implements [traits.Sizer].
func (o *objects) Size() ref.Val {
	list, failed := o.list()
	if failed != nil {
		return failed
	}
	return list.Size()
}

// Add implements [traits.Adder].
func (o *objects) Add(other ref.Val) ref.Val {
	list, failed := o.list()
	if failed != nil {
		return failed
	}
	return list.Add(other)
}

// Equal implements [ref.Val].
func (o *objects) Equal(other ref.Val) ref.Val { return o.value().Equal(other) }

// ConvertToNative implements [ref.Val].
func (o *objects) ConvertToNative(t reflect.Type) (any, error) {
	return o.value().ConvertToNative(t)
}

// ConvertToType implements [ref.Val].
func (o *objects) ConvertToType(t ref.Type) ref.Val { return o.value().ConvertToType(t) }

// Type implements [ref.Val].
func (o *objects) Type() ref.Type { return types.ListType }

// Value implements [ref.Val].
func (o *objects) Value() any {
	list, failed := o.list()
	if failed != nil {
		return nil
	}
	return list.Value()
}
