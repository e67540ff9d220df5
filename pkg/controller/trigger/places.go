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

package trigger

import (
	"slices"
	"strconv"
)

// Places are those at which decoded values differ, such as status.replicas. The zero value has none. It is not safe for concurrent use.
type Places struct{ d differences }

// Reset drops all of them.
func (p *Places) Reset() { p.d = differences{} }

// List returns the places in their order, 8 at most. It is valid until Reset. Nil has none.
func (p *Places) List() []string {
	if p == nil {
		return nil
	}
	found := p.d.found[:p.d.n]
	slices.Sort(found)
	return found
}

// Compare adds the places at which two values differ that stand at a path, such as metadata, labels. A value that is nil is not there. Lists
// of different lengths differ as a whole, as in [Fields].
func (p *Places) Compare(before, after any, path ...string) {
	p.d.size = 0
	for _, name := range path {
		p.d.enterNamed(name)
	}
	p.d.values(before, after)
}

func (d *differences) values(before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			d.maps(b, a)
			return
		}
	case map[string]string:
		if a, ok := after.(map[string]string); ok {
			d.texts(b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok && len(a) == len(b) {
			d.elements(b, a)
			return
		}
	case string, bool, int64, float64, nil:
		if before == after {
			return
		}
	}
	d.add()
}

func (d *differences) maps(before, after map[string]any) {
	here := d.size
	keys(after, func(key string) {
		d.enterNamed(key)
		if was, ok := before[key]; ok {
			d.values(was, after[key])
		} else {
			d.add()
		}
		d.size = here
	})
	missing(d, before, after)
}

func (d *differences) texts(before, after map[string]string) {
	here := d.size
	keys(after, func(key string) {
		if was, ok := before[key]; !ok || was != after[key] {
			d.enterNamed(key)
			d.add()
			d.size = here
		}
	})
	missing(d, before, after)
}

// missing adds the places of keys that are not there any more.
func missing[V any](d *differences, before, after map[string]V) {
	here := d.size
	keys(before, func(key string) {
		if _, stays := after[key]; !stays {
			d.enterNamed(key)
			d.add()
			d.size = here
		}
	})
}

// keys calls a function with the keys of a map in their order: of many places always the same ones are kept.
func keys[V any](m map[string]V, visit func(key string)) {
	var few [2 * usual]string
	list := few[:0]
	for key := range m {
		list = append(list, key)
	}
	slices.Sort(list)
	for _, key := range list {
		visit(key)
	}
}

func (d *differences) elements(before, after []any) {
	var number [20]byte
	here := d.size
	for i := range before {
		d.write('[')
		d.write(strconv.AppendInt(number[:0], int64(i), 10)...)
		d.write(']')
		d.values(before[i], after[i])
		d.size = here
	}
}

func (d *differences) enterNamed(key string) {
	if d.size > 0 {
		d.write('.')
	}
	if d.size < maxPath {
		copy(d.path[d.size:], key)
	}
	d.size += len(key)
}
