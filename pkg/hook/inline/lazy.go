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
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
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
func (m *lazyMap) Get(key ref.Val) ref.Val {
	if value, ok := m.Find(key); ok {
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
