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
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// identity names a controller object.
type identity struct {
	kind, name string
}

func identityOf(d reconciler.Definition) identity { return identity{kind: d.Kind, name: d.Meta.Name} }

// runner is what runs for one controller object.
type runner interface {
	// Run runs until ctx ends, and returns when everything that it started has ended.
	Run(ctx context.Context)
	// Redefine gives it the latest state of its object, which has the same UID. It may be called at any time, from any goroutine.
	Redefine(d reconciler.Definition)
}

// controllers runs something for each controller object that is put. It is safe for concurrent use.
type controllers struct {
	start func(reconciler.Definition) runner

	mu sync.Mutex
	// all are those that have not ended.
	all     map[identity]*controller
	running sync.WaitGroup
	// closed says that nothing is put any more.
	closed bool
	// ended, if not nil, is called when what runs for an object has ended, and before another one begins.
	ended func(id identity, uid types.UID)
}

type controller struct {
	runner

	uid     types.UID
	stop    context.CancelCauseFunc
	stopped bool
	ended   chan struct{}
}

func newControllers(start func(reconciler.Definition) runner) *controllers {
	return &controllers{start: start, all: map[identity]*controller{}}
}

// put starts a runner for d until ctx ends, or gives d to the one that runs. One for another object of that name
// ends first. After wait was called it does nothing.
func (c *controllers) put(ctx context.Context, d reconciler.Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	id := identityOf(d)
	former, ok := c.all[id]
	if ok && !former.stopped && former.uid == d.Meta.UID {
		former.Redefine(d)
		return
	}
	if ok {
		former.end()
	}
	ctx, stop := context.WithCancelCause(ctx)
	started := &controller{runner: c.start(d), uid: d.Meta.UID, stop: stop, ended: make(chan struct{})}
	c.all[id] = started
	c.running.Go(func() {
		defer c.drop(id, started)
		defer stop(nil)
		if ok {
			<-former.ended
		}
		_ = recovery.Call(ctx, "supervising a controller", func() error { // It logs a panic.
			started.Run(ctx)
			return nil
		})
	})
}

// wait returns when nothing runs any more. The context of put has ended; informers may still call put.
func (c *controllers) wait() {
	c.mu.Lock()
	c.closed = true // Every put before has counted its runner.
	c.mu.Unlock()
	c.running.Wait()
}

// runner returns what runs for the object with a UID, nil if nothing does.
func (c *controllers) runner(id identity, uid types.UID) runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if running, ok := c.all[id]; ok && !running.stopped && running.uid == uid {
		return running.runner
	}
	return nil
}

// remove stops what runs for an object.
func (c *controllers) remove(id identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stopped, ok := c.all[id]; ok {
		stopped.end()
	}
}

