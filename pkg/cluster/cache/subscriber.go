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

package cache

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// subscriber is a handler, with the first event of each object that it has not handled since. It is guarded by the informer's deliver.
type subscriber struct {
	handle func(Event) error
	// interest is what it is for; nil: everything.
	interest *Interest

	missed map[key]Event
	err    error // of the last panic
}

// Interest is what a subscriber wants to know of the objects of a resource, which owners of many kinds may control.
type Interest struct {
	// Owners are the kinds of owners. Changes of what one of them controls are of interest, also to the subscribers with owners of other kinds
	// when it gets another controller. Changes of objects that nobody controls always are.
	Owners []schema.GroupKind
	// AwaitsNames reports whether it is of interest as well that any other object goes, so that its name is free. It is called with each that
	// goes, and must be fast.
	AwaitsNames func() bool
}

// wantsGone reports whether the end of an object is of interest, which an owner of a kind controlled.
func (n *Interest) wantsGone(owner schema.GroupKind) bool {
	return slices.Contains(n.Owners, owner) || n.AwaitsNames()
}

// subscribers are those of an informer. Most events concern few of those for the objects of owners: one for each controller that owns objects
// of the resource. They are guarded by the informer's deliver.
type subscribers struct {
	general, controlled []*subscriber
	// byOwner has the controlled ones by the kinds of their owners.
	byOwner map[schema.GroupKind][]*subscriber
}

// all yields all subscribers.
func (s *subscribers) all() iter.Seq[*subscriber] { return each(s.general, s.controlled) }

func (s *subscribers) add(one *subscriber) {
	if one.interest == nil {
		s.general = append(s.general, one)
		return
	}
	s.controlled = append(s.controlled, one)
	if s.byOwner == nil {
		s.byOwner = map[schema.GroupKind][]*subscriber{}
	}
	for _, owner := range one.interest.Owners {
		s.byOwner[owner] = append(s.byOwner[owner], one)
	}
}

func (s *subscribers) remove(one *subscriber) {
	s.general, s.controlled = without(s.general, one), without(s.controlled, one)
	if one.interest == nil {
		return
	}
	for _, owner := range one.interest.Owners {
		if s.byOwner[owner] = without(s.byOwner[owner], one); len(s.byOwner[owner]) == 0 {
			delete(s.byOwner, owner)
		}
	}
}

// concerned yields those to whom an event is of interest.
func (s *subscribers) concerned(e Event) iter.Seq[*subscriber] {
	switch {
	case len(s.controlled) == 0:
		return s.all()
	case e.New == nil:
		_, kind := controllerOf(e.Old)
		return func(yield func(*subscriber) bool) {
			for one := range s.all() {
				if (one.interest == nil || one.interest.wantsGone(kind)) && !yield(one) {
					return
				}
			}
		}
	}
	owner, kind := controllerOf(e.New)
	if owner == nil || e.Old != nil && !e.Old.ControlledBy(owner.UID) {
		return s.all()
	}
	return each(s.general, s.byOwner[kind])
}

