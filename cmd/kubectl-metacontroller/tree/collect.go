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

package tree

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Bounds of one list: pages, and objects of a page.
const (
	pageSize = 500
	maxPages = 20
)

// Node is one object in the tree.
type Node struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Ready is what the status says: a number of all, a status, or how controllers are doing with a parent; empty where the kind says nothing.
	Ready string `json:"ready,omitempty"`
	// Reason is why it is not ready, as far as the status, or a controller, says it.
	Reason        string   `json:"reason,omitempty"`
	FieldManagers []string `json:"fieldManagers,omitempty"`
	// Revision is the name of the ControllerRevision on which a child is.
	Revision string `json:"revision,omitempty"`
	// Controlled is false for an object of which the node above is an owner, but not the controller.
	Controlled bool `json:"controlled"`
	// Stays is true for a child that is not deleted with its parent, by onParentDeletion: Retain.
	Stays    bool    `json:"stays,omitempty"`
	Children []*Node `json:"children,omitempty"`

	uid    types.UID
	former bool
	// resource is with the group, as kubectl takes it.
	resource string
}

// Resource is the resource of the object with its group, as kubectl takes it.
func (n *Node) Resource() string { return n.resource }

// IsRevision reports whether the object is a ControllerRevision of the one above it.
func (n *Node) IsRevision() bool {
	return n.resource == v1alpha1.SchemeGroupVersion.WithResource("controllerrevisions").GroupResource().String()
}

// Former reports whether the object is a ControllerRevision that is not the latest one.
func (n *Node) Former() bool { return n.former }

// collector lists children. Every resource is listed once in a namespace.
type collector struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	kinds  kinds
	limit  int
	lists  map[string][]unstructured.Unstructured
	// notes say what is not in the tree.
	notes []string

	objects int
	full    bool
}

// collect returns the tree of an object, of so many generations of children.
func (c *collector) collect(ctx context.Context, mapping *meta.RESTMapping, parent *unstructured.Unstructured, depth int) (*Node, error) {
	root := nodeOf(mapping, parent)
	root.Controlled = true
	c.objects = 1
	if err := c.grow(ctx, mapping, root, map[types.UID]bool{root.uid: true}, depth); err != nil {
		return nil, err
	}
	if c.full {
		c.notef("There are more than %d objects; --limit prints more of them.", c.limit)
	}
	return root, nil
}

// grow adds the children of a node. What is above it is in path: an object can own itself.
func (c *collector) grow(ctx context.Context, mapping *meta.RESTMapping, at *Node, path map[types.UID]bool, depth int) error {
	revisions := map[string]string{}
	type child struct {
		mapping *meta.RESTMapping
		node    *Node
	}
	var children []child
	for _, resource := range c.kinds[mapping.Resource.GroupResource()] {
		m, err := connection.MappingOf(c.mapper, resource)
		if meta.IsNoMatchError(err) {
			c.unserved(resource)
			continue
		}
		if err != nil {
			return err
		}
		items, err := c.list(ctx, m, at.Namespace)
		if err != nil {
			return err
		}
		for i := range items {
			controlled, owned := owns(at.uid, &items[i])
			if !owned || path[items[i].GetUID()] {
				continue
			}
			if depth == 0 {
				c.notef("There are more generations of children; --depth prints more of them.")
				return nil
			}
			if c.objects >= c.limit {
				c.full = true
				break
			}
			c.objects++
			n := nodeOf(m, &items[i])
			n.Controlled, n.Stays = controlled, controlled && stays(&items[i])
			remember(revisions, &items[i])
			children = append(children, child{m, n})
		}
	}
	slices.SortStableFunc(children, func(a, b child) int {
		return cmp.Or(cmp.Compare(a.node.resource, b.node.resource), cmp.Compare(a.node.Namespace, b.node.Namespace), cmp.Compare(a.node.Name, b.node.Name))
	})
	for _, one := range children {
		kind := schema.FromAPIVersionAndKind(one.node.APIVersion, one.node.Kind).GroupKind()
		one.node.Revision = revisions[kind.String()+"/"+one.node.within(at.Namespace)]
		at.Children = append(at.Children, one.node)
		path[one.node.uid] = true
		if err := c.grow(ctx, one.mapping, one.node, path, depth-1); err != nil {
			return err
		}
		delete(path, one.node.uid)
	}
	return nil
}

// list returns the objects of a resource in a namespace, or all of it for children of a cluster-scoped object.
func (c *collector) list(ctx context.Context, mapping *meta.RESTMapping, namespace string) ([]unstructured.Unstructured, error) {
	var resource dynamic.ResourceInterface = c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = c.client.Resource(mapping.Resource).Namespace(namespace)
	} else {
		namespace = ""
	}
	key := mapping.Resource.String() + "/" + namespace
	if items, ok := c.lists[key]; ok {
		return items, nil
	}
	var items []unstructured.Unstructured
	options := metav1.ListOptions{Limit: pageSize}
	for page := 0; ; page++ {
		list, err := resource.List(ctx, options)
		if apierrors.IsForbidden(err) {
			c.notef("You may not list %s: see 'kubectl auth can-i list %[1]s'.", mapping.Resource.GroupResource())
			break
		}
		if apierrors.IsNotFound(err) { // What the cluster serves is remembered for hours.
			c.unserved(mapping.Resource)
			break
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", mapping.Resource.GroupResource(), err)
		}
		items = append(items, list.Items...)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			break
		}
		if page+1 >= maxPages {
			c.notef("There are more than %d %s; only these were looked at.", len(items), mapping.Resource.GroupResource())
			break
		}
	}
	c.lists[key] = items
	return items, nil
}

func (c *collector) unserved(resource schema.GroupVersionResource) {
	c.notef("The cluster does not serve %s.", resource.GroupResource())
}

func (c *collector) notef(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(c.notes, note) {
		c.notes = append(c.notes, note)
	}
}

// stays reports whether an object has, beside its parent, the owner that a controller gives to those that stay without it.
func stays(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.APIVersion == "v1" && r.Kind == "Namespace" && (r.Controller == nil || !*r.Controller) &&
			r.Name == cmp.Or(object.GetNamespace(), metav1.NamespaceSystem)
	})
}

// owns reports whether the object of a uid is an owner of another one, and its controller.
func owns(uid types.UID, object *unstructured.Unstructured) (controlled, owned bool) {
	for _, reference := range object.GetOwnerReferences() {
		if reference.UID == uid {
			return reference.Controller != nil && *reference.Controller, true
		}
	}
	return false, false
}
