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
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

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
