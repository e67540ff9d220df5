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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// Type is a type of related objects, as the cluster serves it.
type Type struct {
	// Resource is the resource that is watched.
	Resource schema.GroupVersionResource
	// Kind of the objects.
	Kind string
	// Namespaced reports whether the objects live in namespaces.
	Namespaced bool
	// Gone says that the cluster serves the type in no version, so that there are no objects. Kind may be empty then: it is not known.
	Gone bool
}

// A ResolveFunc finds the type that a rule names. Its error is shown to users and says what is missing.
type ResolveFunc func(ctx context.Context, apiVersion, resource string) (Type, error)

// Scope is what the meaning of rules depends on besides the rules themselves (docs/reference/contract.md#s16.2).
type Scope struct {
	// Version of the customize hook. Empty means v1.
	Version v1alpha1.HookVersion
	// Namespace of the parent; empty when the parent is cluster-scoped.
	Namespace string
}

// confined reports whether rules reach the objects of the parent's namespace only.
func (s Scope) confined() bool { return s.Namespace != "" && s.Version != v1alpha1.HookVersionV2 }

// Rules is a compiled response of a customize hook. It is immutable and safe for concurrent use; nil selects nothing.
type Rules []rule

// rule is one compiled rule. Without names it selects by labels.
type rule struct {
	Type
	// namespace restricts the rule; empty for all namespaces and for cluster-scoped types.
	namespace string
	names     []string
	// labels is never nil.
	labels labels.Selector
	// namespaces is nil without a namespaceSelector.
	namespaces labels.Selector
}

// are reports whether two responses are one and the same.
func (r Rules) are(other Rules) bool {
	return len(r) == len(other) && (len(r) == 0 || &r[0] == &other[0])
}

// selectsNamespaces reports whether a rule selects by the labels of namespaces.
func (r Rules) selectsNamespaces() bool {
	return slices.ContainsFunc(r, func(r rule) bool { return r.namespaces != nil })
}

// Gone returns the types that rules name and the cluster does not serve, each once, in the order of the rules.
func (r Rules) Gone() []Type {
	var out []Type
	for _, rule := range r {
		if rule.Gone && !slices.Contains(out, rule.Type) {
			out = append(out, rule.Type)
		}
	}
	return out
}

// Resources returns the resources whose informers Select needs, each once: in the order of the rules, and namespaces if these are selected by.
func (r Rules) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, rule := range r {
		if !rule.Gone && !slices.Contains(out, rule.Resource) {
			out = append(out, rule.Resource)
		}
	}
	if r.selectsNamespaces() && !slices.Contains(out, namespaces) {
		out = append(out, namespaces)
	}
	return out
}

// places returns where the rules look for objects, namespaces among them if labels of these are selected by. Confined is the only namespace of
// which objects are shown, empty if it is not the only one.
func (r Rules) places(confined string) []inspection.Place {
	var out []inspection.Place
	for _, rule := range r {
		if rule.Gone {
			continue
		}
		place := inspection.Place{GroupResource: rule.Resource.GroupResource(), Namespace: rule.namespace}
		if rule.Namespaced && rule.namespace == "" {
			place.Namespace = confined
		}
		out = append(out, place)
	}
	if r.selectsNamespaces() {
		out = append(out, inspection.Place{GroupResource: namespaces.GroupResource()})
	}
	return out
}

// Compile validates the rules of a response and resolves their types. The error is a *RuleError; the response is rejected as a whole.
func Compile(ctx context.Context, response []hook.RelatedResourceRule, scope Scope, resolve ResolveFunc) (Rules, error) {
	compiled := make(Rules, len(response))
	for n := range response {
		r := &response[n]
		wrong := func(err error, unresolved bool) *RuleError {
			name := fmt.Sprintf("relatedResources[%d]", n)
			if named := strings.TrimSpace(r.APIVersion + " " + r.Resource); named != "" {
				name += " (" + named + ")"
			}
			return &RuleError{Rule: name, Unresolved: unresolved, Err: err}
		}
		if err := r.Validate(); err != nil {
			return nil, wrong(err, false)
		}
		t, err := resolve(ctx, r.APIVersion, r.Resource)
		if err != nil {
			return nil, wrong(fmt.Errorf("resolving the resource: %w", err), true)
		}
		if compiled[n], err = compile(r, t, scope); err != nil {
			return nil, wrong(err, false)
		}
	}
	return compiled, nil
}

