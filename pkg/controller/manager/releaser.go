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

package manager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// Parents reads and writes the objects that carry a controller's finalizer.
type Parents interface {
	// Finalized returns the objects of a resource that carry the finalizer now, not what a cache shows: none if the cluster
	// serves no version of the resource. The definition says which finalizer, and who releases.
	Finalized(ctx context.Context, resource schema.GroupResource, d reconciler.Definition) ([]FinalizedParent, error)
}

// FinalizedParent is an object that carries a controller's finalizer.
type FinalizedParent struct {
	// Key names the object.
	Key parent.Key
	// UID is the object's UID.
	UID types.UID
	// Finalizing refers to the object if it is being deleted, so that it is not finalized when it is released. Nil: it is not.
	Finalizing *corev1.ObjectReference
	// Release takes the finalizer off the object in the version in which it was read. An object that is gone is no error.
	Release func(ctx context.Context) error
}

// releaser takes the controller's finalizer off the objects of its targets: the resources that are recorded but neither
// declared by the latest definition nor claimed by the running instance.
type releaser struct {
	parents  Parents
	recorder Recorder
	report   *report
	latest   func() reconciler.Definition
	// progressed is called when a resource has left the record, or what progress returns changed.
	progressed func()
	wake       chan struct{}

	mu      sync.Mutex
	claimed []schema.GroupResource
	// claims counts the calls of claim: an instance may have put the finalizer on objects again that were released.
	claims  int
	current *release // nil while none is under way
	again   bool
	message string

	// The rest belongs to run: attempts by UID of objects and by name of resources, the account that made them, nil for the server itself, and the
	// failure of the last event.
	attempts map[string]attempt
	account  *rights.Account
	failure  string
}

// release is the work on one resource that is under way.
type release struct {
	resource schema.GroupResource
	cancel   context.CancelFunc
	ended    chan struct{}
}

func newReleaser(c supervisorConfig, r *report, latest func() reconciler.Definition, progressed func()) *releaser {
	return &releaser{
		parents: c.Parents, recorder: c.Recorder, report: r, latest: latest, progressed: progressed, wake: make(chan struct{}, 1),
	}
}

// targets returns the resources to release. It is called with the lock held.
func (r *releaser) targets() []schema.GroupResource {
	if paused(r.latest()) {
		return nil
	}
	return r.left()
}

// left returns the resources that are to be released, now or after a pause. It is called with the lock held.
func (r *releaser) left() []schema.GroupResource {
	return without(r.report.recorded(), append(finalized(r.latest()), r.claimed...)...)
}

// busy reports whether objects are being released.
func (r *releaser) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current != nil
}

// paused reports whether nothing may be written for a definition. One that is being deleted lets its parents go all the same.
func paused(d reconciler.Definition) bool { return d.Paused && d.Meta.DeletionTimestamp == nil }

// claim gives resources to an instance, in place of those claimed before. When it returns nothing of them is being released.
func (r *releaser) claim(resources []schema.GroupResource) {
	r.mu.Lock()
	r.claimed = resources
	r.claims++
	interrupted := r.interrupt()
	r.mu.Unlock()
	poke(r.wake)
	if interrupted != nil {
		<-interrupted
	}
}

// redefined takes note of a change of the latest definition.
func (r *releaser) redefined() {
	r.mu.Lock()
	r.interrupt()
	r.mu.Unlock()
	poke(r.wake)
}

// retry asks for an attempt at resources that could not be listed.
func (r *releaser) retry() {
	r.mu.Lock()
	r.again = true
	r.mu.Unlock()
	poke(r.wake)
}

// interrupt cancels the release of a resource that is no target any more. The channel, nil if there is no such release, is
// closed when it has ended. It is called with the lock held.
func (r *releaser) interrupt() <-chan struct{} {
	if r.current == nil || slices.Contains(r.targets(), r.current.resource) {
		return nil
	}
	r.current.cancel()
	return r.current.ended
}

// progress says how far the release is.
func (r *releaser) progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.message
}

