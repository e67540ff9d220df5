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
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// key names an object among those of its resource.
type key struct{ namespace, name string }

// store holds objects by name, by controlling owner, and by label.
type store struct {
	mu  sync.RWMutex
	all group
	// bytes is the size of the objects' JSON.
	bytes int64
	// controlled has the objects that an owner controls, by the owner's UID.
	controlled map[types.UID]*owned
	// orphans has the objects that no owner controls.
	orphans group
}

func newStore() *store {
	return &store{all: newGroup(), controlled: map[types.UID]*owned{}, orphans: newGroup()}
}

func (s *store) get(k key) (*object.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.all.objects[k.namespace][k.name]
	return o, ok
}

func (s *store) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all.count
}

func (s *store) size() (objects int, bytes int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all.count, s.bytes
}

func (s *store) list(namespace string) []*object.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all.gather(namespace, s.all.size(namespace), func(*object.Object) bool { return true })
}

// named returns the objects with one of the names, which are sorted, in whatever namespace.
func (s *store) named(names []string) []*object.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(names)*len(s.all.objects) > s.all.count {
		return s.all.gather("", 0, func(o *object.Object) bool {
			_, ok := slices.BinarySearch(names, o.Name())
			return ok
		})
	}
	var result []*object.Object
	for _, objects := range s.all.objects {
		for _, name := range names {
			if o, ok := objects[name]; ok {
				result = append(result, o)
			}
		}
	}
	return result
}

func (s *store) controlledBy(owner types.UID) []*object.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.controlled[owner]; c != nil {
		return slices.Clone(c.objects)
	}
	return nil
}

// put stores o and returns what it takes the place of.
func (s *store) put(o *object.Object) *object.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{o.Namespace(), o.Name()}
	before := s.all.objects[k.namespace][k.name]
	if before != nil {
		s.forget(k, before)
	}
	s.bytes += int64(len(o.JSON()))
	s.all.add(k, o)
	s.index(k, o)
	return before
}

// remove removes an object and returns it, nil if there is none.
func (s *store) remove(k key) *object.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.all.objects[k.namespace][k.name]
	if before != nil {
		s.forget(k, before)
	}
	return before
}

// forget removes what is stored under a key.
func (s *store) forget(k key, before *object.Object) {
	s.bytes -= int64(len(before.JSON()))
	s.all.remove(k, before)
	s.unindex(k, before)
}

// owned are the objects that one owner controls. The map has a pointer to them: to set the value of a key again would replace the key,
// too, by one that is a part of another object's JSON.
type owned struct{ objects []*object.Object }

func (s *store) index(k key, o *object.Object) {
	owner, controlled := o.ControllerUID()
	if !controlled {
		s.orphans.add(k, o)
		return
	}
	c := s.controlled[owner]
	if c == nil {
		c = &owned{}
		// Clone: the text aliases the object's JSON, which a key would keep in memory.
		s.controlled[types.UID(strings.Clone(string(owner)))] = c
	}
	c.objects = append(c.objects, o)
}

func (s *store) unindex(k key, o *object.Object) {
	owner, controlled := o.ControllerUID()
	if !controlled {
		s.orphans.remove(k, o)
		return
	}
	c := s.controlled[owner]
	if c == nil {
		return
	}
	if at := slices.Index(c.objects, o); at >= 0 {
		last := len(c.objects) - 1
		c.objects[at], c.objects[last] = c.objects[last], nil
		c.objects = c.objects[:last]
	}
	if len(c.objects) == 0 {
		delete(s.controlled, owner)
	}
}

// matching returns objects of s.all or s.orphans, of a namespace or of all when it is empty, without looking at all of them where the
// selector demands a label.
func (s *store) matching(g *group, namespace string, selector labels.Selector) []*object.Object {
	demanded, selectable := demandsOf(selector)
	if !selectable {
		return nil
	}
	found, missed := s.look(g, namespace, selector, demanded)
	if missed > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.want(demanded, missed)
	}
	return found
}

// look returns what matching does, and at how many objects it looked that an index of more of the labels would have spared it.
func (s *store) look(g *group, namespace string, selector labels.Selector, demanded []demand) (found []*object.Object, missed int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return g.matching(namespace, selector, demanded)
}

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

