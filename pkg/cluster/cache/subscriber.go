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
	"context"
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// subscriber is a handler, with the first event of each object that it has not handled since. It is guarded by the informer's deliver.
type subscriber struct {
	handle func(Event) error
	missed map[key]Event
	err    error // of the last panic
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
	o := e.New
	if o == nil {
		o = e.Old
	}
	return key{o.Namespace(), o.Name()}
}

// since returns the events from before a missed one to the present state of the object, nil if it is gone.
func (e Event) since(present *object.Object) []Event {
	switch {
	case present == nil && e.Old == nil:
		return []Event{{Type: Deleted, Old: e.New}}
	case present == nil:
		return []Event{{Type: Deleted, Old: e.Old}}
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
	for _, s := range i.subscribers {
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
	for _, s := range i.subscribers {
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
