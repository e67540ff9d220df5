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
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
)

// Index finds the parents whose rules select an object: the inverse of Select. K is how the engine names a parent. It is
// safe for concurrent use.
//
// The cost of a lookup grows with the object's labels and the parents found, not with all parents, as long as each rule has
// names, or a selector that requires a label to exist or to have one of some values.
type Index[K comparable] struct {
	namespaceLabels func(name string) (map[string]string, bool)

	mu sync.RWMutex
	// resources holds the entries by what an object must have to match.
	resources map[schema.GroupVersionResource]*postings[*entry[K]]
	// namespaces holds the entries with a namespaceSelector by what a namespace must have.
	namespaces *postings[*entry[K]]
}

// Posted is what the index holds for one parent.
type Posted[K comparable] struct {
	rules   Rules
	entries []*entry[K]
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
		namespaceLabels: namespaceLabels, resources: map[schema.GroupVersionResource]*postings[*entry[K]]{}, namespaces: newPostings[*entry[K]](),
	}
}

// Replace puts the rules of a parent in place of what the index holds for it. It is cheap when they are the same.
func (x *Index[K]) Replace(former Posted[K], parent K, rules Rules) Posted[K] {
	if former.rules.are(rules) {
		return former
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(former)
	posted := Posted[K]{rules: rules, entries: make([]*entry[K], len(rules))}
	for n := range rules {
		posted.entries[n] = x.insert(parent, &rules[n])
	}
	return posted
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
	if len(states) == 2 && maps.Equal(states[0], states[1]) {
		states = states[:1]
	}
	var found parentsOf[K]
	visit := found.all(func(e *entry[K]) bool { return e.rule.labelsMatch(states) && x.namespaceMatches(e.rule, namespace) })
	scopes := []string{namespace, ""}
	if namespace == "" {
		scopes = scopes[:1]
	}
	for _, scope := range scopes {
		p.each(post{kind: byName, namespace: scope, key: name}, visit)
		p.each(post{kind: byNamespace, namespace: scope}, visit)
		for _, state := range states {
			p.eachOf(scope, maps.All(state), visit)
		}
	}
	if namespace != "" {
		if set, ok := x.namespaceLabels(namespace); ok {
			p.visit(anyNamespace, maps.All(set), visit)
		}
	}
	return found.parents
}

// NamespaceChanged returns the parents with a rule whose namespaceSelector selects a namespace that was added or deleted, in its one state, or
// one of the two states of a namespace and not both. The objects of a namespace are watched apart: events of new ones may have come before it, and
// those of deleted ones, which were deleted first, may come after it.
func (x *Index[K]) NamespaceChanged(states ...map[string]string) []K {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var found parentsOf[K]
	visit := found.all(func(e *entry[K]) bool {
		selects := false
		for _, state := range states {
			selects = selects != e.rule.namespaces.Matches(labels.Set(state))
		}
		return selects
	})
	x.namespaces.each(post{kind: byNamespace, namespace: anyNamespace}, visit)
	for _, state := range states {
		x.namespaces.eachOf(anyNamespace, maps.All(state), visit)
	}
	return found.parents
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
		p = newPostings[*entry[K]]()
		x.resources[r.Resource] = p
	}
	e := &entry[K]{parent: parent, rule: r, object: choose(p, r)}
	p.add(e, e.object)
	if r.namespaces != nil {
		e.namespace = x.namespaces.choose(anyNamespace, r.namespaces)
		x.namespaces.add(e, e.namespace)
	}
	return e
}

func (x *Index[K]) remove(old Posted[K]) {
	for _, e := range old.entries {
		p := x.resources[e.rule.Resource]
		p.remove(e, e.object)
		if len(p.lists) == 0 {
			delete(x.resources, e.rule.Resource)
		}
		x.namespaces.remove(e, e.namespace)
	}
}

// anyNamespace is the scope of posts about the labels of an object's namespace. It is not a valid name of a namespace.
const anyNamespace = "*"

// maxValues is how many values a requirement may have to be posted under each of them.
const maxValues = 16

// postKind is what of an object a post is about.
type postKind uint8

const (
	// byName is the name.
	byName postKind = iota
	// byLabelValue is a label with a value.
	byLabelValue
	// byLabelKey is a label with any value.
	byLabelKey
	// byNamespace is the namespace alone.
	byNamespace
)

// post is a property that an object must have for what is posted there to select it.
type post struct {
	kind postKind
	// namespace is the object's namespace; empty for any; anyNamespace when key and value are about the labels of the
	// namespace.
	namespace string
	// key is the name, or the label's key.
	key string
	// value of the label.
	value string
}