// demand is a label that all objects have which match a selector: with one of the values, or with any where there are none.
type demand struct {
	label  string
	values []string
	of     *labels.Requirement
}

// demandsOf returns the labels that a selector demands; selectable is false for one that nothing matches.
func demandsOf(selector labels.Selector) (demanded []demand, selectable bool) {
	requirements, selectable := selector.Requirements()
	for i := range requirements {
		switch r := &requirements[i]; r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			demanded = append(demanded, demand{r.Key(), r.Values().UnsortedList(), r})
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			demanded = append(demanded, demand{r.Key(), nil, r})
		case selection.NotEquals, selection.NotIn, selection.DoesNotExist:
		}
	}
	return demanded, selectable
}

// want makes a posting of one of the labels that are demanded and have none, once lookups without it have looked at as many objects in vain as
// there are: selectors that look at small namespaces, each with a label of its own, do better without.
func (g *group) want(demanded []demand, missed int) {
	var rare *demand
	for i := range demanded {
		d := &demanded[i]
		if _, ok := g.postings[d.label]; ok {
			continue
		}
		missed := g.scanned[d.label] + missed
		if missed < g.count {
			if len(g.scanned) >= maxPostings {
				clear(g.scanned)
			}
			g.scanned[strings.Clone(d.label)] = missed
			continue
		}
		delete(g.scanned, d.label)
		if rare == nil || g.having(d.of) < g.having(rare.of) {
			rare = d
		}
	}
	if rare != nil {
		g.post(rare.label)
	}
}

// having returns how many objects meet a requirement.
func (g *group) having(r *labels.Requirement) int {
	n := 0
	for _, named := range g.objects {
		for _, o := range named {
			if r.Matches(o.LabelSet()) {
				n++
			}
		}
	}
	return n
}

// post makes the posting of a label.
func (g *group) post(label string) {
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

// matching returns the objects that match a selector, of a namespace or of all when it is empty, and at how many it looked that postings
// of all the labels which the selector demands would have spared it. It looks only at objects that have the rarest one of those that have
// a posting. The lock may be held for reading.
func (g *group) matching(namespace string, selector labels.Selector, demanded []demand) (result []*object.Object, missed int) {
	var rarest, used *posting
	var values []string
	looked, unposted := g.size(namespace), false
	for _, d := range demanded {
		p := g.postings[d.label]
		if p == nil {
			unposted = true
			continue
		}
		used = p
		if size := p.size(d.values, looked); size <= looked {
			rarest, values, looked = p, d.values, size
		}
	}
	if rarest == nil {
		result = g.scan(namespace, selector)
	} else {
		result, used = rarest.matching(namespace, selector, values), rarest
	}
	if used != nil { // Also where the namespace has fewer objects.
		used.used.Store(g.lookups.Add(1))
	}
	switch {
	case !unposted:
		return result, 0
	case used == nil:
		return result, 1 + looked
	default:
		return result, looked - len(result)
	}
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

// size returns how many objects have one of the values, or any when there are none. It does not count further than beyond enough.
func (p *posting) size(values []string, enough int) int {
	n := 0
	for _, objects := range p.having(values) {
		if n += len(objects); n > enough {
			break
		}
	}
	return n
}

// matching returns the objects that match a selector which demands one of the values, or any when there are none.
func (p *posting) matching(namespace string, selector labels.Selector, values []string) []*object.Object {
	var result []*object.Object
	for _, objects := range p.having(values) {
		for k, o := range objects {
			if (namespace == "" || k.namespace == namespace) && selector.Matches(o.LabelSet()) {
				result = append(result, o)
			}
		}
	}
	return result
}

// having yields the objects with each of the values, or with any when there are none.
func (p *posting) having(values []string) iter.Seq2[string, map[key]*object.Object] {
	return func(yield func(string, map[key]*object.Object) bool) {
		if values == nil {
			for value, objects := range p.values {
				if !yield(value, objects) {
					return
				}
			}
		}
		for _, value := range values {
			if !yield(value, p.values[value]) {
				return
			}
		}
	}
}
