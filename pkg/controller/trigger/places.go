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

import "slices"

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
// of different lengths differ as a whole, as in [Fields]. Nil takes no note.
func (p *Places) Compare(before, after any, path ...string) {
	if p == nil {
		return
	}
	p.d.size = 0
	for _, name := range path {
		p.d.enter([]byte(name))
	}
	p.d.values(before, after)
}

func (d *differences) values(before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			compareMaps(d, b, a)
			return
		}
	case map[string]string:
		if a, ok := after.(map[string]string); ok {
			compareMaps(d, b, a)
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

func compareMaps[V any](d *differences, before, after map[string]V) {
	here := d.size
	keys(after, func(key string) {
		d.enter([]byte(key))
		if was, ok := before[key]; ok {
			d.values(was, after[key])
		} else {
			d.add()
		}
		d.size = here
	})
	keys(before, func(key string) {
		if _, stays := after[key]; !stays {
			d.enter([]byte(key))
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
	here := d.size
	for i := range before {
		d.enterElement(i)
		d.values(before[i], after[i])
		d.size = here
	}
}