// postings are entries, such as rules or selectors, by one property that they require: every object that an entry selects has a post of the
// entry. The caller locks.
type postings[E comparable] struct{ lists map[post][]E }

// newPostings returns empty postings.
func newPostings[E comparable]() *postings[E] { return &postings[E]{lists: map[post][]E{}} }

// choose returns where to post a rule of the resource.
func choose[E comparable](p *postings[E], r *rule) []post {
	if len(r.names) > 0 {
		posts := make([]post, len(r.names))
		for n, name := range r.names {
			posts[n] = post{kind: byName, namespace: r.namespace, key: name}
		}
		return posts
	}
	posts := p.choose(r.namespace, r.labels)
	if r.namespaces != nil && len(posts) == 1 && posts[0].kind == byNamespace {
		return p.choose(anyNamespace, r.namespaces)
	}
	return posts
}

// choose returns where to post a selector of objects in a namespace, empty for all: by the requirement for one of some values under which the fewest entries are
// posted, else by one that a label exists, else by namespace alone. So a label that differs between parents is preferred to
// one that they share, such as the name of an application.
func (p *postings[E]) choose(namespace string, selector labels.Selector) []post {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil
	}
	var best []post
	bestSize := 0
	for _, r := range requirements {
		posts := requirementPosts(namespace, r)
		if len(posts) == 0 || (len(best) > 0 && posts[0].kind > best[0].kind) {
			continue
		}
		size := 0
		for _, at := range posts {
			size += len(p.lists[at])
		}
		if len(best) == 0 || posts[0].kind < best[0].kind || size < bestSize {
			best, bestSize = posts, size
		}
	}
	if len(best) == 0 {
		best = []post{{kind: byNamespace, namespace: namespace}}
	}
	return best
}

// requirementPosts returns posts of which an object that meets the requirement has at least one; nil when there are none.
func requirementPosts(namespace string, r labels.Requirement) []post {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		values := r.ValuesUnsorted()
		if len(values) > maxValues {
			return []post{{kind: byLabelKey, namespace: namespace, key: r.Key()}}
		}
		posts := make([]post, len(values))
		for n, value := range values {
			posts[n] = post{kind: byLabelValue, namespace: namespace, key: r.Key(), value: value}
		}
		return posts
	case selection.Exists, selection.GreaterThan, selection.LessThan:
		return []post{{kind: byLabelKey, namespace: namespace, key: r.Key()}}
	default: // It requires that an object lacks something.
		return nil
	}
}

// add posts an entry.
func (p *postings[E]) add(e E, posts []post) {
	for _, at := range posts {
		p.lists[at] = append(p.lists[at], e)
	}
}

// remove takes an entry off its posts.
func (p *postings[E]) remove(e E, posts []post) {
	for _, at := range posts {
		list := p.lists[at]
		n := slices.Index(list, e)
		if n < 0 {
			continue
		}
		last := len(list) - 1
		list[n] = list[last]
		clear(list[last:])
		if last == 0 {
			delete(p.lists, at)
		} else {
			p.lists[at] = list[:last]
		}
	}
}

// visit calls visit for what is posted under a namespace, or under one of the labels there.
func (p *postings[E]) visit(namespace string, set iter.Seq2[string, string], visit func(E)) {
	p.each(post{kind: byNamespace, namespace: namespace}, visit)
	p.eachOf(namespace, set, visit)
}

// eachOf calls visit for what is posted under one of the labels.
func (p *postings[E]) eachOf(namespace string, set iter.Seq2[string, string], visit func(E)) {
	for key, value := range set {
		p.each(post{kind: byLabelValue, namespace: namespace, key: key, value: value}, visit)
		p.each(post{kind: byLabelKey, namespace: namespace, key: key}, visit)
	}
}

func (p *postings[E]) each(at post, visit func(E)) {
	for _, e := range p.lists[at] {
		visit(e)
	}
}

// parentsOf collects the parents of entries, each once.
type parentsOf[K comparable] struct {
	parents []K
	seen    map[K]struct{}
}

// all returns a function that adds the parents of entries that select the object.
func (f *parentsOf[K]) all(selects func(*entry[K]) bool) (visit func(*entry[K])) {
	return func(e *entry[K]) {
		if _, known := f.seen[e.parent]; known || !selects(e) {
			return
		}
		if f.seen == nil {
			f.seen = map[K]struct{}{}
		}
		f.seen[e.parent] = struct{}{}
		f.parents = append(f.parents, e.parent)
	}
}
