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

package related

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Parent is what of a parent a response of a customize hook depends on. The compact objects of the cluster cache implement it.
type Parent interface {
	// UID of the parent.
	UID() types.UID
	// Generation is zero for kinds that have none.
	Generation() int64
	// ResourceVersion of the parent.
	ResourceVersion() string
	// Labels of the parent. They are not modified.
	Labels() map[string]string
	// Annotations of the parent. They are not modified.
	Annotations() map[string]string
	// JSON is the whole object. It is not modified.
	JSON() []byte
	// Members yields the names and the JSON of the fields of the object, which are not modified.
	Members() iter.Seq2[string, []byte]
}

// Responses caches the compiled responses of customize hooks by parent (docs/reference/compatibility.md#d16.1). A response depends on
//
//   - the parent: it is valid until the spec, labels or annotations change; for kinds without a generation, until anything of the
//     parent but its resourceVersion changes. An API server shows another spec under the same generation when defaults or conversions
//     of the kind change;
//   - the controller that the request held, of which any change counts;
//   - the types that its rules name, as the cluster served them: the caller drops it when they are served in another way;
//   - the hook itself, of whose changes nobody is told: the caller says when it is to be asked again.
//
// Errors are not cached: the caller puts nothing for them. K is how the engine names a parent. It is safe for concurrent use.
type Responses[K comparable] struct {
	mu      sync.Mutex
	parents map[K]response
	// again are the parents for which the hook is to be asked again.
	again map[K]struct{}
}

type response struct {
	state state
	// controller is that of the request. All responses since its last change share the bytes.
	controller []byte
	rules      Rules
}

// state identifies what of a parent a response depends on: equal states have the same response.
type state struct {
	uid        types.UID
	generation int64
	digest     [sha256.Size]byte
}

// NewResponses returns an empty cache.
func NewResponses[K comparable]() *Responses[K] {
	return &Responses[K]{parents: map[K]response{}}
}

// Get returns the response for the controller and the parent as they are; false when the hook must be called.
func (r *Responses[K]) Get(key K, controller []byte, parent Parent) (Rules, bool) {
	r.mu.Lock()
	known, ok := r.parents[key]
	_, again := r.again[key]
	r.mu.Unlock()
	if !ok || again || known.state.uid != parent.UID() || known.state.generation != parent.Generation() ||
		!bytes.Equal(known.controller, controller) || known.state != stateOf(parent) {
		return Rules{}, false
	}
	return known.rules, true
}

// AskAgain has Get return false for a parent until a call of the hook for it has begun after this: the response to a call that is under way
// may come from the hook as it was.
func (r *Responses[K]) AskAgain(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again == nil {
		r.again = map[K]struct{}{}
	}
	r.again[key] = struct{}{}
}

// Asking tells that a call of the hook begins for a parent, whose response is put when there is one.
func (r *Responses[K]) Asking(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.again[key]; again {
		delete(r.again, key)
		delete(r.parents, key) // The call may fail.
	}
}

// Put caches the response to a request that held the controller, whose bytes are not modified, and the parent as given.
func (r *Responses[K]) Put(key K, controller []byte, parent Parent, rules Rules) {
	known := response{state: stateOf(parent), controller: controller, rules: rules}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parents[key] = known
}

// Types returns the types that rules name, each once.
func (r *Responses[K]) Types() []Type {
	r.mu.Lock()
	defer r.mu.Unlock()
	types := map[Type]struct{}{}
	for _, known := range r.parents {
		for n := range known.rules.rules {
			types[known.rules.rules[n].Type] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(types))
}

// Drop drops the responses with a rule that names one of the types, and returns their parents.
func (r *Responses[K]) Drop(types map[Type]struct{}) (parents []K) {
	if len(types) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, known := range r.parents {
		if slices.ContainsFunc(known.rules.rules, func(named rule) bool { _, ok := types[named.Type]; return ok }) {
			delete(r.parents, key)
			parents = append(parents, key)
		}
	}
	return parents
}

// Remove drops the response of a parent that no longer exists.
func (r *Responses[K]) Remove(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.parents, key)
	delete(r.again, key)
}

// Len returns the number of parents of which something is remembered.
func (r *Responses[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.parents)
	for key := range r.again {
		if _, ok := r.parents[key]; !ok {
			n++
		}
	}
	return n
}

// stateOf returns the state of a parent.
func stateOf(parent Parent) state {
	s := state{uid: parent.UID(), generation: parent.Generation()}
	digest := sha256.New()
	if s.generation > 0 {
		for _, set := range []map[string]string{parent.Labels(), parent.Annotations()} {
			for _, key := range slices.Sorted(maps.Keys(set)) {
				writeString(digest.Write, key)
				writeString(digest.Write, set[key])
			}
			writeString(digest.Write, "")
		}
		for name, value := range parent.Members() {
			if name != "metadata" && name != "status" {
				writeString(digest.Write, name)
				writeString(digest.Write, value)
			}
		}
	} else {
		// Within strings quotes are escaped, so this cuts out fields of this name only.
		field := []byte(`"resourceVersion":"` + parent.ResourceVersion() + `"`)
		for part := range bytes.SplitSeq(parent.JSON(), field) {
			writeString(digest.Write, part)
		}
	}
	digest.Sum(s.digest[:0])
	return s
}

// writeString writes the length before the string, so that different sequences of strings give different digests. Hashes do
// not fail.
func writeString[S string | []byte](write func([]byte) (int, error), s S) {
	_, _ = write(binary.AppendUvarint(nil, uint64(len(s))))
	_, _ = write([]byte(s))
}
