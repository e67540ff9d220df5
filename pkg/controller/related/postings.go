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

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

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

// post is a property that an object must have for the rules posted there to select it.
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

// postings are entries by one property that they require. Every object that an entry selects has a post of the entry.
type postings[K comparable] struct {
	lists map[post][]*entry[K]
	// ofNamespaces counts the entries posted by the labels of namespaces.
	ofNamespaces int
}

func newPostings[K comparable]() *postings[K] {
	return &postings[K]{lists: map[post][]*entry[K]{}}
}

// choose returns where to post a rule of the resource.
func (p *postings[K]) choose(r *rule) []post {
	if len(r.names) > 0 {
		posts := make([]post, len(r.names))
		for n, name := range r.names {
			posts[n] = post{kind: byName, namespace: r.namespace, key: name}
		}
		return posts
	}
	posts := p.chooseLabels(r.namespace, r.labels)
	if r.namespaces != nil && len(posts) == 1 && posts[0].kind == byNamespace {
		return p.chooseLabels(anyNamespace, r.namespaces)
	}
	return posts
}

// chooseLabels returns where to post a selector: by the requirement for one of some values under which the fewest entries are
// posted, else by one that a label exists, else by namespace alone. So a label that differs between parents is preferred to
// one that they share, such as the name of an application.
func (p *postings[K]) chooseLabels(namespace string, selector labels.Selector) []post {
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
	case selection.NotEquals, selection.NotIn, selection.DoesNotExist:
		return nil
	default:
		return nil
	}
}

func (p *postings[K]) add(e *entry[K], posts []post) {
	for _, at := range posts {
		p.lists[at] = append(p.lists[at], e)
		if at.namespace == anyNamespace {
			p.ofNamespaces++
		}
	}
}

func (p *postings[K]) remove(e *entry[K], posts []post) {
	for _, at := range posts {
		list := p.lists[at]
		n := slices.Index(list, e)
		if n < 0 {
			continue
		}
		last := len(list) - 1
		list[n], list[last] = list[last], nil
		if last == 0 {
			delete(p.lists, at)
		} else {
			p.lists[at] = list[:last]
		}
		if at.namespace == anyNamespace {
			p.ofNamespaces--
		}
	}
}

// lookup collects the parents of entries under several posts.
type lookup[K comparable] struct {
	postings *postings[K]
	// found reports whether an entry under a post selects the object.
	found   func(*entry[K]) bool
	parents []K
	// seen holds the parents when they are more than a few.
	seen map[K]struct{}
}

func (l *lookup[K]) visit(at post) {
	for _, e := range l.postings.lists[at] {
		if !l.knows(e.parent) && l.found(e) {
			l.add(e.parent)
		}
	}
}

// fewParents is how many parents are searched without a map.
const fewParents = 8

func (l *lookup[K]) knows(parent K) bool {
	if len(l.parents) <= fewParents {
		return slices.Contains(l.parents, parent)
	}
	_, ok := l.seen[parent]
	return ok
}

func (l *lookup[K]) add(parent K) {
	l.parents = append(l.parents, parent)
	switch {
	case len(l.parents) <= fewParents:
		return
	case l.seen == nil:
		l.seen = make(map[K]struct{}, 2*len(l.parents))
		for _, p := range l.parents {
			l.seen[p] = struct{}{}
		}
	default:
		l.seen[parent] = struct{}{}
	}
}

// visitLabels visits the posts of labels, except those that an earlier state has as well.
func (l *lookup[K]) visitLabels(namespace string, state map[string]string, earlier []map[string]string) {
	for key, value := range state {
		known := slices.ContainsFunc(earlier, func(s map[string]string) bool {
			v, ok := s[key]
			return ok && v == value
		})
		if known {
			continue
		}
		l.visit(post{kind: byLabelValue, namespace: namespace, key: key, value: value})
		l.visit(post{kind: byLabelKey, namespace: namespace, key: key})
	}
}
