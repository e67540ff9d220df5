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
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Parent is what a response of a customize hook depends on. The compact objects of the cluster cache are such.
type Parent interface {
	// UID of the parent.
	UID() types.UID
	// Generation is zero for kinds that have none.
	Generation() int64
	// ResourceVersion of the parent.
	ResourceVersion() string
	// Labels are not modified.
	Labels() map[string]string
	// Annotations are not modified.
	Annotations() map[string]string
	// JSON is the whole object. It is not modified.
	JSON() []byte
}

// Responses remembers the compiled responses of customize hooks by parent. A response is valid until the parent's spec, labels
// or annotations change; for kinds without a generation, until anything of the parent but its resourceVersion changes.
// Errors are not remembered, since nothing is put for them. K is how the engine names a parent. It is safe for concurrent
// use.
type Responses[K comparable] struct {
	mu      sync.Mutex
	parents map[K]response
}

type response struct {
	question question
	rules    Rules
}

// question tells one state of a parent from all others as far as a customize hook is concerned.
type question struct {
	uid        types.UID
	generation int64
	digest     [sha256.Size]byte
}

// NewResponses returns an empty memory.
func NewResponses[K comparable]() *Responses[K] {
	return &Responses[K]{parents: map[K]response{}}
}

// Get returns the response for the parent as it is; false when the hook must be asked.
func (a *Responses[K]) Get(key K, parent Parent) (Rules, bool) {
	a.mu.Lock()
	known, ok := a.parents[key]
	a.mu.Unlock()
	if !ok || known.question.uid != parent.UID() || known.question.generation != parent.Generation() ||
		known.question != ask(parent) {
		return Rules{}, false
	}
	return known.rules, true
}

// Put remembers the response to a request that showed the parent as it is given here.
func (a *Responses[K]) Put(key K, parent Parent, rules Rules) {
	known := response{question: ask(parent), rules: rules}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parents[key] = known
}

// Remove forgets the response of a parent that is gone. It is to be called by the parent's own sync, which puts responses too,
// so that none is left behind.
func (a *Responses[K]) Remove(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.parents, key)
}

// Len returns the number of responses.
func (a *Responses[K]) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.parents)
}

func ask(parent Parent) question {
	q := question{uid: parent.UID(), generation: parent.Generation()}
	digest := sha256.New()
	if q.generation > 0 {
		for _, set := range []map[string]string{parent.Labels(), parent.Annotations()} {
			for _, key := range slices.Sorted(maps.Keys(set)) {
				writeString(digest.Write, key)
				writeString(digest.Write, set[key])
			}
			writeString(digest.Write, "")
		}
	} else {
		// Inside of strings the quotes are escaped, so only fields of this name are cut out.
		field := []byte(`"resourceVersion":"` + parent.ResourceVersion() + `"`)
		for part := range bytes.SplitSeq(parent.JSON(), field) {
			writeString(digest.Write, part)
		}
	}
	digest.Sum(q.digest[:0])
	return q
}

// writeString writes the length before the string, so that no two sequences of strings write the same. Hashes do not fail.
func writeString[S string | []byte](write func([]byte) (int, error), s S) {
	_, _ = write(binary.AppendUvarint(nil, uint64(len(s))))
	_, _ = write([]byte(s))
}
