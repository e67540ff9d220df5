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

package reconciler

import (
	"errors"
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// obstacles is the objects that have the name of a child and are not the parent's, so that syncs of the parent fail. The zero value is empty. It is
// safe for concurrent use.
type obstacles struct {
	mu sync.Mutex
	// parents are those that an object blocks, objects those that block a parent.
	parents map[children.Key]map[parent.Key]struct{}
	objects map[parent.Key][]children.Key
}

// Len returns how many parents something blocks.
func (s *obstacles) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// Record replaces what blocks a parent by what the error of its last sync names; nil for a parent that nothing blocks.
func (s *obstacles) Record(p parent.Key, err error) {
	blocking := conflicts(nil, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.objects[p] {
		if delete(s.parents[key], p); len(s.parents[key]) == 0 {
			delete(s.parents, key)
		}
	}
	delete(s.objects, p)
	if len(blocking) == 0 {
		return
	}
	if s.objects == nil {
		s.objects, s.parents = map[parent.Key][]children.Key{}, map[children.Key]map[parent.Key]struct{}{}
	}
	s.objects[p] = blocking
	for _, key := range blocking {
		if s.parents[key] == nil {
			s.parents[key] = map[parent.Key]struct{}{}
		}
		s.parents[key][p] = struct{}{}
	}
}

// Blocked returns the parents that an object blocks.
func (s *obstacles) Blocked(key children.Key) []parent.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parents[key]) == 0 {
		return nil
	}
	all := make([]parent.Key, 0, len(s.parents[key]))
	for p := range s.parents[key] {
		all = append(all, p)
	}
	return all
}

// conflicts appends the objects that an error, or one that it wraps, names as not the parent's.
func conflicts(keys []children.Key, err error) []children.Key {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			keys = conflicts(keys, each)
		}
		return keys
	}
	if conflict, ok := err.(*apply.ConflictError); ok { //nolint:errorlint // What is wrapped has its turn below.
		return append(keys, conflict.Key)
	}
	if wrapped := errors.Unwrap(err); wrapped != nil {
		return conflicts(keys, wrapped)
	}
	return keys
}
