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

package apiserver

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// Users that the controllers of a cluster have.
const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	definitionFinalizer = "system:apiserver"
)

// Collect does one write of the garbage collector, of the controller that empties namespaces that are deleted, or of the one that
// empties kinds whose definition is deleted. It returns false if they have nothing to do.
func (s *Server) Collect() bool {
	if s.collected == s.store.Revision() {
		return false
	}
	before := s.store.Revision()
	for _, step := range []func() bool{s.emptyDefinitions, s.emptyNamespaces, s.collectGarbage} {
		if step(); s.store.Revision() != before {
			return true
		}
	}
	s.collected = before
	return false
}

// everyObject calls a function for all objects by kind, namespace and name, until it returns true.
func (s *Server) everyObject(call func(*kinds.Kind, *store.Object) bool) bool {
	for _, gr := range s.store.Resources() {
		k := s.kinds[gr]
		if k == nil {
			continue
		}
		for _, o := range s.table(k).All() {
			if call(k, o) {
				return true
			}
		}
	}
	return false
}

// system returns a write of a controller of the cluster.
func (s *Server) system(user string, k *kinds.Kind, o *store.Object, subresource string) *write {
	return &write{
		server: s, request: Request{User: user}, verb: "collect", manager: "kube-controller-manager",
		target: target{version: k.Storage, verb: "delete", namespace: o.Namespace, name: o.Name, subresource: subresource},
	}
}

// deletes deletes an object with a policy, and reports whether something changed.
func (s *Server) deletes(user string, k *kinds.Kind, o *store.Object, policy metav1.DeletionPropagation) bool {
	before := s.store.Revision()
	w := s.system(user, k, o, "")
	w.deleting = metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: new(types.UID(o.UID))},
	}
	w.deleteOne(o)
	return s.store.Revision() != before
}

// changes writes an object with other metadata or spec, as a controller of the cluster, and reports whether something changed.
func (s *Server) changes(user string, k *kinds.Kind, o *store.Object, change func(value.Object)) bool {
	before := s.store.Revision()
	w := s.system(user, k, o, "")
	w.target.verb = verbPatch
	if k.GroupResource() == namespaces {
		w.target.subresource = "finalize"
	}
	live := s.view(o, k.Storage)
	changed := value.Copy(live)
	change(changed)
	changed = k.Storage.Owned(w.target.subresource, live, changed, w.manager, s.options.Now())
	_, _, _ = w.replace(o, live, changed) // A refusal is tried again with the next step.
	return s.store.Revision() != before
}

func without(o value.Object, finalizer string) {
	meta := metadataOf(o)
	kept := slices.DeleteFunc(value.Strings(meta, "finalizers"), func(f string) bool { return f == finalizer })
	if len(kept) == 0 {
		delete(meta, "finalizers")
	} else {
		meta["finalizers"] = value.FromStrings(kept)
	}
}

func deleting(o *store.Object) bool {
	return value.At(o.Content, "metadata", "deletionTimestamp") != nil
}

func hasFinalizer(o *store.Object, finalizer string) bool {
	return slices.Contains(value.Strings(o.Content, "metadata", "finalizers"), finalizer)
}

// emptyDefinitions deletes the objects of definitions that are deleted, and then the definitions.
func (s *Server) emptyDefinitions() bool {
	definition := s.kinds[definitions]
	for _, o := range s.table(definition).All() {
		if !deleting(o) || !hasFinalizer(o, cleanupFinalizer) {
			continue
		}
		k := s.kinds[schema.GroupResource{Group: value.String(o.Content, "spec", "group"), Resource: value.String(o.Content, "spec", "names", "plural")}]
		if k != nil {
			for _, instance := range s.table(k).All() {
				if !deleting(instance) && s.deletes(definitionFinalizer, k, instance, metav1.DeletePropagationBackground) {
					return true
				}
			}
		}
		if k == nil || s.table(k).Len() == 0 {
			return s.changes(definitionFinalizer, definition, o, func(o value.Object) { without(o, cleanupFinalizer) })
		}
	}
	return false
}

// emptyNamespaces deletes the objects in namespaces that are deleted, and then the namespaces.
func (s *Server) emptyNamespaces() bool {
	k := s.kinds[namespaces]
	for _, ns := range s.table(k).All() {
		if !deleting(ns) {
			continue
		}
		left := false
		done := s.everyObject(func(of *kinds.Kind, o *store.Object) bool {
			if !of.Namespaced || o.Namespace != ns.Name {
				return false
			}
			left = true
			return !deleting(o) && s.deletes(namespaceController, of, o, metav1.DeletePropagationBackground)
		})
		if done {
			return true
		}
		if !left && s.changes(namespaceController, k, ns, func(o value.Object) { o["spec"] = value.Object{} }) {
			return true
		}
	}
	return false
}

