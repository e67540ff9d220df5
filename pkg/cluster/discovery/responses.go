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

package discovery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// responses are the API server's responses to one request for each group-version.
type responses[V any] struct {
	// ask returns nil for a group-version that is not served.
	ask func(context.Context, schema.GroupVersion) (map[string]V, error)
	// now returns how often a group has changed, negative if no event would show a change. It is called with the lock held.
	now   func(group string) int
	known map[schema.GroupVersion]*entry[V]
	// trusted is for how long a response counts while no event would show a change.
	trusted time.Duration
	// recheck is the age at which a response is asked for again of which no object tells.
	recheck time.Duration
	// replaced, where it is not nil, is called with the lock held when there is another response than before.
	replaced func(group string, before, after map[string]V)
}

// entry is what is known of one group-version. Its fields are guarded by the lock of the Discovery.
type entry[V any] struct {
	// turn is held by the caller that reads, so that many callers at once cause one request: a response can be megabytes.
	turn     chan struct{}
	response map[string]V
	// good says that there is a response.
	good bool
	// at is how often the group had changed at the time of the request; negative if no event would have shown a change.
	at int
	// requested is the time of the request.
	requested time.Time
	// completed counts the requests that have ended, and err is what the last one failed with.
	completed int
	err       error
}

// responseFor returns what is known of a group-version, and reads it if that is nothing or may be outdated. If reading fails,
// the last response stays.
func responseFor[V any](ctx context.Context, d *Discovery, a *responses[V], version schema.GroupVersion) (map[string]V, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := a.known[version]
	if e == nil {
		e = &entry[V]{turn: make(chan struct{}, 1)}
		a.known[version] = e
	}
	if e.isCurrent(a.now(version.Group), d.clock.Now().Add(-a.trusted)) {
		return e.response, nil
	}
	if err := read(ctx, d, a, version, e); err != nil {
		return nil, err
	}
	if e.err != nil && e.good {
		klog.FromContext(ctx).V(2).Info("Discovery failed; the last response stays", "apiVersion", version, "err", e.err)
		return e.response, nil
	}
	return e.response, e.err
}

// read has the API server asked for a group-version once after the call. It is called with the lock held, and gives it up meanwhile. The
// error is that of ctx; that of the API server is in the entry.
func read[V any](ctx context.Context, d *Discovery, a *responses[V], version schema.GroupVersion, e *entry[V]) error {
	arrived := e.completed
	d.mu.Unlock()
	err := e.take(ctx)
	d.mu.Lock()
	if err != nil {
		return err
	}
	defer func() { <-e.turn }()
	// What changes while the API server responds makes the response outdated, so the count is of before.
	now, requested := a.now(version.Group), d.clock.Now()
	// A response to a request of another caller, which ended while this one waited, is as good as its own.
	if e.completed == arrived {
		d.mu.Unlock()
		var response map[string]V
		err := recovery.Call(ctx, "asking for the kinds of "+version.String(), func() (err error) {
			response, err = a.ask(ctx, version)
			return err
		})
		d.mu.Lock()
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil && e.isCurrent(now, requested.Add(-a.trusted)) {
			return nil // It was only looked whether the response is another one by now; nobody has to wait for it.
		}
		e.completed++
		if e.err = err; err == nil {
			if e.good && a.replaced != nil {
				a.replaced(version.Group, e.response, response)
			}
			e.response, e.good, e.at, e.requested = response, true, now, requested
		}
	}
	return nil
}

// take waits for the turn to read.
func (e *entry[T]) take(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isCurrent reports whether the response is that of now, or, while no event would show a change, was requested after oldest.
func (e *entry[T]) isCurrent(now int, oldest time.Time) bool {
	if !e.good || e.err != nil {
		return false
	}
	return now >= 0 && e.at == now || now < 0 && e.requested.After(oldest)
}
