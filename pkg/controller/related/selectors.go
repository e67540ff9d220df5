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
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// ErrNoSelector is the error of a parent without a usable selector (docs/reference/contract.md#s7).
var ErrNoSelector = errors.New("it has no selector")

// Selectors are those by which parents select their children. They find the parents of an orphan without looking at all of them. They are safe for
// concurrent use; nil ones are of parents that have no selectors, and adopt nothing.
type Selectors struct {
	// label is the one that selectors are generated of, whose value is the UID of the parent; empty if parents have selectors of their own.
	label string
	seed  maphash.Seed

	mu sync.RWMutex
	// known counts the parents. generated has them by the hash of the UID, and postings by what their own selectors demand.
	known     int
	generated map[uint64]parent.Key
	postings  *postings[*compiled]
}

// Selector is what is known of the selector of one parent: the hash of the UID if it is generated. It belongs to the Selectors; the zero value is
// ready.
type Selector struct {
	hash uint64
	*compiled
}

// compiled is a selector that is not generated.
type compiled struct {
	key parent.Key
	// shown is the parent as the informer showed it last, of which nothing has to be compared to know that the selector is its.
	shown    *object.Object
	uid      types.UID
	raw      []byte
	selector labels.Selector
	err      error
	posted   []post
}

// NewSelectors returns selectors that are generated of a label, or those that parents have themselves if it is empty.
func NewSelectors(label string) *Selectors {
	return &Selectors{label: label, seed: maphash.MakeSeed(), generated: map[uint64]parent.Key{}, postings: newPostings[*compiled]()}
}

// Len returns the number of parents.
func (s *Selectors) Len() int {
	if s == nil {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known
}

// Of returns the selector of a parent, or the reason why it has none.
func (s *Selectors) Of(known *Selector, o *object.Object) (labels.Selector, error) {
	if s.label != "" {
		return labels.SelectorFromSet(labels.Set{s.label: string(o.UID())}), nil
	}
	s.mu.RLock()
	c := known.compiled
	shown := c != nil && c.shown == o
	s.mu.RUnlock()
	if !shown && (c == nil || !c.fits(o)) {
		c = compiledOf(o)
	}
	return c.selector, c.err
}

// Remember notes a parent as it is now. Of two parents whose UIDs have the same hash, which no two are known to have, the orphans of one wait for
// its next sync.
func (s *Selectors) Remember(key parent.Key, known *Selector, o *object.Object) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.label != "" {
		if hash := s.hash(string(o.UID())); known.hash != hash {
			s.forget(key, known)
			known.hash, s.generated[hash] = hash, key
			s.known++
		}
		return
	}
	if known.compiled != nil && known.fits(o) {
		known.shown = o
		return
	}
	s.forget(key, known)
	c := compiledOf(o)
	c.key, c.shown, known.compiled = key, o, c
	s.known++
	if c.err == nil {
		c.posted = s.postings.choose(key.Namespace, c.selector)
		s.postings.add(c, c.posted)
	}
}

// hash is never zero.
func (s *Selectors) hash(uid string) uint64 { return max(1, maphash.String(s.seed, uid)) }

// Forget drops a parent, which may be unknown.
func (s *Selectors) Forget(key parent.Key, known *Selector) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(key, known)
}

// forget is called with the lock held.
func (s *Selectors) forget(key parent.Key, known *Selector) {
	switch {
	case known.compiled != nil:
		s.postings.remove(known.compiled, known.posted)
	case known.hash == 0:
		return
	case s.generated[known.hash] == key:
		delete(s.generated, known.hash)
	}
	*known = Selector{}
	s.known--
}

// Adopting visits every parent whose selector matches an orphan, of the orphan's namespace and cluster-scoped ones. Visit must not call the
// Selectors.
func (s *Selectors) Adopting(orphan *object.Object, visit func(parent.Key)) {
	if s == nil {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.label != "" {
		uid, ok := orphan.Label(s.label)
		key, known := s.generated[s.hash(uid)]
		if ok && known && (key.Namespace == "" || key.Namespace == orphan.Namespace()) {
			visit(key)
		}
		return
	}
	matching := func(c *compiled) {
		if c.selector.Matches(orphan.LabelSet()) {
			visit(c.key)
		}
	}
	if orphan.Namespace() != "" {
		s.postings.visit(orphan.Namespace(), orphan.AllLabels(), matching)
	}
	s.postings.visit("", orphan.AllLabels(), matching)
}

func compiledOf(o *object.Object) *compiled {
	raw, _ := o.Field("spec", "selector")
	c := &compiled{uid: types.UID(strings.Clone(string(o.UID()))), raw: bytes.Clone(raw)}
	c.selector, c.err = decodeSelector(c.raw)
	return c
}

// fits reports whether it still is the selector of o.
func (c *compiled) fits(o *object.Object) bool {
	raw, _ := o.Field("spec", "selector")
	return c.uid == o.UID() && bytes.Equal(raw, c.raw)
}

func decodeSelector(raw []byte) (labels.Selector, error) {
	if len(raw) == 0 {
		return nil, ErrNoSelector
	}
	var selector metav1.LabelSelector
	if err := utiljson.Unmarshal(raw, &selector); err != nil {
		return nil, fmt.Errorf("decoding .spec.selector: %w", err)
	}
	if len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0 {
		return nil, ErrNoSelector
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, fmt.Errorf("parsing .spec.selector: %w", err)
	}
	return parsed, nil
}