// run releases until ctx ends.
func (r *releaser) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		targets, left, again, claims := r.targets(), r.left(), r.again, r.claims
		r.again = false
		r.mu.Unlock()
		if account := r.latest().Account; !sameAccount(account, r.account) {
			r.account, r.attempts = account, nil // What was refused to another one says nothing.
		}
		next := time.Now().Add(maxDelay)
		_ = recovery.Call(ctx, "releasing parents", func() error { // It logs a panic.
			next = r.pass(ctx, targets, len(targets) == 0 && len(left) > 0, again)
			return nil
		})
		r.await(ctx, next, func() bool {
			return r.again || r.claims != claims || !slices.Equal(targets, r.targets()) || !slices.Equal(left, r.left()) ||
				!sameAccount(r.account, r.latest().Account)
		})
	}
}

func sameAccount(a, b *rights.Account) bool { return a == b || a != nil && b != nil && *a == *b }

// await waits until next, never if it is zero, or until there is something else to do, which changed reports with the lock held.
func (r *releaser) await(ctx context.Context, next time.Time, changed func() bool) {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			return
		case <-r.wake:
		}
		r.mu.Lock()
		done := changed()
		r.mu.Unlock()
		if done {
			return
		}
	}
}

// begin returns the context for the work on a resource, which ends when the resource is no target any more.
func (r *releaser) begin(ctx context.Context, resource schema.GroupResource) (work context.Context, end func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.targets(), resource) {
		return nil, nil, false
	}
	work, cancel := context.WithCancel(ctx)
	current := &release{resource: resource, cancel: cancel, ended: make(chan struct{})}
	r.current = current
	return work, func() {
		cancel()
		r.mu.Lock()
		r.current = nil
		r.mu.Unlock()
		close(current.ended)
	}, true
}

// HoldFinalizer is the finalizer that keeps a controller object until the controller's own finalizer is off all parents
// (docs/reference/compatibility.md#d15).
const HoldFinalizer = "metacontroller.k8s.io/parents"

// finalized returns the resources on whose objects the definition puts the controller's finalizer.
func finalized(d reconciler.Definition) []schema.GroupResource {
	if !d.Finalizes() || d.Meta.DeletionTimestamp != nil {
		return nil
	}
	return parentResources(d)
}

// parentResources returns the resources of the parents, each once, without their versions.
func parentResources(d reconciler.Definition) []schema.GroupResource {
	var list []schema.GroupResource
	for _, rule := range d.Parents {
		// A version that cannot be parsed is refused by validation, and served by no cluster.
		version, _ := schema.ParseGroupVersion(rule.APIVersion)
		if r := (schema.GroupResource{Group: version.Group, Resource: rule.Resource}); !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}

// without returns the resources of a list that are not in others.
func without(list []schema.GroupResource, others ...schema.GroupResource) []schema.GroupResource {
	var rest []schema.GroupResource
	for _, r := range list {
		if !slices.Contains(others, r) {
			rest = append(rest, r)
		}
	}
	return rest
}

// isHeld reports whether the object of d stays until its parents are released.
func isHeld(d reconciler.Definition) bool { return slices.Contains(d.Meta.Finalizers, HoldFinalizer) }

// prepare records which resources an instance of d may finalize, before it can do so.
func (s *Supervisor) prepare(ctx context.Context, d reconciler.Definition) error {
	declared := finalized(d)
	s.releaser.claim(declared)
	if len(declared) == 0 {
		return nil
	}
	s.report.record(declared)
	if err := s.hold(ctx, d); err != nil {
		return err
	}
	if _, err := s.report.publish(ctx); err != nil {
		return fmt.Errorf("recording the resources to finalize: %w", err)
	}
	return nil
}

// hold makes sure that the object has HoldFinalizer exactly while an object may carry the controller's finalizer. The error is NotFound if the
// object is gone.
func (s *Supervisor) hold(ctx context.Context, d reconciler.Definition) error {
	needed := len(s.report.recorded()) > 0 || len(finalized(d)) > 0
	finalizers := slices.Clone(d.Meta.Finalizers)
	switch {
	case needed && !isHeld(d) && d.Meta.DeletionTimestamp == nil:
		finalizers = append(finalizers, HoldFinalizer)
	case !needed && isHeld(d):
		finalizers = slices.DeleteFunc(finalizers, func(name string) bool { return name == HoldFinalizer })
	default:
		return nil
	}
	if err := s.config.Objects.SetFinalizers(ctx, d, finalizers); err != nil {
		return fmt.Errorf("writing the finalizer that keeps %s %s until its parents are released: %w", d.Kind, d.Meta.Name, err)
	}
	return nil
}
