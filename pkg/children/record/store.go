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

package record

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Store has the records of the children of the parents of one controller, for as long as the parents exist. It is safe for
// concurrent use; one parent is used by one goroutine at a time.
type Store struct {
	mu      sync.Mutex
	parents map[types.UID]Records
	// count is the number of all records.
	count int
}

// NewStore returns a store without records.
func NewStore() *Store { return &Store{parents: map[types.UID]Records{}} }

// Of returns the records of the children of a parent.
func (s *Store) Of(parent types.UID) Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parents[parent]
}

// Commit replaces the records of the children of a parent. They belong to the store afterwards.
func (s *Store) Commit(parent types.UID, records Records) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.parents[parent]
	s.count += len(records) - len(before)
	switch {
	case len(records) == 0:
		delete(s.parents, parent)
		return
	case slices.Equal(before, records):
		return
	case !known:
		parent = ownUID(parent)
	}
	s.parents[parent] = records
}

// Forget drops the records of a parent that is gone.
func (s *Store) Forget(parent types.UID) { s.Commit(parent, nil) }

// Len returns the numbers of parents with records and of records.
func (s *Store) Len() (parents, records int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parents), s.count
}

// Settled reports whether a plan for a response that was planned from before would do nothing, because the observed children,
// each given once, are the desired ones and need nothing in the versions in which they are observed. It is false for a response
// without children. epoch returns the present epoch of a group.
func (r Records) Settled(f Fingerprint, observed []*object.Object, epoch func(group string) int64, now time.Time) bool {
	if f == 0 || len(observed) == 0 || len(r) < len(observed) {
		return false
	}
	for _, o := range observed {
		kind := o.GroupVersionKind()
		known := r.Get(children.Key{Group: kind.Group, Kind: kind.Kind, Namespace: o.Namespace(), Name: o.Name()})
		if known == nil || known.Fingerprint != f || int(known.Siblings) != len(observed) || o.Deleting() {
			return false
		}
		var present int64
		if len(known.Returned()) > 0 {
			present = epoch(kind.Group)
		}
		if known.NeedsNothing(known.Desired, o.ResourceVersion(), present, now) == Unknown {
			return false
		}
	}
	return true
}

// Outdated reports whether a child may need something although it did not change: what is known of what the API server makes of it was
// learnt in an epoch that is past. epoch returns the present epoch of a group.
func (r Records) Outdated(epoch func(group string) int64) bool {
	return slices.ContainsFunc(r, func(known *Record) bool {
		switch {
		case known.More == nil:
			return false
		case known.More.Untried != (Untried{}) && known.More.Untried.Epoch != epoch(known.Key.Group):
			return true
		}
		return len(known.More.Returned) > 0 && known.Epoch != epoch(known.Key.Group)
	})
}
