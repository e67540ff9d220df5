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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

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
		r.publishPause()
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
		list, err = p.parents.Finalized(ctx, resource, p.latest())
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
	slots := make(chan struct{}, releases)
	var releasing sync.WaitGroup
	for i, o := range due {
		slots <- struct{}{}
		releasing.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = recovery.Call(ctx, "releasing "+o.Key.String(), func() error { return o.Release(ctx) })
			}
		})
	}
	releasing.Wait()
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
	why := eventrecorder.NoLongerFinalizes
	if d.Meta.DeletionTimestamp != nil {
		why = "was deleted"
	}
	p.recorder.WarningOfParent(object, d.Reference(), eventrecorder.ReasonFinalizeSkipped, eventrecorder.FinalizeSkipped(d.Kind+" "+d.Meta.Name, why))
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

// publishPause publishes that nothing is released while the controller is paused.
func (r *releaser) publishPause() {
	d := r.latest()
	message := fmt.Sprintf("Objects may carry the finalizer %s that the definition does not finalize any more. It is taken off them when the "+
		"controller is not paused any more.", d.Finalizer)
	r.mu.Lock()
	changed := r.message != message
	r.message = message
	r.mu.Unlock()
	r.report.set(d, metav1.Condition{
		Type: v1alpha1.ConditionFinalizersReleased, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPaused, Message: message,
	})
	if changed {
		r.progressed()
	}
}

// publish publishes how many objects are left, and which one could not be released.
func (r *releaser) publish(left int, failed attempt) {
	d := r.latest()
	status, reason, failure := metav1.ConditionFalse, v1alpha1.ReasonReleasing, ""
	message := fmt.Sprintf("Taking the finalizer %s off objects that the definition does not finalize any more; %d left.", d.Finalizer, left)
	switch {
	case failed.err != nil:
		reason, failure = v1alpha1.ReasonReleaseFailed, fmt.Sprintf("%s: %v", failed.name, failed.err)
		message = fmt.Sprintf("Cannot take the finalizer %s off %s. Objects known to be left: %d. The server tries again, at least every "+
			"5 minutes. Let it read and write the objects, or take the finalizer off by hand.", d.Finalizer, failure, left)
	case left == 0:
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonReleased
		message = "No object carries the controller's finalizer that the definition does not finalize."
	}
	r.mu.Lock()
	changed := r.message != message
	r.message = message
	r.mu.Unlock()
	if status == metav1.ConditionFalse || r.report.doubts(v1alpha1.ConditionFinalizersReleased) {
		r.report.set(d, metav1.Condition{Type: v1alpha1.ConditionFinalizersReleased, Status: status, Reason: reason, Message: message})
	}
	if failure != "" && failure != r.failure {
		r.recorder.Warning(d.Reference(), eventrecorder.ReasonReleaseError, message)
	}
	r.failure = failure
	if changed {
		r.progressed()
	}
}
