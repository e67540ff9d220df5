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

// store holds objects by name, by controlling owner, and those without one by label.
type store struct {
	mu      sync.RWMutex
	objects map[string]map[string]*object.Object // by namespace and name
	count   int
	// bytes is the size of the objects' JSON.
	bytes int64
	// controlled has the objects that an owner controls, by the owner's UID.
	controlled map[types.UID][]*object.Object
	// orphans has the objects that no owner controls.
	orphans map[string]map[string]*object.Object
	// postings are the orphans with a label, by the label's key, for the keys that selectors used last: at most maxPostings.
	postings map[string]*posting
	// lookups counts the uses of postings.
	lookups atomic.Uint64
}

// maxPostings is how many labels are indexed at the same time. Controllers use few; only selectors with a key for each parent
// are more, and an index for one of those costs little more than the scan that it replaces.
const maxPostings = 64

// posting has the orphans with a label, by the label's value.
type posting struct {
	values map[string]map[key]*object.Object
	// used is the lookup that used it last.
	used atomic.Uint64
}

func newStore() *store {
	return &store{
		objects:    map[string]map[string]*object.Object{},
		controlled: map[types.UID][]*object.Object{},
		orphans:    map[string]map[string]*object.Object{},
		postings:   map[string]*posting{},
	}
}

func (s *store) get(k key) (*object.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[k.namespace][k.name]
	return o, ok
}

func (s *store) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count
}

func (s *store) size() (objects int, bytes int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count, s.bytes
}

func (s *store) list(namespace string) []*object.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return gather(s.objects, namespace, s.count, func(*object.Object) bool { return true })
}

func (s *store) controlledBy(owner types.UID) []*object.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.controlled[owner])
}

// put stores o and returns what it takes the place of.
func (s *store) put(o *object.Object) *object.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{o.Namespace(), o.Name()}
	before := s.objects[k.namespace][k.name]
	if before == nil {
		s.count++
	} else {
		s.bytes -= int64(len(before.JSON()))
		s.unindex(k, before)
	}
	s.bytes += int64(len(o.JSON()))
	set(s.objects, k, o)
	s.index(k, o)
	return before
}

// remove removes an object and returns it, nil if there is none.
func (s *store) remove(k key) *object.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[k.namespace][k.name]
	if before == nil {
		return nil
	}
	s.count--
	s.bytes -= int64(len(before.JSON()))
	unset(s.objects, k)
	s.unindex(k, before)
	return before
}

func (s *store) index(k key, o *object.Object) {
	if owner := o.Controller(); owner != nil {
		held, ok := s.controlled[owner.UID]
		uid := owner.UID
		if !ok {
			// Clone: the text aliases the object's JSON, which a key would keep in memory.
			uid = types.UID(strings.Clone(string(uid)))
		}
		s.controlled[uid] = append(held, o)
		return
	}
	set(s.orphans, k, o)
	s.eachPosting(o, func(p *posting, value string) { p.add(value, k, o) })
}

// eachPosting calls f for the postings of an orphan's labels.
func (s *store) eachPosting(o *object.Object, f func(p *posting, value string)) {
	if len(s.postings) == 0 {
		return
	}
	for label, value := range o.AllLabels() {
		if p := s.postings[label]; p != nil {
			f(p, value)
		}
	}
}

func (s *store) unindex(k key, o *object.Object) {
	if owner := o.Controller(); owner != nil {
		rest := s.controlled[owner.UID]
		if at := slices.Index(rest, o); at >= 0 {
			last := len(rest) - 1
			rest[at], rest[last] = rest[last], nil
			rest = rest[:last]
		}
		if len(rest) == 0 {
			delete(s.controlled, owner.UID)
		} else {
			s.controlled[owner.UID] = rest
		}
		return
	}
	unset(s.orphans, k)
	s.eachPosting(o, func(p *posting, value string) {
		delete(p.values[value], k)
		if len(p.values[value]) == 0 {
			delete(p.values, value)
		}
	})
}

// orphansMatching returns orphans without looking at all of them, where the selector demands a label.
func (s *store) orphansMatching(namespace string, selector labels.Selector) []*object.Object {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			return s.posted(namespace, selector, r.Key(), r.Values().UnsortedList())
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			return s.posted(namespace, selector, r.Key(), nil)
		case selection.NotEquals, selection.NotIn, selection.DoesNotExist:
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return gather(s.orphans, namespace, 0, func(o *object.Object) bool { return selector.Matches(o.LabelSet()) })
}

// posted looks only at orphans that have one of the values, or any, of a label.
func (s *store) posted(namespace string, selector labels.Selector, label string, values []string) []*object.Object {
	s.ensurePosted(label)
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.postings[label]
	if p == nil {
		// Other lookups dropped it in this moment.
		return gather(s.orphans, namespace, 0, func(o *object.Object) bool { return selector.Matches(o.LabelSet()) })
	}
	p.used.Store(s.lookups.Add(1))
	var result []*object.Object
	collect := func(found map[key]*object.Object) {
		for k, o := range found {
			if (namespace == "" || k.namespace == namespace) && selector.Matches(o.LabelSet()) {
				result = append(result, o)
			}
		}
	}
	if values == nil {
		for _, found := range p.values {
			collect(found)
		}
		return result
	}
	for _, value := range values {
		collect(p.values[value])
	}
	return result
}

func (s *store) ensurePosted(label string) {
	s.mu.RLock()
	_, ok := s.postings[label]
	s.mu.RUnlock()
	if ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.postings[label]; ok {
		return
	}
	if len(s.postings) >= maxPostings {
		s.dropPosting()
	}
	p := &posting{values: map[string]map[key]*object.Object{}}
	p.used.Store(s.lookups.Add(1))
	for namespace, named := range s.orphans {
		for name, o := range named {
			if value, ok := o.Label(label); ok {
				p.add(value, key{namespace, name}, o)
			}
		}
	}
	s.postings[strings.Clone(label)] = p
}

// dropPosting drops the posting that was not used for the longest time.
func (s *store) dropPosting() {
	oldest, since := "", uint64(math.MaxUint64)
	for label, p := range s.postings {
		if used := p.used.Load(); used < since {
			oldest, since = label, used
		}
	}
	delete(s.postings, oldest)
}

func (p *posting) add(value string, k key, o *object.Object) {
	if p.values[value] == nil {
		p.values[strings.Clone(value)] = map[key]*object.Object{k: o}
		return
	}
	p.values[value][k] = o
}

func set(index map[string]map[string]*object.Object, k key, o *object.Object) {
	if index[k.namespace] == nil {
		index[k.namespace] = map[string]*object.Object{}
	}
	index[k.namespace][k.name] = o
}

func unset(index map[string]map[string]*object.Object, k key) {
	delete(index[k.namespace], k.name)
	if len(index[k.namespace]) == 0 {
		delete(index, k.namespace)
	}
}

func gather(index map[string]map[string]*object.Object, namespace string, size int, want func(*object.Object) bool) []*object.Object {
	if namespace != "" {
		named := index[namespace]
		result := make([]*object.Object, 0, len(named))
		for _, o := range named {
			if want(o) {
				result = append(result, o)
			}
		}
		return result
	}
	result := make([]*object.Object, 0, size)
	for _, named := range index {
		for _, o := range named {
			if want(o) {
				result = append(result, o)
			}
		}
	}
	return result
}
