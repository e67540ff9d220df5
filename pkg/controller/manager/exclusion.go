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
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// exclusionRetry is the time after which a status that could not be written is tried again.
const exclusionRetry = 5 * time.Second

// exclusions writes into the status of controller objects that the target label selector does not select that they do not run
// here: once for each object and set of labels, and again when it is edited and no server runs it, so that two servers over one store
// that select different objects do not write against each other. The one that runs the controller publishes its status again. It is safe for concurrent use.
type exclusions struct {
	selector string
	apply    func(ctx context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) error
	wake     chan struct{}

	mu       sync.Mutex
	excluded map[identity]*exclusion
}

// exclusion is an object that is not selected.
type exclusion struct {
	latest reconciler.Definition
	// ended is closed when the controller has ended, nil if it did not run.
	ended <-chan struct{}
	// written is the state of the object for which the status was written, nil for none.
	written *metav1.ObjectMeta
}

// done reports whether the status was written for the object and its labels, and shows its generation, unless another server runs it.
func (x *exclusion) done() bool {
	if x.written == nil || x.written.UID != x.latest.Meta.UID || !maps.Equal(x.written.Labels, x.latest.Meta.Labels) {
		return false
	}
	ready := meta.FindStatusCondition(x.latest.Status.Conditions, v1alpha1.ConditionReady)
	return x.written.Generation == x.latest.Meta.Generation || ready != nil && ready.Reason != v1alpha1.ReasonNotSelected
}

func newExclusions(selector string, o objects) *exclusions {
	return &exclusions{selector: selector, apply: o.applyStatus, wake: make(chan struct{}, 1), excluded: map[identity]*exclusion{}}
}

// put takes note of the latest state of an object that is not selected. Its status is written when ended, if it is not nil, is
// closed.
func (e *exclusions) put(d reconciler.Definition, ended <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.excluded[identityOf(d)]
	if !ok {
		x = &exclusion{}
		e.excluded[identityOf(d)] = x
	}
	x.latest, x.ended = d, ended
	if !x.done() {
		poke(e.wake)
	}
}

// forget drops an object that is selected or gone.
func (e *exclusions) forget(id identity) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.excluded, id)
}

// run writes until ctx ends.
func (e *exclusions) run(ctx context.Context) {
	for ctx.Err() == nil {
		var retry <-chan time.Time
		for _, id := range e.pending() {
			err := recovery.Call(ctx, "writing that a controller is not selected", func() error { return e.write(ctx, id) })
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				klog.FromContext(ctx).Error(err, "Status does not say that the controller is not selected; trying again", "after", exclusionRetry)
				retry = time.After(exclusionRetry)
			}
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-retry:
		}
	}
}

func (e *exclusions) pending() []identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []identity
	for id, x := range e.excluded {
		if !x.done() {
			list = append(list, id)
		}
	}
	return list
}

// write writes the status of one object. A conflict says that the object changed; the change leads to another attempt.
func (e *exclusions) write(ctx context.Context, id identity) error {
	e.mu.Lock()
	x, ok := e.excluded[id]
	if !ok || x.done() {
		e.mu.Unlock()
		return nil
	}
	d, ended := x.latest, x.ended
	e.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	status := OwnStatus(d.Status)
	status.Counters, status.Hooks, status.LastErrors = nil, nil, nil
	changed := false
	for _, c := range append(conditionsNotRunning(v1alpha1.ReasonNotSelected, e.message(d), ""), abandoned(status.Conditions)...) {
		c.ObservedGeneration, c.LastTransitionTime = d.Meta.Generation, metav1.NewTime(time.Now())
		changed = meta.SetStatusCondition(&status.Conditions, c) || changed
	}
	if changed {
		if err := e.apply(ctx, d, d.Meta.ResourceVersion, status); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x.written = d.Meta
	return nil
}

// abandoned returns, for conditions that the controller had when it ran, what they are now.
func abandoned(before []metav1.Condition) (list []metav1.Condition) {
	for _, c := range before {
		switch c.Type {
		case v1alpha1.ConditionResourcesServed:
			list = append(list, conditionNotServing())
		case v1alpha1.ConditionDeletionsHeld, v1alpha1.ConditionFinalizersReleased, v1alpha1.ConditionPaused:
			list = append(list, metav1.Condition{
				Type: c.Type, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotRunning, Message: "The server does not run the controller.",
			})
		}
	}
	return list
}

func (e *exclusions) message(d reconciler.Definition) string {
	text := fmt.Sprintf("The labels of this object do not match --target-label-selector=%s of the server, which does not run the "+
		"controller. Change the labels or the flag.", e.selector)
	if len(d.Status.FinalizedResources) > 0 || slices.Contains(d.Meta.Finalizers, HoldFinalizer) {
		text += " Until a server runs it, parents keep the controller's finalizer, and this object cannot be deleted."
	}
	return text
}
