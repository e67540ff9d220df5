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
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

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

// finalizedParents implements supervisorConfig.Finalized. The resource may be served in another version than the definition named. Objects are
// listed by the server, since no hook is shown them, and released by the controller's service account.
func finalizedParents(ctx context.Context, c *cluster.Cluster, resource schema.GroupResource, d reconciler.Definition) ([]FinalizedParent, error) {
	served, err := c.Discovery.Serving(ctx, resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		// Of an aggregated API that comes back this is untrue: see docs/design/0014-finalizers-level-triggered.md.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A version that is served no more is an error: until discovery knows, it cannot be told which other one is.
	all, err := c.Cache.ListMetadata(ctx, served.GroupVersionResource)
	if err != nil {
		return nil, err
	}
	f, api := parent.Finalizer{Name: d.Finalizer}, c.Client
	if d.Account != nil {
		api = api.As(client.Identity{User: d.Account.User()})
	}
	var list []FinalizedParent
	for _, o := range all {
		if !f.On(o) {
			continue
		}
		target := client.Target{Resource: served.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()}
		var finalizing *corev1.ObjectReference
		if o.Deleting() {
			finalizing = &corev1.ObjectReference{
				APIVersion: served.GroupVersion().String(), Kind: served.Kind, Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(),
			}
		}
		list = append(list, FinalizedParent{
			Key:        parent.NewKey(resource, o.Namespace(), o.Name()),
			UID:        o.UID(),
			Finalizing: finalizing,
			Release: func(ctx context.Context) error {
				if _, err := f.Write(ctx, api, target, o, f.Without(o)); !client.IsGone(err) {
					return err
				}
				return nil
			},
		})
	}
	return list, nil
}

// releaser takes the controller's finalizer off the objects of its targets: the resources that are recorded but neither
// declared by the latest definition nor claimed by the running instance.
type releaser struct {
	config supervisorConfig
	report *report
	latest func() reconciler.Definition
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
	return &releaser{config: c, report: r, latest: latest, progressed: progressed, wake: make(chan struct{}, 1)}
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
	interrupted := r.update(func() {
		r.claimed = resources
		r.claims++
	})
	if interrupted != nil {
		<-interrupted
	}
}

// redefined takes note of a change of the latest definition.
func (r *releaser) redefined() { r.update(func() {}) }

// retry asks for an attempt at resources that could not be listed.
func (r *releaser) retry() { r.update(func() { r.again = true }) }

// update changes what is to be done, and cancels the release of a resource that is no target any more. The channel, nil if there is no such release,
// is closed when it has ended.
func (r *releaser) update(change func()) (interrupted <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	poke(r.wake)
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
	for done := false; !done; {
		var after time.Duration
		if !next.IsZero() {
			after = max(time.Until(next), 1)
		}
		if !pause(ctx, r.wake, after) {
			return
		}
		r.mu.Lock()
		done = changed()
		r.mu.Unlock()
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
	return slices.DeleteFunc(slices.Clone(list), func(r schema.GroupResource) bool { return slices.Contains(others, r) })
}

// isHeld reports whether the object of d stays until its parents are released.
func isHeld(d reconciler.Definition) bool {
	return slices.Contains(d.Meta.Finalizers, v1alpha1.FinalizerParents)
}

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

// hold makes sure that the object has v1alpha1.FinalizerParents exactly while an object may carry the controller's finalizer. The error is NotFound if the
// object is gone.
func (s *Supervisor) hold(ctx context.Context, d reconciler.Definition) error {
	needed := len(s.report.recorded()) > 0 || len(finalized(d)) > 0
	finalizers := slices.Clone(d.Meta.Finalizers)
	switch {
	case needed && !isHeld(d) && d.Meta.DeletionTimestamp == nil:
		finalizers = append(finalizers, v1alpha1.FinalizerParents)
	case !needed && isHeld(d):
		finalizers = slices.DeleteFunc(finalizers, func(name string) bool { return name == v1alpha1.FinalizerParents })
	default:
		return nil
	}
	if err := s.config.Objects.SetFinalizers(ctx, d, finalizers); err != nil {
		return fmt.Errorf("writing the finalizer that keeps %s %s until its parents are released: %w", d.Kind, d.Meta.Name, err)
	}
	return nil
}

const (
	// releases is the number of objects of one controller that are released at the same time.
	releases = 16
	// maxConflicts is how many conflicts in a row, usual while other clients write an object, are no failure yet.
	maxConflicts = 3
)

// attempt is what is known of an object that could not be released, or of a resource whose objects could not be listed.
type attempt struct {
	name     string
	err      error
	failures int
	due      time.Time
}

// pass is one attempt at everything that is due.
type pass struct {
	*releaser

	// again says that resources are listed though their attempts are not due.
	again bool
	// failed are the attempts to be made again.
	failed map[string]attempt
	// skipped says that a resource is no target any more, or for the time being.
	skipped bool
	// left counts the objects that are not released, as far as they could be listed.
	left int
	// shown is the attempt that failed most often, the first by name of several, of those that failed for more than usual conflicts.
	shown attempt
}

// pass releases what is due of the targets. Waits says that there are none because the controller is paused, though something is left. It
// returns when the next attempt is due, zero if there is none.
func (r *releaser) pass(ctx context.Context, targets []schema.GroupResource, waits, again bool) (next time.Time) {
	p := &pass{releaser: r, again: again, failed: map[string]attempt{}}
	for _, resource := range targets {
		p.resource(ctx, resource)
	}
	switch {
	case ctx.Err() != nil:
		return time.Time{}
	case waits: // It is not asked anew: the next pass is made when what run found has changed.
		d := r.latest()
		r.show(d, metav1.ConditionFalse, v1alpha1.ReasonPaused, fmt.Sprintf("Objects may carry the finalizer %s that the definition does not finalize any "+
			"more. It is taken off them when the controller is not paused any more.", d.Finalizer))
		return time.Time{}
	case p.skipped:
		return time.Now() // What is left is counted anew.
	}
	r.attempts = p.failed
	r.publish(p.left, p.shown)
	for _, a := range p.failed {
		if next.IsZero() || a.due.Before(next) {
			next = a.due
		}
	}
	return next
}

// resource releases the objects of a resource.
func (p *pass) resource(ctx context.Context, resource schema.GroupResource) {
	whole := ctx
	ctx, end, ok := p.begin(ctx, resource)
	if !ok {
		p.skipped = true
		return
	}
	defer end()
	defer func() { p.skipped = p.skipped || ctx.Err() != nil && whole.Err() == nil }()
	id := resource.String()
	if a, waiting := p.waiting(id); waiting && !p.again {
		p.keep(id, a)
		return
	}
	var list []FinalizedParent
	err := recovery.Call(ctx, "listing "+id, func() (err error) {
		list, err = p.config.Finalized(ctx, resource, p.latest())
		return err
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.fail(id, id, err)
		return
	}
	if p.objects(ctx, list) && ctx.Err() == nil {
		p.report.drop(resource)
		p.progressed()
	}
}

// objects releases objects, and reports whether none is left.
func (p *pass) objects(ctx context.Context, list []FinalizedParent) bool {
	var due []FinalizedParent
	before := p.left
	for _, o := range list {
		if a, waiting := p.waiting(string(o.UID)); waiting {
			p.left++
			p.keep(string(o.UID), a)
			continue
		}
		due = append(due, o)
	}
	if len(due) > 0 && p.failure == "" {
		p.publish(p.left+len(due), attempt{})
	}
	errs := make([]error, len(due))
	workqueue.ParallelizeUntil(ctx, releases, len(due), func(i int) {
		errs[i] = recovery.Call(ctx, "releasing "+due[i].Key.String(), func() error { return due[i].Release(ctx) })
	})
	if ctx.Err() != nil {
		return false
	}
	for i, o := range due {
		switch {
		case errs[i] != nil:
			p.left++
			p.fail(string(o.UID), o.Key.String(), errs[i])
		case o.Finalizing != nil:
			p.notFinalized(o.Finalizing)
		}
	}
	return p.left == before
}

// notFinalized tells that an object was released while it was being finalized.
func (p *pass) notFinalized(object *corev1.ObjectReference) {
	d := p.latest()
	why := events.NoLongerFinalizes
	if d.Meta.DeletionTimestamp != nil {
		why = "was deleted"
	}
	p.config.Recorder.WarningOfParent(object, d.Reference(), events.ReasonFinalizeSkipped, events.FinalizeSkipped(d.Kind+" "+d.Meta.Name, why))
}

// waiting returns the former attempt at an object or resource, and whether the next one is not due yet.
func (p *pass) waiting(id string) (former attempt, waiting bool) {
	former = p.attempts[id]
	return former, time.Now().Before(former.due)
}

func (p *pass) fail(id, name string, err error) {
	failures := p.attempts[id].failures + 1
	delay := min(firstDelay<<min(failures-1, 9), maxDelay)
	p.keep(id, attempt{name: name, err: err, failures: failures, due: time.Now().Add(delay)})
}

func (p *pass) keep(id string, a attempt) {
	p.failed[id] = a
	if apierrors.IsConflict(a.err) && a.failures <= maxConflicts {
		return
	}
	if p.shown.err == nil || a.failures > p.shown.failures || a.failures == p.shown.failures && a.name < p.shown.name {
		p.shown = a
	}
}

// publish publishes how many objects are left, and which one could not be released.
func (r *releaser) publish(left int, failed attempt) {
	d := r.latest()
	failure := ""
	switch {
	case failed.err != nil:
		failure = fmt.Sprintf("%s: %v", failed.name, failed.err)
		message := fmt.Sprintf("Cannot take the finalizer %s off %s. Objects known to be left: %d. The server tries again, at least every "+
			"5 minutes. Let it read and write the objects, or take the finalizer off by hand.", d.Finalizer, failure, left)
		if failure != r.failure {
			r.config.Recorder.Warning(d.Reference(), events.ReasonReleaseError, message)
		}
		r.show(d, metav1.ConditionFalse, v1alpha1.ReasonReleaseFailed, message)
	case left == 0:
		r.show(d, metav1.ConditionTrue, v1alpha1.ReasonReleased, "No object carries the controller's finalizer that the definition does not finalize.")
	default:
		r.show(d, metav1.ConditionFalse, v1alpha1.ReasonReleasing, fmt.Sprintf(
			"Taking the finalizer %s off objects that the definition does not finalize any more; %d left.", d.Finalizer, left))
	}
	r.failure = failure
}

// show publishes how far the release is. That it is done is of interest once it was not.
func (r *releaser) show(d reconciler.Definition, status metav1.ConditionStatus, reason, message string) {
	r.mu.Lock()
	changed := r.message != message
	r.message = message
	r.mu.Unlock()
	if shown := r.report.shows(v1alpha1.ConditionFinalizersReleased); shown != "" && shown != metav1.ConditionTrue || status == metav1.ConditionFalse {
		r.report.set(d, condition(v1alpha1.ConditionFinalizersReleased, status, reason, message))
	}
	if changed {
		r.progressed()
	}
}