func compile(r *hook.RelatedResourceRule, t Type, scope Scope) (rule, error) {
	c := rule{Type: t, names: slices.Compact(slices.Sorted(slices.Values(r.Names))), labels: labels.Everything()}
	if t.Gone {
		return c, nil // It selects nothing, wherever that would be.
	}
	if t.Namespaced {
		c.namespace = r.Namespace
	}
	if r.LabelSelector != nil {
		var err error
		if c.labels, err = metav1.LabelSelectorAsSelector(r.LabelSelector); err != nil {
			return c, fmt.Errorf("reading labelSelector: %w", err)
		}
	}
	if r.NamespaceSelector != nil {
		if !t.Namespaced {
			return c, errors.New("namespaceSelector needs a namespaced type; remove it")
		}
		if scope.confined() {
			return c, errors.New("namespaceSelector reaches beyond the parent's namespace, which version v1 of the customize hook does not allow; use v2")
		}
		var err error
		if c.namespaces, err = metav1.LabelSelectorAsSelector(r.NamespaceSelector); err != nil {
			return c, fmt.Errorf("reading namespaceSelector: %w", err)
		}
	}
	if !t.Namespaced || !scope.confined() {
		return c, nil
	}
	switch {
	case c.namespace != "" && c.namespace != scope.Namespace:
		return c, fmt.Errorf("namespace %q is not the parent's namespace %q, which version v1 of the customize hook does not allow; use v2",
			c.namespace, scope.Namespace)
	case len(c.names) == 0:
		c.namespace = scope.Namespace
	}
	return c, nil
}

// RuleError means that a rule in a customize hook's response cannot be used.
type RuleError struct {
	// Rule names the rule.
	Rule string
	// Unresolved says that the cluster does not serve the type of the rule now. Else the rule is invalid, and a retry helps only when the hook
	// returns another one.
	Unresolved bool
	// Err says what is wrong and what to do.
	Err error
}

// Error names the rule and what is wrong with it.
func (e *RuleError) Error() string { return e.Rule + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *RuleError) Unwrap() error { return e.Err }

// Informer holds the observed objects of one resource.
type Informer interface {
	// HasSynced reports whether the informer holds all objects.
	HasSynced() bool
	// Get returns the object of that name; the namespace is empty for cluster-scoped objects.
	Get(namespace, name string) (*object.Object, bool)
	// Named returns the objects with one of the names, which are sorted, in whatever namespace, in any order.
	Named(names []string) []*object.Object
	// Matching returns the objects that a selector matches, of a namespace or of all for an empty one, in any order.
	Matching(namespace string, selector labels.Selector) []*object.Object
}

// Informers returns the running informer of one of the rules' Resources.
type Informers func(schema.GroupVersionResource) Informer

// Group is the related objects of one type. There is a group for each type that rules name, even without objects, unless it is gone and its kind
// is not known.
type Group struct {
	// Key is the type as [hook.TypeKey] writes it.
	Key string
	// Resource of the objects.
	Resource schema.GroupVersionResource
	// Objects sorted by namespace and name, each once.
	Objects []*object.Object
}

// Select returns the objects that the rules select (docs/reference/contract.md#s16.2), in groups by type, sorted by key. All informers that are
// needed have synced.
//
// Names are lookups, in one namespace or in each; what selectors cost is the informer's affair.
func Select(rules Rules, informers Informers) []Group {
	var groups []Group
	for n := range rules {
		r := &rules[n]
		if r.Kind == "" {
			continue
		}
		key := hook.TypeKey(r.Resource.GroupVersion().String(), r.Kind)
		at := slices.IndexFunc(groups, func(g Group) bool { return g.Key == key })
		if at < 0 {
			at = len(groups)
			groups = append(groups, Group{Key: key, Resource: r.Resource})
		}
		if !r.Gone {
			groups[at].Objects = appendSelected(groups[at].Objects, r, informers)
		}
	}
	for n := range groups {
		slices.SortFunc(groups[n].Objects, compareObjects)
		groups[n].Objects = slices.CompactFunc(groups[n].Objects, func(a, b *object.Object) bool { return compareObjects(a, b) == 0 })
	}
	slices.SortFunc(groups, func(a, b Group) int { return cmp.Compare(a.Key, b.Key) })
	return groups
}

// unsynced returns the resources whose informers have not synced. That is no failure: the parent is synced again when they have.
func unsynced(rules Rules, informers Informers) []schema.GroupVersionResource {
	return slices.DeleteFunc(rules.Resources(), func(r schema.GroupVersionResource) bool { return informers(r).HasSynced() })
}

// listing says which informers have not synced.
func listing(missing []schema.GroupVersionResource) string {
	names := make([]string, len(missing))
	for n, r := range missing {
		names[n] = r.GroupVersion().String() + "/" + r.Resource
	}
	return "related objects are still being listed: " + strings.Join(names, ", ")
}

func appendSelected(out []*object.Object, r *rule, informers Informers) []*object.Object {
	informer := informers(r.Resource)
	switch {
	case len(r.names) > 0 && (r.namespace != "" || !r.Namespaced):
		for _, name := range r.names {
			if o, ok := informer.Get(r.namespace, name); ok {
				out = append(out, o)
			}
		}
	case len(r.names) > 0:
		out = append(out, informer.Named(r.names)...)
	case r.namespaces != nil:
		for _, namespace := range informers(namespaces).Matching("", r.namespaces) {
			out = append(out, informer.Matching(namespace.Name(), r.labels)...)
		}
	default:
		out = append(out, informer.Matching(r.namespace, r.labels)...)
	}
	return out
}

func compareObjects(a, b *object.Object) int {
	return cmp.Or(cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name(), b.Name()))
}