// await waits until nothing that was removed runs for an object any more. It reports whether that is before ctx ends.
func (c *controllers) await(ctx context.Context, id identity) bool {
	c.mu.Lock()
	ending, ok := c.all[id]
	c.mu.Unlock()
	if !ok {
		return true
	}
	select {
	case <-ending.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// end is called with the lock held.
func (c *controller) end() {
	c.stopped = true
	c.stop(reconciler.ErrReplaced)
}

// drop is called when a runner has ended.
func (c *controllers) drop(id identity, ended *controller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[id] == ended {
		delete(c.all, id)
	}
	if c.ended != nil {
		c.ended(id, ended.uid)
	}
	close(ended.ended)
}

var _ inspection.Engine = &Manager{}

// Controller implements inspection.Engine.
func (m *Manager) Controller(kind, name string, uid types.UID) (inspection.Controller, error) {
	if s, ok := m.controllers.runner(identity{kind: kind, name: name}, uid).(*Supervisor); ok {
		if c, ok := s.Instance().(inspection.Controller); ok {
			return c, nil
		}
	}
	return nil, errors.New("the controller does not run here at present; its condition Ready says why, and kubectl describe shows it")
}

// Candidate implements inspection.Engine.
func (m *Manager) Candidate(ctx context.Context, object runtime.Object) (inspection.Controller, func(), error) {
	d, ok := definitionOf(object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no controller", object)
	}
	candidate, err := m.candidate(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	shut, err := candidate.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return candidate, shut, nil
}

// candidate builds a controller that does not run.
func (m *Manager) candidate(ctx context.Context, d reconciler.Definition) (*reconciler.Controller, error) {
	shared := *m.shared
	shared.Expectations, shared.History = nil, nil // It writes nothing, and must not be taken for the controller that runs.
	return builder{&shared}.build(ctx, d)
}

// exclusionRetry is the time after which a status that could not be written is tried again.
const exclusionRetry = 5 * time.Second

// exclusion writes into the status of a controller object that the target label selector does not select that it does not run
// here: once for each set of labels, and again when it is edited and no server runs it, so that two servers over one store
// that select different objects do not write against each other. The one that runs the controller publishes its status again.
type exclusion struct {
	*excluder

	latest atomic.Pointer[reconciler.Definition]
	wake   chan struct{}
	// written is the state of the object for which the status was written, nil for none.
	written *metav1.ObjectMeta
}

// excluder is what all exclusions of a server have in common.
type excluder struct {
	selector string
	publish  func(ctx context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) (kept bool, err error)
	// await waits until a controller that ran has ended.
	await func(ctx context.Context, id identity) bool
	// writing is full while a status is written: there may be many.
	writing chan struct{}
}

// start returns the exclusion of an object.
func (e *excluder) start(d reconciler.Definition) runner {
	x := &exclusion{excluder: e, wake: make(chan struct{}, 1)}
	x.latest.Store(&d)
	return x
}

// Redefine implements runner.
func (x *exclusion) Redefine(d reconciler.Definition) {
	x.latest.Store(&d)
	poke(x.wake)
}

// Run implements runner.
func (x *exclusion) Run(ctx context.Context) {
	for ctx.Err() == nil {
		var retry time.Duration
		err := recovery.Call(ctx, "writing that a controller is not selected", func() error { return x.write(ctx, *x.latest.Load()) })
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Status does not say that the controller is not selected; trying again", "after", exclusionRetry)
			retry = exclusionRetry
		}
		pause(ctx, x.wake, retry)
	}
}

// done reports whether the status was written for the labels of the object, and shows its generation, unless another server runs it.
func (x *exclusion) done(d reconciler.Definition) bool {
	if x.written == nil || !maps.Equal(x.written.Labels, d.Meta.Labels) {
		return false
	}
	ready := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady)
	return x.written.Generation == d.Meta.Generation || ready != nil && ready.Reason != v1alpha1.ReasonNotSelected
}

// write writes the status of the object. A conflict says that the object changed; the change leads to another attempt.
func (x *exclusion) write(ctx context.Context, d reconciler.Definition) error {
	if x.done(d) || !x.await(ctx, identityOf(d)) {
		return nil
	}
	select {
	case x.writing <- struct{}{}:
		defer func() { <-x.writing }()
	case <-ctx.Done():
		return nil
	}
	status := OwnStatus(d.Status)
	status.Counters, status.Hooks, status.LastErrors = nil, nil, nil
	conditions := append(conditionsNotRunning(v1alpha1.ReasonNotSelected, x.message(d), ""), abandoned(status.Conditions)...)
	if changed, _ := merge(status, d, conditions); changed {
		if _, err := x.publish(ctx, d, d.Meta.ResourceVersion, status); err != nil {
			return err
		}
	}
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
			list = append(list, condition(c.Type, metav1.ConditionUnknown, v1alpha1.ReasonNotRunning, "The server does not run the controller."))
		}
	}
	return list
}

func (e *excluder) message(d reconciler.Definition) string {
	text := fmt.Sprintf("The labels of this object do not match --target-label-selector=%s of the server, which does not run the "+
		"controller. Change the labels or the flag.", e.selector)
	if len(d.Status.FinalizedResources) > 0 || slices.Contains(d.Meta.Finalizers, v1alpha1.FinalizerParents) {
		text += " Until a server runs it, parents keep the controller's finalizer, and this object cannot be deleted."
	}
	return text
}

