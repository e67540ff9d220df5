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
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
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
