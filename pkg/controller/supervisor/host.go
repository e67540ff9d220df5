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

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
)

// Recorder records events on the controller object.
type Recorder interface {
	// Warning records what went wrong.
	Warning(subject *corev1.ObjectReference, reason, message string)
	// Lifecycle records what happened.
	Lifecycle(subject *corev1.ObjectReference, reason, message string)
}

// Config is what a host needs. All fields but Clock are required.
type Config struct {
	// Builder builds the instances.
	Builder Builder
	// Recorder records events on the controller object.
	Recorder Recorder
	// Publisher writes the controller object's status.
	Publisher Publisher
	// Keeper keeps the controller object until its parents are released.
	Keeper Keeper
	// Changes calls a function whenever the kinds that the cluster serves may have changed, until cancel is called.
	Changes func(changed func()) (cancel func())
	// Clock is the time source. Default: the real one.
	Clock clock.WithTicker
}

// Host runs the controller of one object. Redefine may be called at any time, from any goroutine.
type Host struct {
	config Config
	report *report

	mu         sync.Mutex
	definition Definition
	wake       chan struct{}
}

// New returns a host for the object of d. Nothing happens before Run.
func New(c Config, d Definition) *Host {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return &Host{config: c, definition: d, report: newReport(c.Publisher, c.Clock, d), wake: make(chan struct{}, 1)}
}

// Redefine gives the host the latest state of the object.
func (h *Host) Redefine(d Definition) {
	h.mu.Lock()
	h.definition = d
	h.mu.Unlock()
	h.poke()
}

func (h *Host) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *Host) latest() Definition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.definition
}

// Run hosts the controller until ctx ends, and returns when the last instance has ended.
func (h *Host) Run(ctx context.Context) {
	d := h.latest()
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("controller", d.Meta().Name, "controllerKind", d.Kind()))
	var publishing sync.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() { h.report.run(ctx) })
	cancel := h.config.Changes(h.poke)
	defer cancel()

	backoff := h.backoff()
	for ctx.Err() == nil {
		d := h.latest()
		if d.Meta().DeletionTimestamp != nil {
			if err := h.depart(ctx, d); err != nil {
				klog.FromContext(ctx).Error(err, "Parents are not released yet")
			}
			h.sleep(ctx, backoff.Step())
			continue
		}
		fingerprint := h.config.Builder.Fingerprint(ctx, d)
		instance, err := h.build(ctx, d)
		if err == nil {
			backoff = h.backoff()
			h.run(ctx, d, fingerprint, instance)
			h.abandon(ctx, d)
			continue
		}
		h.cannotBuild(ctx, d, err)
		h.sleep(ctx, backoff.Step())
	}
}

func (h *Host) build(ctx context.Context, d Definition) (Instance, error) {
	if err := h.hold(ctx, d); err != nil {
		return nil, err
	}
	return h.config.Builder.Build(ctx, d)
}

// abandon releases parents of kinds that the new definition does not name any more.
func (h *Host) abandon(ctx context.Context, former Definition) {
	if ctx.Err() != nil || !former.Finalizes() || slices.Equal(former.Parents(), h.latest().Parents()) {
		return
	}
	if err := h.releaseParents(ctx, former); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Former parents keep the controller's finalizer", "finalizer", former.Finalizer())
	}
}

// backoff paces attempts to build. Changes of the definition or of the kinds served interrupt the wait.
func (h *Host) backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: 5 * time.Minute}
}

func (h *Host) sleep(ctx context.Context, d time.Duration) {
	timer := h.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	case <-h.wake:
	}
}

func (h *Host) cannotBuild(ctx context.Context, d Definition, err error) {
	if ctx.Err() != nil || apierrors.IsConflict(err) {
		// A conflict says that there is a newer definition, which is on its way.
		return
	}
	reason := v1alpha1.ReasonInvalidDefinition
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		reason = v1alpha1.ReasonResourceNotFound
	} else if _, invalid := errors.AsType[*InvalidError](err); !invalid {
		reason = v1alpha1.ReasonStarting
	}
	if h.report.notReady(d, reason, err.Error()) {
		klog.FromContext(ctx).Error(err, "Controller cannot start")
		h.config.Recorder.Warning(d.Reference(), eventrecorder.ReasonCreateError, "Cannot create new controller: "+err.Error())
	}
}

// run runs an instance until its spec changes, the kinds that it depends on change, or ctx ends.
func (h *Host) run(ctx context.Context, d Definition, fingerprint string, instance Instance) {
	logger := klog.FromContext(ctx)
	name := d.Meta().Name
	h.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStarting, "Starting controller: "+name)
	h.report.starting(d, instance)

	running, stop := context.WithCancel(ctx)
	defer stop()
	var ended sync.WaitGroup
	ended.Go(func() { instance.Run(running) })

	problems := h.config.Clock.NewTicker(2 * time.Second)
	defer problems.Stop()
	started := instance.Started()
	for superseded := false; !superseded; {
		select {
		case <-ctx.Done():
			superseded = true
		case <-started:
			started = nil
			logger.V(2).Info("Controller runs", "generation", d.Meta().Generation)
			h.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStarted, "Started controller: "+name)
			h.report.ready(d)
		case <-problems.C():
			h.checkProblem(d, instance, started == nil)
		case <-h.wake:
			d, superseded = h.reconsider(ctx, d, fingerprint, instance)
		}
	}
	h.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStopping, "Stopping controller: "+name)
	stop()
	ended.Wait()
	h.report.stopped()
	logger.V(2).Info("Controller stopped", "generation", d.Meta().Generation)
	h.config.Recorder.Lifecycle(d.Reference(), eventrecorder.ReasonStopped, "Stopped controller: "+name)
}

// reconsider decides whether the running instance still fits. It returns the definition that the instance runs with.
func (h *Host) reconsider(ctx context.Context, d Definition, fingerprint string, instance Instance) (Definition, bool) {
	latest := h.latest()
	if latest.Meta().DeletionTimestamp != nil || !latest.SameSpec(d) || h.config.Builder.Fingerprint(ctx, latest) != fingerprint {
		return d, true
	}
	if err := instance.Redefine(latest); err != nil {
		klog.FromContext(ctx).Error(err, "Hooks go on seeing the former metadata of the controller")
	}
	return latest, false
}

// checkProblem publishes that an instance lost, or never had, sight of its objects.
func (h *Host) checkProblem(d Definition, instance Instance, started bool) {
	problem := instance.Problem()
	switch {
	case problem != nil:
		if h.report.notReady(d, v1alpha1.ReasonStarting, fmt.Sprintf("Cannot watch: %v", problem)) {
			h.config.Recorder.Warning(d.Reference(), eventrecorder.ReasonSyncError, "Cannot watch: "+problem.Error())
		}
	case started:
		h.report.ready(d)
	}
}
