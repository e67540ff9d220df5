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
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// Object is what rules select by. The compact objects of the cluster cache implement it.
type Object interface {
	// Namespace is empty for a cluster-scoped object.
	Namespace() string
	// Name of the object.
	Name() string
}

// Informer holds the observed objects of one resource.
type Informer[O Object] interface {
	// HasSynced reports whether the informer holds all objects.
	HasSynced() bool
	// Get returns the object of that name; the namespace is empty for cluster-scoped objects.
	Get(namespace, name string) (O, bool)
	// Named returns the objects with one of the names, which are sorted, in whatever namespace, in any order.
	Named(names []string) []O
	// Matching returns the objects that a selector matches, of a namespace or of all for an empty one, in any order.
	Matching(namespace string, selector labels.Selector) []O
}

// Informers gives access to informers that are running.
type Informers[O Object] struct {
	// Of returns the informer of one of the rules' Resources.
	Of func(schema.GroupVersionResource) Informer[O]
	// Namespaces is the informer of namespaces. It is used only when the rules say SelectsNamespaces.
	Namespaces Informer[O]
}

// Group is the related objects of one type. There is a group for each type that rules name, even without objects, unless it is gone and its kind
// is not known.
type Group[O Object] struct {
	// Key is the type as [hook.TypeKey] writes it.
	Key string
	// Resource of the objects.
	Resource schema.GroupVersionResource
	// Objects sorted by namespace and name, each once.
	Objects []O
}

// Select returns the objects that the rules select (docs/reference/contract.md#s16.2), in groups by type, sorted by key. The error is a
// *NotSyncedError when an informer that is needed has not synced.
//
// Names are lookups, in one namespace or in each; what selectors cost is the informer's affair.
func Select[O Object](rules Rules, informers Informers[O]) ([]Group[O], error) {
	if err := checkSynced(rules, informers); err != nil {
		return nil, err
	}
	var groups []Group[O]
	for n := range rules.rules {
		r := &rules.rules[n]
		if r.Kind == "" {
			continue
		}
		key := hook.TypeKey(r.Resource.GroupVersion().String(), r.Kind)
		at := slices.IndexFunc(groups, func(g Group[O]) bool { return g.Key == key })
		if at < 0 {
			at = len(groups)
			groups = append(groups, Group[O]{Key: key, Resource: r.Resource})
		}
		if !r.Gone {
			groups[at].Objects = appendSelected(groups[at].Objects, r, informers)
		}
	}
	for n := range groups {
		slices.SortFunc(groups[n].Objects, compareObjects)
		groups[n].Objects = slices.CompactFunc(groups[n].Objects, func(a, b O) bool { return compareObjects(a, b) == 0 })
	}
	slices.SortFunc(groups, func(a, b Group[O]) int { return cmp.Compare(a.Key, b.Key) })
	return groups, nil
}

func checkSynced[O Object](rules Rules, informers Informers[O]) error {
	var missing []schema.GroupVersionResource
	for _, resource := range rules.Resources() {
		if !informers.Of(resource).HasSynced() {
			missing = append(missing, resource)
		}
	}
	if rules.SelectsNamespaces() && !informers.Namespaces.HasSynced() {
		missing = append(missing, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	}
	if len(missing) > 0 {
		return &NotSyncedError{Resources: missing}
	}
	return nil
}

func appendSelected[O Object](out []O, r *rule, informers Informers[O]) []O {
	informer := informers.Of(r.Resource)
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
		for _, namespace := range informers.Namespaces.Matching("", r.namespaces) {
			out = append(out, informer.Matching(namespace.Name(), r.labels)...)
		}
	default:
		out = append(out, informer.Matching(r.namespace, r.labels)...)
	}
	return out
}

func compareObjects[O Object](a, b O) int {
	return cmp.Or(cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name(), b.Name()))
}
