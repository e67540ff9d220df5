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

package cache

import (
	"math"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// group is objects by name, with an index of the labels that selectors used last. The lock of the store guards it.
type group struct {
	objects map[string]map[string]*object.Object // by namespace and name
	count   int
	// postings are the objects with a label, by the label's key: at most maxPostings.
	postings map[string]*posting
	// scanned is how many objects were looked at because there is no posting, by the label's key: at most maxPostings.
	scanned map[string]int
	// lookups counts the uses of postings.
	lookups atomic.Uint64
}

// maxPostings is how many labels are indexed at the same time. Controllers use few; only selectors with a key for each parent
// are more, and an index for one of those costs little more than the scans that it replaces.
const maxPostings = 64

// posting has the objects with a label, by the label's value.
type posting struct {
	values map[string]map[key]*object.Object
	// used is the lookup that used it last.
	used atomic.Uint64
}

func newGroup() group {
	return group{objects: map[string]map[string]*object.Object{}, postings: map[string]*posting{}, scanned: map[string]int{}}
}

// size returns how many objects a namespace has, all when it is empty.
func (g *group) size(namespace string) int {
	if namespace == "" {
		return g.count
	}
	return len(g.objects[namespace])
}

// add adds an object that is not there.
func (g *group) add(k key, o *object.Object) {
	if g.objects[k.namespace] == nil {
		g.objects[k.namespace] = map[string]*object.Object{}
	}
	g.objects[k.namespace][k.name] = o
	g.count++
	g.eachPosting(o, func(p *posting, value string) { p.add(value, k, o) })
}

// remove removes an object that is there.
func (g *group) remove(k key, o *object.Object) {
	delete(g.objects[k.namespace], k.name)
	if len(g.objects[k.namespace]) == 0 {
		delete(g.objects, k.namespace)
	}
	g.count--
	g.eachPosting(o, func(p *posting, value string) {
		delete(p.values[value], k)
		if len(p.values[value]) == 0 {
			delete(p.values, value)
		}
	})
}

// eachPosting calls f for the postings of an object's labels.
func (g *group) eachPosting(o *object.Object, f func(p *posting, value string)) {
	if len(g.postings) == 0 {
		return
	}
	for label, value := range o.AllLabels() {
		if p := g.postings[label]; p != nil {
			f(p, value)
		}
	}
}

// want makes a posting, unless there is one, or those who looked for the label have not yet looked at as many objects without it as
// there are: selectors that look at small namespaces, each with a label of its own, do better without.
func (g *group) want(namespace, label string) {
	if _, ok := g.postings[label]; ok {
		return
	}
	if scanned := g.scanned[label] + 1 + g.size(namespace); scanned < g.count {
		if len(g.scanned) >= maxPostings {
			clear(g.scanned)
		}
		g.scanned[strings.Clone(label)] = scanned
		return
	}
	delete(g.scanned, label)
	if len(g.postings) >= maxPostings {
		g.dropPosting()
	}
	p := &posting{values: map[string]map[key]*object.Object{}}
	p.used.Store(g.lookups.Add(1))
	for namespace, named := range g.objects {
		for name, o := range named {
			if value, ok := o.Label(label); ok {
				p.add(value, key{namespace, name}, o)
			}
		}
	}
	g.postings[strings.Clone(label)] = p
}

// dropPosting drops the posting that was not used for the longest time.
func (g *group) dropPosting() {
	oldest, since := "", uint64(math.MaxUint64)
	for label, p := range g.postings {
		if used := p.used.Load(); used < since {
			oldest, since = label, used
		}
	}
	delete(g.postings, oldest)
}

// posted returns the objects that match a selector which demands one of the values, or any when there are none, of a label. The lock may
// be held for reading.
func (g *group) posted(namespace string, selector labels.Selector, label string, values []string) []*object.Object {
	p := g.postings[label]
	if p == nil {
		// There is none yet, or other lookups dropped it in this moment.
		return g.scan(namespace, selector)
	}
	p.used.Store(g.lookups.Add(1))
	found := p.having(values)
	candidates := 0
	for _, objects := range found {
		candidates += len(objects)
	}
	if g.size(namespace) < candidates {
		return g.scan(namespace, selector)
	}
	var result []*object.Object
	for _, objects := range found {
		for k, o := range objects {
			if (namespace == "" || k.namespace == namespace) && selector.Matches(o.LabelSet()) {
				result = append(result, o)
			}
		}
	}
	return result
}

// scan returns the objects that match a selector. The lock may be held for reading.
func (g *group) scan(namespace string, selector labels.Selector) []*object.Object {
	return g.gather(namespace, 0, func(o *object.Object) bool { return selector.Matches(o.LabelSet()) })
}

// gather returns the objects that are wanted, of a namespace or of all when it is empty. The lock may be held for reading.
func (g *group) gather(namespace string, expected int, want func(*object.Object) bool) []*object.Object {
	result := make([]*object.Object, 0, expected)
	if namespace != "" {
		for _, o := range g.objects[namespace] {
			if want(o) {
				result = append(result, o)
			}
		}
		return result
	}
	for _, named := range g.objects {
		for _, o := range named {
			if want(o) {
				result = append(result, o)
			}
		}
	}
	return result
}

func (p *posting) add(value string, k key, o *object.Object) {
	if p.values[value] == nil {
		p.values[strings.Clone(value)] = map[key]*object.Object{k: o}
		return
	}
	p.values[value][k] = o
}

// having returns the objects with each of the values, or with any when there are none.
func (p *posting) having(values []string) []map[key]*object.Object {
	var found []map[key]*object.Object
	if values == nil {
		for _, objects := range p.values {
			found = append(found, objects)
		}
		return found
	}
	for _, value := range values {
		if objects := p.values[value]; len(objects) > 0 {
			found = append(found, objects)
		}
	}
	return found
}