// collectGarbage does one step of the garbage collector.
func (s *Server) collectGarbage() bool {
	return s.everyObject(func(k *kinds.Kind, o *store.Object) bool {
		if deleting(o) {
			if hasFinalizer(o, metav1.FinalizerOrphanDependents) {
				return s.orphan(k, o)
			}
			if !hasFinalizer(o, metav1.FinalizerDeleteDependents) {
				return false
			}
			if !s.blocked(o) {
				return s.changes(garbageCollector, k, o, func(o value.Object) { without(o, metav1.FinalizerDeleteDependents) })
			}
		}
		if deleting(o) || value.At(o.Content, "metadata", "ownerReferences") == nil {
			return false
		}
		return s.collectOne(k, o)
	})
}

// orphan takes the references to an owner off an object, or, if there is none, the finalizer off the owner.
func (s *Server) orphan(k *kinds.Kind, owner *store.Object) bool {
	if s.dependents(owner, func(of *kinds.Kind, o *store.Object) bool {
		return s.changes(garbageCollector, of, o, func(o value.Object) { disown(o, owner.UID) })
	}) {
		return true
	}
	return s.changes(garbageCollector, k, owner, func(o value.Object) { without(o, metav1.FinalizerOrphanDependents) })
}

// blocked reports whether an object waits for a dependent that blocks its deletion.
func (s *Server) blocked(owner *store.Object) bool {
	return s.dependents(owner, func(_ *kinds.Kind, o *store.Object) bool {
		for _, reference := range value.List(o.Content, "metadata", "ownerReferences") {
			if r, _ := reference.(value.Object); value.String(r, "uid") == owner.UID && value.Bool(r, "blockOwnerDeletion") {
				return true
			}
		}
		return false
	})
}

// dependents calls a function for the objects with a reference to an owner, until it returns true.
func (s *Server) dependents(owner *store.Object, call func(*kinds.Kind, *store.Object) bool) bool {
	return s.everyObject(func(k *kinds.Kind, o *store.Object) bool {
		for _, reference := range value.List(o.Content, "metadata", "ownerReferences") {
			if r, _ := reference.(value.Object); value.String(r, "uid") == owner.UID {
				return call(k, o)
			}
		}
		return false
	})
}

func disown(o value.Object, uids ...string) {
	meta := metadataOf(o)
	kept := slices.DeleteFunc(slices.Clone(value.List(meta, "ownerReferences")), func(reference any) bool {
		r, _ := reference.(value.Object)
		return slices.Contains(uids, value.String(r, "uid"))
	})
	if len(kept) == 0 {
		delete(meta, "ownerReferences")
	} else {
		meta["ownerReferences"] = kept
	}
}

// collectOne deletes an object none of whose owners is left, or drops the references to those that are gone.
func (s *Server) collectOne(k *kinds.Kind, o *store.Object) bool {
	var gone, waiting []string
	solid := 0
	for _, reference := range value.List(o.Content, "metadata", "ownerReferences") {
		r, _ := reference.(value.Object)
		owner, known := s.owner(o, r)
		switch {
		case !known:
			return false
		case owner == nil:
			gone = append(gone, value.String(r, "uid"))
		case deleting(owner) && hasFinalizer(owner, metav1.FinalizerDeleteDependents):
			waiting = append(waiting, owner.UID)
		default:
			solid++
		}
	}
	switch {
	case solid > 0 && len(gone)+len(waiting) > 0:
		return s.changes(garbageCollector, k, o, func(o value.Object) { disown(o, append(gone, waiting...)...) })
	case solid > 0 || len(gone)+len(waiting) == 0:
		return false
	case len(waiting) > 0 && s.dependents(o, func(*kinds.Kind, *store.Object) bool { return true }):
		return s.deletes(garbageCollector, k, o, metav1.DeletePropagationForeground)
	case hasFinalizer(o, metav1.FinalizerOrphanDependents):
		return s.deletes(garbageCollector, k, o, metav1.DeletePropagationOrphan)
	case hasFinalizer(o, metav1.FinalizerDeleteDependents):
		return s.deletes(garbageCollector, k, o, metav1.DeletePropagationForeground)
	}
	return s.deletes(garbageCollector, k, o, metav1.DeletePropagationBackground)
}

// owner returns the object that a reference names, nil if it does not exist. It returns false if its kind is not served, so that
// nobody can know.
func (s *Server) owner(of *store.Object, reference value.Object) (*store.Object, bool) {
	gv, err := schema.ParseGroupVersion(value.String(reference, "apiVersion"))
	if err != nil {
		return nil, false
	}
	for _, k := range s.kinds { // One kind at most has the name.
		if k.Group != gv.Group || k.Kind != value.String(reference, "kind") {
			continue
		}
		v := k.Version(gv.Version)
		if v == nil || !v.Served || k.Namespaced && of.Namespace == "" {
			return nil, false
		}
		key := store.Key{Name: value.String(reference, "name")}
		if k.Namespaced {
			key.Namespace = of.Namespace
		}
		owner := s.table(k).Get(key)
		if owner != nil && owner.UID != value.String(reference, "uid") {
			owner = nil
		}
		return owner, true
	}
	return nil, false
}
