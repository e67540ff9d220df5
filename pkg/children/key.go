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

package children

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Key is the identity of a child: the version in which it is read or written does not matter (docs/reference/compatibility.md#d11).
type Key struct {
	Group, Kind, Namespace, Name string
}

// KeyOf returns the identity of an observed child.
func KeyOf(o *object.Object) Key {
	kind := o.GroupVersionKind()
	return Key{Group: kind.Group, Kind: kind.Kind, Namespace: o.Namespace(), Name: o.Name()}
}

// GroupKind returns the child's kind without version.
func (k Key) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

// String returns kind and name, for people: "Pod ns/name", or "Node name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by group, kind, namespace and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Group, other.Group), cmp.Compare(k.Kind, other.Kind),
		cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// Rule is a declared kind of children.
type Rule struct {
	// Kind is the kind in the version that the rule names.
	Kind schema.GroupVersionKind
	// Resource is the resource of that kind.
	Resource schema.GroupVersionResource
	// Namespaced says whether objects of the kind live in namespaces.
	Namespaced bool
	// HasStatus says whether the kind has a status subresource, so that the status of a new child is not taken.
	HasStatus bool
	// Method says how existing children are changed.
	Method v1alpha1.ChildUpdateMethod
	// ServerSide says that children are written by server-side apply. Otherwise they are merged here.
	ServerSide bool
	// Force says that server-side apply takes fields from other field managers, rather than to fail.
	Force bool
	// Retain says that the children stay when their parent is deleted.
	Retain bool
}

// ResourceIn returns the rule's resource in the version of an apiVersion.
func (r Rule) ResourceIn(apiVersion string) schema.GroupVersionResource {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || version.Group != r.Resource.Group {
		return r.Resource
	}
	return version.WithResource(r.Resource.Resource)
}

// Rules are the declared kinds. When two rules name the same kind, the last one's method counts (docs/reference/contract.md#s11).
type Rules struct {
	byKind  map[schema.GroupKind]Rule
	missing []schema.GroupVersionResource
}

// NewRules returns rules that can be looked up. Missing are the declared resources that are not served now, whose kinds are
// not known therefore.
func NewRules(list []Rule, missing ...schema.GroupVersionResource) Rules {
	r := Rules{byKind: make(map[schema.GroupKind]Rule, len(list)), missing: missing}
	for _, rule := range list {
		r.byKind[rule.Kind.GroupKind()] = rule
	}
	return r
}

// MayBeMissing reports whether a kind, which has no rule, may be that of a missing resource: it is of the same group.
func (r Rules) MayBeMissing(kind schema.GroupKind) bool {
	_, ok := r.byKind[kind]
	return !ok && slices.ContainsFunc(r.missing, func(m schema.GroupVersionResource) bool { return m.Group == kind.Group })
}

// For returns the rule for a kind.
func (r Rules) For(kind schema.GroupKind) (Rule, bool) {
	rule, ok := r.byKind[kind]
	return rule, ok
}

// Kinds returns the declared kinds, each in the version of its rule, in no order.
func (r Rules) Kinds() []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, 0, len(r.byKind))
	for _, rule := range r.byKind {
		kinds = append(kinds, rule.Kind)
	}
	return kinds
}

// Desired is a child as a hook wants it.
type Desired struct {
	Key
	// APIVersion is the version in which the hook returned it, and in which it is written.
	APIVersion string
	// Content is the object. It belongs to the one who holds the Desired.
	Content map[string]any
}

// ByKey returns observed children by their identity.
func ByKey(list []*object.Object) map[Key]*object.Object {
	result := make(map[Key]*object.Object, len(list))
	for _, o := range list {
		result[KeyOf(o)] = o
	}
	return result
}

// named is how many of many things a message names.
const named = 5

// Enumerate names things in a message, the first few if there are many.
func Enumerate(names []string) string {
	text := strings.Join(names[:min(len(names), named)], ", ")
	if more := len(names) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