// controllerOf returns the owner that controls an object, nil if none does, and its kind.
func controllerOf(o *object.Object) (*object.OwnerReference, schema.GroupKind) {
	owner := o.Controller()
	if owner == nil {
		return nil, schema.GroupKind{}
	}
	return owner, schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

func each(lists ...[]*subscriber) iter.Seq[*subscriber] {
	return func(yield func(*subscriber) bool) {
		for _, list := range lists {
			for _, s := range list {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// recovered returns h such that a panic is an error.
func (h Handler) recovered() func(Event) error {
	return func(e Event) error {
		return recovery.Call(context.Background(), "handling an event of the cache", func() error { //nolint:forbidigo // Its caller has no context.
			h(e)
			return nil
		})
	}
}

// notify calls the handler. The error is that of a panic.
func (s *subscriber) notify(e Event) error {
	err := s.handle(e)
	if err == nil {
		return nil
	}
	s.err = err
	k := e.key()
	if _, ok := s.missed[k]; ok {
		return err
	}
	if s.missed == nil {
		s.missed = map[key]Event{}
	}
	s.missed[k] = e
	return err
}

func (e Event) key() key {
	o := cmp.Or(e.New, e.Old)
	return key{o.Namespace(), o.Name()}
}

// since returns the events from before a missed one to the present state of the object, nil if it is gone.
func (e Event) since(present *object.Object) []Event {
	switch {
	case present == nil:
		return []Event{{Type: Deleted, Old: cmp.Or(e.Old, e.New)}}
	case e.Old == nil:
		return []Event{{Type: Added, New: present}}
	case e.Old.UID() != present.UID():
		return []Event{{Type: Deleted, Old: e.Old}, {Type: Added, New: present}}
	default:
		return []Event{{Type: Updated, Old: e.Old, New: present}}
	}
}

// repeat calls the handler for the objects of which it missed an event, until it panics again.
func (s *subscriber) repeat(store *store) {
	for k, missed := range s.missed {
		present, _ := store.get(k)
		for _, e := range missed.since(present) {
			if s.notify(e) != nil {
				return
			}
		}
		delete(s.missed, k)
	}
}

// repeatMissed calls handlers again that missed events. It is called with deliver held.
func (i *Informer) repeatMissed() {
	for s := range i.subscribers.all() {
		if len(s.missed) > 0 {
			s.repeat(i.store)
			i.checkMissed()
		}
	}
}

// checkMissed notes the error of a handler that has missed events, nil if none has, and tells those who want to know of its coming and
// going. It is called with deliver held.
func (i *Informer) checkMissed() {
	var missed error
	for s := range i.subscribers.all() {
		if len(s.missed) > 0 {
			missed = s.err
		}
	}
	i.mu.Lock()
	var troubled []*func()
	if (i.missed == nil) != (missed == nil) {
		troubled = slices.Clone(i.troubled)
	}
	i.missed = missed
	i.mu.Unlock()
	for _, changed := range troubled {
		(*changed)()
	}
}

// Progress gets, after the handlers, the newest version that the informer has seen, with the event that brought it, or the zero
// Event where none did. A panic is logged and goes no further.
type Progress func(version string, e Event)

// recovered returns p such that it does not panic.
func (p Progress) recovered() Progress {
	return func(version string, e Event) {
		_ = recovery.Call(context.Background(), "observing the progress of the cache", func() error { //nolint:forbidigo // Its caller has no context.
			p(version, e)
			return nil
		})
	}
}

// Observer observes the progress of an informer while it is awake: most of those that may have to wait for something do not wait at a
// time, and are not asked at each event. It is safe for concurrent use. Wake and Rest may be called by a Progress, and with what it locks.
type Observer struct {
	informer *Informer
	progress Progress

	// The lock of the informer's observers guards these.
	awake, closed bool
}

// Wake has Progress called with what comes. What the informer shows, or has as [Informer.LastSyncedVersion], after Wake was called is all that
// it is not called with.
func (o *Observer) Wake() { o.informer.observers.set(o, true) }

// Rest ends the calls until the next Wake, but for one that is under way.
func (o *Observer) Rest() { o.informer.observers.set(o, false) }

// Close ends the calls for good. None is under way when it returns. A Progress must not call it.
func (o *Observer) Close() {
	o.informer.deliver.Lock()
	defer o.informer.deliver.Unlock()
	o.informer.observers.close(o)
}

// observers are the observers of an informer that are awake, in the order in which they woke.
type observers struct {
	mu   sync.Mutex
	list []*Observer
}

// awake returns those that are awake. The list does not change.
func (s *observers) awake() []*Observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

func (s *observers) set(o *Observer, awake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(o, awake && !o.closed)
}

func (s *observers) close(o *Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.closed = true
	s.change(o, false)
}

// change is called with the lock held.
func (s *observers) change(o *Observer, awake bool) {
	switch {
	case o.awake == awake:
	case awake:
		s.list = append(slices.Clip(s.list), o) // A list that is in use does not change.
	default:
		s.list = without(s.list, o)
	}
	o.awake = awake
}
