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

package composite

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
)

// errNoSelector is the error of a parent without a usable selector (docs/reference/contract.md#s7).
var errNoSelector = reconciler.NoSelector(discovery.Custom)

// selectors knows the selector of every parent, so that the parents of an orphan are found without looking at all of them.
type selectors struct {
	// generate says that each parent has one that is generated of its UID, which is remembered as a hash.
	generate bool
	seed     maphash.Seed

	mu sync.RWMutex
	// generated has the hash of the UID of every parent whose selector is, and parents the parents by that.
	generated map[parent.Key]uint64
	parents   map[uint64]parent.Key
	// entries has the selectors that are not generated.
	entries map[parent.Key]*selectorEntry
	// postings has the selectors by what they demand.
	postings *related.Postings[*selectorEntry]
}

type selectorEntry struct {
	key parent.Key
	// shown is the parent as the informer showed it last, of which nothing has to be compared to know that the entry is its. The lock guards it.
	shown    *object.Object
	uid      types.UID
	raw      []byte
	selector labels.Selector
	err      error
	posted   []related.Post
}

func newSelectors(generate bool) *selectors {
	return &selectors{
		generate: generate, seed: maphash.MakeSeed(), generated: map[parent.Key]uint64{}, parents: map[uint64]parent.Key{},
		entries: map[parent.Key]*selectorEntry{}, postings: related.NewPostings[*selectorEntry](),
	}
}

func (s *selectors) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.generated) + len(s.entries)
}

// of returns the selector of a parent, or the reason why it has none.
func (s *selectors) of(key parent.Key, o *object.Object) (labels.Selector, error) {
	if s.generate {
		return labels.SelectorFromSet(labels.Set{rollout.LabelControllerUID: string(o.UID())}), nil
	}
	s.mu.RLock()
	e, ok := s.entries[key]
	known := ok && e.shown == o
	s.mu.RUnlock()
	if !known && (!ok || !e.fits(o)) {
		e = compile(o)
	}
	return e.selector, e.err
}

// Remember takes note of a parent.
func (s *selectors) Remember(key parent.Key, o *object.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generate {
		s.rememberUID(key, maphash.String(s.seed, string(o.UID())))
		return
	}
	if e, ok := s.entries[key]; ok {
		if e.fits(o) {
			e.shown = o
			return
		}
		s.postings.Remove(e, e.posted)
	}
	e := compile(o)
	e.key, e.shown = key, o
	s.entries[key] = e
	if e.err != nil {
		return
	}
	e.posted = s.postings.Choose(key.Namespace, e.selector)
	s.postings.Add(e, e.posted)
}

// Forget drops a parent.
func (s *selectors) Forget(key parent.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetUID(key)
	if e, ok := s.entries[key]; ok {
		s.postings.Remove(e, e.posted)
		delete(s.entries, key)
	}
}

// rememberUID is called with the lock held, as is forgetUID. Of two parents whose UIDs have the same hash, which no two are known to have, the
// orphans of one wait for its next sync.
func (s *selectors) rememberUID(key parent.Key, uid uint64) {
	if former, ok := s.generated[key]; ok && former == uid {
		return
	}
	s.forgetUID(key)
	s.generated[key], s.parents[uid] = uid, key
}

func (s *selectors) forgetUID(key parent.Key) {
	uid, ok := s.generated[key]
	if !ok {
		return
	}
	delete(s.generated, key)
	if s.parents[uid] == key {
		delete(s.parents, uid)
	}
}

// Orphan implements reconciler.Kind: it calls enqueue for every parent whose selector matches, of the orphan's namespace and
// cluster-scoped ones.
func (s *selectors) Orphan(orphan *object.Object, enqueue func(parent.Key)) {
	if s.generate {
		s.orphanOfUID(orphan, enqueue)
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	visit := func(e *selectorEntry) {
		if e.selector.Matches(orphan.LabelSet()) {
			enqueue(e.key)
		}
	}
	namespaces := []string{orphan.Namespace(), ""}
	if orphan.Namespace() == "" {
		namespaces = namespaces[:1]
	}
	for _, namespace := range namespaces {
		s.postings.Visit(namespace, orphan.AllLabels(), visit)
	}
}

// orphanOfUID calls enqueue for the parent whose UID the orphan's label has.
func (s *selectors) orphanOfUID(orphan *object.Object, enqueue func(parent.Key)) {
	uid, ok := orphan.Label(rollout.LabelControllerUID)
	if !ok {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if key, ok := s.parents[maphash.String(s.seed, uid)]; ok && (key.Namespace == "" || key.Namespace == orphan.Namespace()) {
		enqueue(key)
	}
}

func compile(o *object.Object) *selectorEntry {
	e := &selectorEntry{uid: types.UID(strings.Clone(string(o.UID())))}
	raw, _ := o.Field("spec", "selector")
	e.raw = bytes.Clone(raw)
	e.selector, e.err = decodeSelector(e.raw)
	return e
}

// fits reports whether e still is the entry of o.
func (e *selectorEntry) fits(o *object.Object) bool {
	if e.uid != o.UID() {
		return false
	}
	raw, _ := o.Field("spec", "selector")
	return bytes.Equal(raw, e.raw)
}

func decodeSelector(raw []byte) (labels.Selector, error) {
	if len(raw) == 0 {
		return nil, errNoSelector
	}
	var selector metav1.LabelSelector
	if err := utiljson.Unmarshal(raw, &selector); err != nil {
		return nil, fmt.Errorf("decoding .spec.selector: %w", err)
	}
	if len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0 {
		return nil, errNoSelector
	}
	compiled, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, fmt.Errorf("parsing .spec.selector: %w", err)
	}
	return compiled, nil
}