const (
	// handover is how long the informers of a standby are held after the election: by then the controllers hold them, or wait for
	// something that they cannot wait shorter for.
	handover = time.Minute
	// standbyRetry is the time after which informers that could not be opened are tried again.
	standbyRetry = 5 * time.Second
)

// wait keeps the caches filled until this process is elected or ctx ends, and for the handover after that, until stop is called.
func (m *Manager) wait(ctx context.Context, informers []cache.SharedIndexInformer) (stop func(), err error) {
	select {
	case <-m.elected:
		return func() {}, nil
	default:
	}
	if m.elected == nil {
		return func() {}, nil
	}
	standing, end := context.WithCancel(ctx)
	put := func(d reconciler.Definition) {
		if m.selector.Matches(labels.Set(d.Meta.Labels)) {
			m.standby.put(standing, d)
		} else {
			m.standby.remove(identityOf(d))
		}
	}
	for _, informer := range informers {
		handler := m.handler(standing, put, func(d reconciler.Definition) { m.standby.remove(identityOf(d)) })
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			end()
			return m.standby.wait, fmt.Errorf("watching controller objects: %w", err)
		}
		context.AfterFunc(standing, func() { _ = informer.RemoveEventHandler(registered) }) // Its informer may have ended.
	}
	m.informers.StartWithContext(ctx)
	klog.FromContext(ctx).Info("Controller manager fills its caches, and waits for the election")
	select {
	case <-m.elected:
	case <-ctx.Done():
	}
	over := time.AfterFunc(handover, end)
	return func() {
		over.Stop()
		end()
		m.standby.wait()
	}, nil
}

// open opens the informers of a controller. They are those of the server, whatever the controller's service account may see.
func (m *Manager) open(ctx context.Context, d reconciler.Definition) (shut func(), err error) {
	d.Account = nil
	candidate, err := m.candidate(ctx, d)
	if err != nil {
		return nil, err
	}
	return candidate.Hold(ctx), nil
}

// standing holds the informers of a controller that does not run here, so that they are filled when it does.
type standing struct {
	// open opens the informers of a controller, until shut is called.
	open func(ctx context.Context, d reconciler.Definition) (shut func(), err error)
	// changes calls a function whenever the kinds that the cluster serves may have changed, until cancel is called.
	changes func(changed func()) (cancel func())

	latest atomic.Pointer[reconciler.Definition]
	wake   chan struct{}
}

// newStandby returns what holds the informers of controllers that do not run here.
func newStandby(open func(context.Context, reconciler.Definition) (func(), error), changes func(func()) func()) *controllers {
	return newControllers(func(d reconciler.Definition) runner {
		s := &standing{open: open, changes: changes, wake: make(chan struct{}, 1)}
		s.latest.Store(&d)
		return s
	})
}

// Redefine implements runner.
func (s *standing) Redefine(d reconciler.Definition) {
	if former := s.latest.Swap(&d); !former.SameSpec(d) {
		poke(s.wake)
	}
}

// Run implements runner. It opens the informers anew when the spec changes or other kinds are served. Those that are needed still stay open.
func (s *standing) Run(ctx context.Context) {
	defer s.changes(func() { poke(s.wake) })()
	shut := func() {}
	defer func() { shut() }() //nolint:gocritic // It is another function by then.
	for ctx.Err() == nil {
		d := *s.latest.Load()
		logger := klog.FromContext(ctx).WithValues("controller", d.Meta.Name, "controllerKind", d.Kind)
		var next func()
		err := recovery.Call(ctx, "filling the caches of a controller", func() (err error) {
			next, err = s.open(klog.NewContext(ctx, logger), d)
			return err
		})
		var retry time.Duration
		if err == nil {
			shut() // Only now.
			shut = next
		} else {
			logger.V(2).Info("The caches of a controller are not filled yet", "err", err)
			retry = standbyRetry
		}
		pause(ctx, s.wake, retry)
	}
}
