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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// options decodes the options of a deletion.
func (w *write) options() error {
	o := &w.deleting
	if len(w.request.Body) > 0 {
		if err := json.Unmarshal(w.request.Body, o); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	w.dry = w.dry || slices.Contains(o.DryRun, metav1.DryRunAll)
	return nil
}

func (w *write) delete() Response {
	if err := w.options(); err != nil {
		return failure(err)
	}
	existing := w.existing()
	if existing == nil {
		return failure(w.server.notFound(w.target))
	}
	return w.deleteOne(existing)
}

// checkPreconditions refuses the deletion of another object than the client means.
func (w *write) checkPreconditions(existing *store.Object) error {
	p := w.deleting.Preconditions
	if p == nil {
		return nil
	}
	resource := w.target.kind().GroupResource()
	if w.target.kind().GroupResource() != definitions {
		resource.Resource = w.target.kind().Kind
		if p.UID != nil && *p.UID != types.UID(existing.UID) {
			return apierrors.NewConflict(resource, existing.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, existing.UID))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != text(existing.Revision) {
			return apierrors.NewConflict(resource, existing.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, text(existing.Revision)))
		}
		return nil
	}
	if p.UID != nil && *p.UID != types.UID(existing.UID) {
		return apierrors.NewConflict(resource, existing.Name, fmt.Errorf("precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, existing.UID))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != text(existing.Revision) {
		return apierrors.NewConflict(resource, existing.Name, fmt.Errorf("precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, text(existing.Revision)))
	}
	return nil
}

// deleteOne deletes an object, or marks it as being deleted if something must happen before.
func (w *write) deleteOne(existing *store.Object) Response {
	if err := w.checkPreconditions(existing); err != nil {
		return failure(err)
	}
	if w.target.kind().GroupResource() == namespaces {
		return failure(apierrors.NewForbidden(namespaces, existing.Name, errors.New("this namespace may not be deleted")))
	}
	v := w.target.version
	live := w.server.view(existing, v)
	if _, err := w.admit(nil, live); err != nil {
		return failure(err)
	}
	marked := w.marked(live)
	if marked == nil {
		if !w.dry {
			w.server.commit(w.change(v, existing, nil))
		}
		return w.deleted(existing)
	}
	if w.dry {
		return w.respond(marked, http.StatusOK, nil)
	}
	return w.respond(w.commit(existing, marked), http.StatusOK, nil)
}

// deleted is the response to the deletion of an object that is gone.
func (w *write) deleted(existing *store.Object) Response {
	k := w.target.kind()
	return Response{Code: http.StatusOK, ContentType: jsonType, Body: value.Encode(value.Object{
		kindField: "Status", "apiVersion": "v1", "metadata": value.Object{}, statusField: metav1.StatusSuccess,
		"details": withoutEmpty(value.Object{"name": existing.Name, "group": k.Group, kindField: k.Plural, "uid": existing.UID}),
	})}
}

func withoutEmpty(o value.Object) value.Object {
	for k, v := range o {
		if v == "" {
			delete(o, k)
		}
	}
	return o
}

// marked returns what an object is while it waits for its deletion, nil if nothing keeps it.
func (w *write) marked(live value.Object) value.Object {
	o := value.Copy(live)
	meta := metadataOf(o)
	k := w.target.kind().GroupResource()
	kept := w.finalizers(value.Strings(meta, "finalizers"))
	switch {
	case k == definitions && meta["deletionTimestamp"] == nil:
		if !slices.Contains(kept, cleanupFinalizer) {
			kept = append(kept, cleanupFinalizer)
		}
		terminating(o, w.server.now())
	case len(kept) == 0:
		return nil
	}
	if len(kept) > 0 {
		meta["finalizers"] = value.FromStrings(kept)
	} else {
		delete(meta, "finalizers")
	}
	if meta["deletionTimestamp"] == nil {
		if generation := value.Int(meta, "generation"); generation > 0 && k != definitions {
			meta["generation"] = generation + 1
		}
		meta["deletionTimestamp"] = w.server.now()
	}
	if k != definitions {
		meta["deletionGracePeriodSeconds"] = int64(0)
	}
	return o
}

// finalizers returns the finalizers of an object that is deleted with the options, which may tell the garbage collector what to do
// with the objects that it owns.
func (w *write) finalizers(present []string) []string {
	orphan := slices.Contains(present, metav1.FinalizerOrphanDependents)
	foreground := !orphan && slices.Contains(present, metav1.FinalizerDeleteDependents)
	if p := w.deleting.PropagationPolicy; p != nil {
		orphan, foreground = *p == metav1.DeletePropagationOrphan, *p == metav1.DeletePropagationForeground
	}
	kept := slices.DeleteFunc(slices.Clone(present), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		kept = append(kept, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	if slices.Equal(slices.Sorted(slices.Values(kept)), slices.Sorted(slices.Values(present))) {
		return present
	}
	return kept
}

// Users that the controllers of a cluster have.
const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	definitionFinalizer = "system:apiserver"
)

// Collect does one write of the garbage collector, or of the controller that empties kinds whose definition is deleted. It returns false if they
// have nothing to do.
func (s *Server) Collect() bool {
	if s.collected == s.store.Revision() {
		return false
	}
	before := s.store.Revision()
	for _, step := range []func() bool{s.emptyDefinitions, s.collectGarbage} {
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

// Objects returns the number of objects that are stored, without events.
func (s *Server) Objects() int {
	n := 0
	s.everyObject(func(k *kinds.Kind, _ *store.Object) bool {
		if k.GroupResource().Resource != "events" {
			n++
		}
		return false
	})
	return n
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

func hasFinalizer(o *store.Object, finalizer string) bool {
	return slices.Contains(value.Strings(o.Content, "metadata", "finalizers"), finalizer)
}

// emptyDefinitions deletes the objects of definitions that are deleted, and then the definitions.
func (s *Server) emptyDefinitions() bool {
	definition := s.kinds[definitions]
	for _, o := range s.table(definition).All() {
		if !o.Deleting || !hasFinalizer(o, cleanupFinalizer) {
			continue
		}
		k := s.kinds[schema.GroupResource{Group: value.String(o.Content, "spec", "group"), Resource: value.String(o.Content, "spec", "names", "plural")}]
		if k != nil {
			for _, instance := range s.table(k).All() {
				if !instance.Deleting && s.deletes(definitionFinalizer, k, instance, metav1.DeletePropagationBackground) {
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

// collectGarbage does one step of the garbage collector.
func (s *Server) collectGarbage() bool {
	return s.everyObject(func(k *kinds.Kind, o *store.Object) bool {
		if o.Deleting {
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
		if o.Deleting || !o.Owned {
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
		case owner.Deleting && hasFinalizer(owner, metav1.FinalizerDeleteDependents):
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
