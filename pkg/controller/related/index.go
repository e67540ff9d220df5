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
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Index finds the parents whose rules select an object: the inverse of Select. K is how the engine names a parent. It is
// safe for concurrent use.
//
// The cost of a lookup grows with the object's labels and the parents found, not with all parents, as long as each rule has
// names, or a selector that requires a label to exist or to have one of some values.
type Index[K comparable] struct {
	namespaceLabels func(name string) (map[string]string, bool)

	mu      sync.RWMutex
	parents map[K]indexed[K]
	// resources holds the entries by what an object must have to match.
	resources map[schema.GroupVersionResource]*postings[K]
	// namespaces holds the entries with a namespaceSelector by what a namespace must have.
	namespaces *postings[K]
}

// indexed is what the index holds for one parent.
type indexed[K comparable] struct {
	fingerprint string
	entries     []*entry[K]
}

// entry is one rule of one parent.
type entry[K comparable] struct {
	parent K
	rule   *rule
	// object and namespace are where the entry is posted.
	object, namespace []post
}

// NewIndex returns an empty index. The function returns the labels of a namespace, false when the informer does
// not hold it; it is called during lookups and must not call the index.
func NewIndex[K comparable](namespaceLabels func(name string) (map[string]string, bool)) *Index[K] {
	return &Index[K]{
		namespaceLabels: namespaceLabels,
		parents:         map[K]indexed[K]{},
		resources:       map[schema.GroupVersionResource]*postings[K]{},
		namespaces:      newPostings[K](),
	}
}

// Update replaces the rules of the parent. It is cheap when they select the same as before.
func (x *Index[K]) Update(parent K, rules Rules) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old, ok := x.parents[parent]; ok {
		if old.fingerprint == rules.fingerprint {
			return
		}
		x.remove(old)
	}
	if rules.Empty() {
		delete(x.parents, parent)
		return
	}
	added := indexed[K]{fingerprint: rules.fingerprint, entries: make([]*entry[K], 0, len(rules.rules))}
	for n := range rules.rules {
		added.entries = append(added.entries, x.insert(parent, &rules.rules[n]))
	}
	x.parents[parent] = added
}

// Remove drops the parent and its rules.
func (x *Index[K]) Remove(parent K) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(x.parents[parent])
	delete(x.parents, parent)
}

// Len returns the number of parents with rules.
func (x *Index[K]) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.parents)
}

// Type returns the type of a resource as a rule that is there has it, false if there is none.
func (x *Index[K]) Type(resource schema.GroupVersionResource) (Type, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if p, ok := x.resources[resource]; ok {
		for _, list := range p.lists {
			return list[0].rule.Type, true // All have the same.
		}
	}
	return Type{}, false
}

// Affected returns the parents whose rules select an object of that resource in one of the given states, each parent once.
// The states are the object's labels: one for an object that was added or deleted, the old and the new for one that was
// updated. The namespace is empty for cluster-scoped objects.
func (x *Index[K]) Affected(resource schema.GroupVersionResource, namespace, name string, states ...map[string]string) []K {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p, ok := x.resources[resource]
	if !ok {
		return nil
	}
	l := lookup[K]{postings: p, found: func(e *entry[K]) bool {
		return e.rule.labelsMatch(states) && x.namespaceMatches(e.rule, namespace)
	}}
	scopes := []string{namespace, ""}
	if namespace == "" {
		scopes = scopes[:1]
	}
	for _, scope := range scopes {
		l.visit(post{kind: byName, namespace: scope, key: name})
		l.visit(post{kind: byNamespace, namespace: scope})
		for n, state := range states {
			l.visitLabels(scope, state, states[:n])
		}
	}
	if namespace != "" && p.ofNamespaces > 0 {
		if set, ok := x.namespaceLabels(namespace); ok {
			l.visit(post{kind: byNamespace, namespace: anyNamespace})
			l.visitLabels(anyNamespace, set, nil)
		}
	}
	return l.parents
}

// NamespaceCameOrWent returns the parents with a rule whose namespaceSelector selects a namespace that was added or deleted. Its objects are
// watched apart: events of new ones may have come before it, and those of deleted ones, which were deleted first, may come after it.
func (x *Index[K]) NamespaceCameOrWent(set map[string]string) []K {
	return x.namespaceChange(func(selector labels.Selector) bool { return selector.Matches(labels.Set(set)) }, set)
}

// NamespaceChanged returns the parents with a rule whose namespaceSelector selects a namespace with either the old or the
// new labels and not with both.
func (x *Index[K]) NamespaceChanged(oldLabels, newLabels map[string]string) []K {
	return x.namespaceChange(func(selector labels.Selector) bool {
		return selector.Matches(labels.Set(oldLabels)) != selector.Matches(labels.Set(newLabels))
	}, oldLabels, newLabels)
}

func (x *Index[K]) namespaceChange(changes func(labels.Selector) bool, states ...map[string]string) []K {
	x.mu.RLock()
	defer x.mu.RUnlock()
	l := lookup[K]{postings: x.namespaces, found: func(e *entry[K]) bool { return changes(e.rule.namespaces) }}
	l.visit(post{kind: byNamespace, namespace: anyNamespace})
	for n, state := range states {
		l.visitLabels(anyNamespace, state, states[:n])
	}
	return l.parents
}

// labelsMatch reports whether the rule may select an object that has one of the label sets.
func (r *rule) labelsMatch(states []map[string]string) bool {
	return r.labels.Empty() ||
		slices.ContainsFunc(states, func(state map[string]string) bool { return r.labels.Matches(labels.Set(state)) })
}

func (x *Index[K]) namespaceMatches(r *rule, namespace string) bool {
	if r.namespaces == nil {
		return true
	}
	set, ok := x.namespaceLabels(namespace)
	return ok && r.namespaces.Matches(labels.Set(set))
}

// insert posts one rule of a parent.
func (x *Index[K]) insert(parent K, r *rule) *entry[K] {
	p, ok := x.resources[r.Resource]
	if !ok {
		p = newPostings[K]()
		x.resources[r.Resource] = p
	}
	e := &entry[K]{parent: parent, rule: r, object: p.choose(r)}
	p.add(e, e.object)
	if r.namespaces != nil {
		e.namespace = x.namespaces.chooseLabels(anyNamespace, r.namespaces)
		x.namespaces.add(e, e.namespace)
	}
	return e
}

func (x *Index[K]) remove(old indexed[K]) {
	for _, e := range old.entries {
		p := x.resources[e.rule.Resource]
		p.remove(e, e.object)
		if len(p.lists) == 0 {
			delete(x.resources, e.rule.Resource)
		}
		x.namespaces.remove(e, e.namespace)
	}
}
