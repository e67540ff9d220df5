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
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/composite"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/decorator"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// firstDelay and maxDelay are the delays between attempts to build an instance, and to release an object.
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
)

// Recorder records events on the controller object.
type Recorder interface {
	// Warning records what went wrong.
	Warning(subject *corev1.ObjectReference, reason, message string)
	// WarningOfParent records what went wrong with a parent of a controller object, on that if it cannot be recorded on the parent.
	WarningOfParent(subject, object *corev1.ObjectReference, reason, message string)
	// Lifecycle records what happened.
	Lifecycle(subject *corev1.ObjectReference, reason, message string)
}

// supervisorConfig is what a supervisor needs. All fields are required.
type supervisorConfig struct {
	// Builder builds the instances.
	Builder Builder
	// Recorder records events on the controller object.
	Recorder Recorder
	// Objects writes the controller object.
	Objects Objects
	// Finalized returns the objects of a resource that carry the controller's finalizer now, not what a cache shows: none if the cluster
	// serves no version of the resource. The definition says which finalizer, and who releases.
	Finalized func(ctx context.Context, resource schema.GroupResource, d reconciler.Definition) ([]FinalizedParent, error)
	// Changes calls a function whenever the kinds that the cluster serves may have changed, until cancel is called.
	Changes func(changed func()) (cancel func())
}

// Objects writes controller objects. Each write is for the object with the UID of the definition; a conflict says that there
// is another one, or a newer version where that counts.
type Objects interface {
	// PublishStatus makes status the status of the object if that is in a version still, in any if it is empty. It reports whether the API
	// server kept it: a definition of the kind prunes what it does not know.
	PublishStatus(ctx context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) (kept bool, err error)
	// SetFinalizers replaces the finalizers of the object if it is still in the version of d.
	SetFinalizers(ctx context.Context, d reconciler.Definition, finalizers []string) error
}

// Supervisor runs the controller of one object. Redefine may be called at any time, from any goroutine.
type Supervisor struct {
	config   supervisorConfig
	report   *report
	releaser *releaser
	wake     chan struct{}
	// rediscovered says that the kinds served may have changed since the last attempt to build.
	rediscovered atomic.Bool
	definition   atomic.Pointer[reconciler.Definition]
	instance     atomic.Pointer[Instance] // nil while none runs
}

// newSupervisor returns a supervisor for the object of d. It starts nothing before Run.
func newSupervisor(c supervisorConfig, d reconciler.Definition) *Supervisor {
	s := &Supervisor{config: c, report: newReport(c.Objects, d), wake: make(chan struct{}, 1)}
	s.definition.Store(&d)
	s.releaser = newReleaser(c, s.report, s.latest, s.poke)
	return s
}

// Redefine gives the supervisor the latest state of its object, which has the same UID.
func (s *Supervisor) Redefine(d reconciler.Definition) {
	s.definition.Store(&d)
	s.report.observe(d)
	s.releaser.redefined()
	s.poke()
}

// Instance returns the instance that runs, nil if none does.
func (s *Supervisor) Instance() Instance {
	if running := s.instance.Load(); running != nil {
		return *running
	}
	return nil
}

func (s *Supervisor) poke() { poke(s.wake) }

// pause waits until wake has an element, which it reports, some time has passed, or ctx ends. Of no time it waits for the others.
func pause(ctx context.Context, wake <-chan struct{}, after time.Duration) (woken bool) {
	var due <-chan time.Time
	if after > 0 {
		due = time.After(after)
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-wake:
		return true
	}
	return false
}

// poke lets the receiver of wake, a channel with one place, look again.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (s *Supervisor) latest() reconciler.Definition { return *s.definition.Load() }

// Run keeps the controller running until ctx ends, and returns when everything that it started has ended.
func (s *Supervisor) Run(ctx context.Context) {
	d := s.latest()
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("controller", d.Meta.Name, "controllerKind", d.Kind))
	var background sync.WaitGroup
	defer background.Wait()
	defer metrics.ExposeConditions(d.Kind, d.Meta.Name, s.report.conditions)()
	background.Go(func() { s.report.run(ctx) })
	background.Go(func() { s.releaser.run(ctx) })
	defer s.config.Changes(func() {
		s.rediscovered.Store(true)
		s.releaser.retry()
		s.poke()
	})()

	delays, former := newDelays(), ""
	for ctx.Err() == nil {
		d, begin := s.latest(), time.Now()
		s.rediscovered.Store(false)
		err := recovery.Call(ctx, "supervising the controller", func() error { return s.supervise(ctx, d) })
		// How long the cluster has not served a kind, for one, says nothing of how long a conflict lasts.
		reason := reasonOf(err)
		if reason != former || time.Since(begin) > maxDelay {
			delays = newDelays()
		}
		if former = reason; err != nil {
			s.failed(ctx, d, err, reason)
			s.sleep(ctx, d, err, delays.Step())
		}
	}
}

// reasonConflict is the reason of an error that says that there is a newer definition, which is on its way.
const reasonConflict = "Conflict"

// reasonOf is why a controller does not run after an error, empty if there is none.
func reasonOf(err error) string {
	_, missing := errors.AsType[*discovery.NotFoundError](err)
	_, invalid := errors.AsType[*reconciler.InvalidError](err)
	_, panicked := errors.AsType[*recovery.PanicError](err)
	switch {
	case err == nil:
		return ""
	case missing:
		return v1alpha1.ReasonResourceNotFound
	case invalid:
		return v1alpha1.ReasonInvalidDefinition
	case apierrors.IsConflict(err):
		return reasonConflict
	case panicked || errors.Is(err, errEnded):
		return v1alpha1.ReasonInternalError
	}
	return v1alpha1.ReasonStarting
}

// newDelays paces attempts to build.
func newDelays() wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Factor: 2, Jitter: 0.1, Steps: 10, Cap: maxDelay}
}

// sleep waits until it is time for another attempt after err. What the supervisor itself writes does not end the wait.
func (s *Supervisor) sleep(ctx context.Context, d reconciler.Definition, err error, delay time.Duration) {
	for end := time.Now().Add(delay); pause(ctx, s.wake, max(time.Until(end), 1)); {
		latest := s.latest()
		if s.rediscovered.Load() || !latest.SameSpec(d) || latest.Meta.Generation != d.Meta.Generation || latest.Meta.DeletionTimestamp != nil && d.Meta.DeletionTimestamp == nil ||
			apierrors.IsConflict(err) && latest.Meta.ResourceVersion != d.Meta.ResourceVersion {
			return
		}
	}
}

// supervise does for the object in the state d what is to be done until d is superseded.
func (s *Supervisor) supervise(ctx context.Context, d reconciler.Definition) error {
	if d.Meta.DeletionTimestamp != nil {
		return s.terminate(ctx, d)
	}
	defer s.releaser.claim(nil)
	if err := s.prepare(ctx, d); err != nil {
		return err
	}
	var instance Instance
	var fingerprint []string
	err := recovery.Call(ctx, "building the controller", func() (err error) {
		instance, fingerprint, err = s.config.Builder.Build(ctx, s.report.withRecord(d))
		return err
	})
	if err != nil {
		return err
	}
	return s.run(ctx, d, fingerprint, instance)
}

// terminate lets the object of a controller that is being deleted go once its finalizer is off all parents, which is the
// releaser's work.
func (s *Supervisor) terminate(ctx context.Context, d reconciler.Definition) error {
	if err := s.hold(ctx, d); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	message, releasing := "The controller is being deleted.", ""
	if len(s.report.recorded()) > 0 {
		releasing = s.releaser.progress()
	}
	s.report.notRunning(d, v1alpha1.ReasonTerminating, strings.TrimSpace(message+" "+releasing), releasing)
	pause(ctx, s.wake, 0)
	return nil
}

// failed publishes why no instance runs.
func (s *Supervisor) failed(ctx context.Context, d reconciler.Definition, err error, reason string) {
	if ctx.Err() != nil || reason == reasonConflict || apierrors.IsNotFound(err) {
		return // There is a newer definition, or the object is gone.
	}
	message, releasing := err.Error(), ""
	if d.Meta.DeletionTimestamp != nil {
		reason = v1alpha1.ReasonTerminating
	}
	switch reason {
	case v1alpha1.ReasonResourceNotFound:
		message += ". The controller starts by itself when the cluster serves the resource. Install it, or change spec."
		s.report.set(d, condition(v1alpha1.ConditionResourcesServed, metav1.ConditionFalse, reason, message))
	case v1alpha1.ReasonInvalidDefinition:
		s.report.set(d, conditionNotServing())
	case v1alpha1.ReasonInternalError:
		message += "; the server tries again, at first after a second and at least every 5 minutes; a change of spec makes it try at once"
	}
	if s.report.shows(v1alpha1.ConditionFinalizersReleased) == metav1.ConditionFalse {
		releasing = s.releaser.progress()
	}
	if s.report.notRunning(d, reason, message, releasing) {
		klog.FromContext(ctx).Error(err, "Controller does not run")
		s.config.Recorder.Warning(d.Reference(), events.ReasonCreateError, "Cannot create new controller: "+message)
	}
}

// An Instance is a controller built from one definition. All methods may be called while Run runs, and before.
type Instance interface {
	// Run reconciles until ctx ends, and returns when everything that it started has ended. The cause is [reconciler.ErrReplaced] if
	// another instance may follow.
	Run(ctx context.Context)
	// Started is closed when the caches are filled and parents are being reconciled.
	Started() <-chan struct{}
	// Activity has an element after something happened that the following methods may show, but for what only time changes.
	Activity() <-chan struct{}
	// Health returns how the instance is doing. Releasing and SyncsFailing are not set.
	Health() reconciler.State
	// Redefine gives the instance a definition for which SameSpec holds: other metadata, or other brakes, which it takes up whatever the error.
	Redefine(ctx context.Context, d reconciler.Definition) error
	// Counters returns what the instance did so far.
	Counters() *v1alpha1.ControllerCounters
	// Hooks returns how the calls of its hooks have gone.
	Hooks() []v1alpha1.HookStatus
	// LastErrors returns the errors of parents whose last sync failed, the latest first.
	LastErrors() []v1alpha1.ParentError
}

// A Builder builds instances.
type Builder interface {
	// Build resolves everything that the definition names; the instance is not running yet. The status of d says for which
	// resources finalizers are recorded. The fingerprint is that of what the instance was built with, whatever the cluster has
	// begun or ceased to serve meanwhile. A *discovery.NotFoundError says that the definition needs a resource that is not
	// served, a *reconciler.InvalidError that it cannot run before it is changed.
	Build(ctx context.Context, d reconciler.Definition) (instance Instance, fingerprint []string, err error)
	// Fingerprint returns what Build would learn from the cluster about each resource that the definition names, parents first. A
	// text changes when the resource appears, disappears or gets another scope; it is empty if the cluster does not say now.
	Fingerprint(ctx context.Context, d reconciler.Definition) []string
}

// changed reports whether the cluster says something else about a resource than before. What it does not say now stays as
// it was.
func changed(before, now []string) bool {
	for i, text := range now {
		if text != "" && (i >= len(before) || text != before[i]) {
			return true
		}
	}
	return false
}

// failingAfter is how long the last syncs of all parents must have failed before the controller counts as not ready: two intervals,
// less what the third check may come early.
const failingAfter = 2*checkInterval - 100*time.Millisecond

// errEnded says that an instance ended before its context did.
var errEnded = errors.New("the controller ended by itself")

// run runs an instance until its spec changes, the resources that it depends on change, or ctx ends. The error says that it
// ended by itself.
func (s *Supervisor) run(ctx context.Context, d reconciler.Definition, fingerprint []string, instance Instance) error {
	logger, name := klog.FromContext(ctx), d.Meta.Name
	s.config.Recorder.Lifecycle(d.Reference(), events.ReasonStarting, "Starting controller: "+name)
	s.report.starting(d, instance.Health())
	running, stop := context.WithCancelCause(ctx)
	var instances sync.WaitGroup
	ended := make(chan error, 1)
	instances.Go(func() {
		ended <- recovery.Call(running, "running the controller", func() error {
			instance.Run(running)
			return errEnded
		})
	})
	defer func() {
		s.instance.Store(nil)
		s.config.Recorder.Lifecycle(d.Reference(), events.ReasonStopping, "Stopping controller: "+name)
		stop(reconciler.ErrReplaced)
		instances.Wait()
		logger.V(2).Info("Controller stopped", "generation", d.Meta.Generation)
		s.config.Recorder.Lifecycle(d.Reference(), events.ReasonStopped, "Stopped controller: "+name)
	}()

	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	started, active := instance.Started(), time.Now()
	var failing, checked time.Time
	check := func() { failing, checked = s.check(ctx, d, instance, failing), time.Now() }
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-started:
			started = nil
			logger.V(2).Info("Controller runs", "generation", d.Meta.Generation)
			s.config.Recorder.Lifecycle(d.Reference(), events.ReasonStarted, "Started controller: "+name)
			s.instance.Store(&instance)
			check()
			active = time.Now()
		case <-instance.Activity():
			active = time.Now()
		case <-ticker.C:
			if started != nil || time.Since(active) < activeTime || time.Since(checked) >= idleInterval {
				check()
			}
		case <-s.wake:
			active = time.Now()
			latest, fits := s.reconsider(ctx, d, fingerprint, instance)
			if !fits {
				return nil
			}
			changed := !latest.SameToHooks(d)
			if d = latest; changed {
				check()
			}
		}
	}
}

// reconsider decides whether the running instance still fits the latest definition, which it returns.
func (s *Supervisor) reconsider(
	ctx context.Context, d reconciler.Definition, fingerprint []string, instance Instance,
) (latest reconciler.Definition, fits bool) {
	latest = s.latest()
	if latest.Meta.DeletionTimestamp != nil || !latest.SameSpec(d) {
		return latest, false
	}
	// The brakes act at once: to ask the cluster what it serves may take long.
	if !latest.SameToHooks(d) {
		if err := instance.Redefine(ctx, latest); err != nil {
			klog.FromContext(ctx).Error(err, "Hooks still see the former metadata of the controller")
		}
	}
	switch {
	case latest.Paused && !d.Paused:
		s.config.Recorder.Lifecycle(d.Reference(), events.ReasonPaused, "Paused controller: "+d.Meta.Name)
	case !latest.Paused && d.Paused:
		s.config.Recorder.Lifecycle(d.Reference(), events.ReasonResumed, "Resumed controller: "+d.Meta.Name)
	}
	return latest, !changed(fingerprint, s.config.Builder.Fingerprint(ctx, latest))
}

// check publishes how the instance is doing, and does what could not be done before. It takes and returns since when the last syncs of all
// parents have failed, zero if they have not.
func (s *Supervisor) check(ctx context.Context, d reconciler.Definition, instance Instance, failing time.Time) (failingSince time.Time) {
	health := instance.Health()
	switch now := time.Now(); {
	case !health.AllFailing():
		failing = time.Time{}
	case failing.IsZero():
		failing = now
	default:
		health.SyncsFailing = now.Sub(failing) >= failingAfter
	}
	if s.report.shows(v1alpha1.ConditionFinalizersReleased) == metav1.ConditionFalse {
		health.Releasing = s.releaser.progress()
	}
	if s.releaser.busy() {
		health.UnderWay++
	}
	_ = recovery.Call(ctx, "reading the numbers of the controller", func() error { // The former ones stay.
		s.report.count(instance.Counters(), instance.Hooks(), instance.LastErrors())
		return nil
	})
	if s.report.set(d, s.report.running(state{&health})...) && health.Problem != nil {
		s.config.Recorder.Warning(d.Reference(), events.ReasonSyncError, "Cannot watch: "+health.Problem.Error())
	}
	if err := s.hold(ctx, s.latest()); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Finalizer of the controller object is not written yet", "err", err)
	}
	return failing
}

const (
	// checkInterval is how often the health of an instance is read that is starting or did something within activeTime, and how long after it did
	// something at the latest. activeTime is longer than it takes until a failure that lasts counts as one.
	checkInterval, activeTime = 500 * time.Millisecond, 3 * time.Second
	// idleInterval is how often it is read otherwise: some of it changes with time alone.
	idleInterval = 5 * time.Second
)

// builder implements Builder for both kinds.
type builder struct{ shared *reconciler.Shared }

// Build implements Builder.
func (b builder) Build(ctx context.Context, d reconciler.Definition) (Instance, []string, error) {
	c, err := b.build(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	fingerprint := c.Fingerprint()
	return c, fingerprint, nil
}

func (b builder) build(ctx context.Context, d reconciler.Definition) (*reconciler.Controller, error) {
	shared, err := b.shared.For(d)
	if err != nil {
		return nil, err
	}
	if d.Kind == v1alpha1.KindDecorator {
		return decorator.New(ctx, shared, d)
	}
	return composite.New(ctx, shared, d)
}

// Fingerprint implements Builder.
func (b builder) Fingerprint(ctx context.Context, d reconciler.Definition) []string {
	r := reconciler.Resolver{Shared: b.shared}
	for _, rule := range slices.Concat(d.Parents, d.Children) {
		_, _, _ = r.Find(ctx, rule) // What the cluster does not say has no text.
	}
	return r.Fingerprint
}

// fieldManager owns the status of controller objects.
const fieldManager = "metacontroller-apiserver"

// objects writes controller objects. It implements Objects.
type objects struct {
	client typedv1alpha1.MetacontrollerV1alpha1Interface
	// pruned is done when a status was not kept, so that one line in the log says it of all.
	pruned *sync.Once
}

// PublishStatus implements Objects by server-side apply, which needs no read before and writes nothing when
// nothing changed.
func (o objects) PublishStatus(ctx context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) (kept bool, err error) {
	metadata := map[string]any{}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	stored, err := o.patch(ctx, d, types.ApplyPatchType, metadata, status, metav1.PatchOptions{Force: new(true)}, "status")
	if err != nil {
		return false, err
	}
	// Definitions prune all of it. What another client changed meanwhile is no matter.
	if kept = len(stored.Conditions) > 0 || len(status.Conditions) == 0; !kept {
		o.pruned.Do(func() {
			klog.FromContext(ctx).Info("The cluster's definitions of metacontroller.k8s.io prune the status of controllers: events, metrics and this "+
				"log say what it would, and it is kept once the definitions are those of this program", "controller", d.Meta.Name, "controllerKind", d.Kind)
		})
	}
	return kept, nil
}

// SetFinalizers implements Objects.
func (o objects) SetFinalizers(ctx context.Context, d reconciler.Definition, finalizers []string) error {
	metadata := map[string]any{"resourceVersion": d.Meta.ResourceVersion, "finalizers": append([]string{}, finalizers...)}
	_, err := o.patch(ctx, d, types.MergePatchType, metadata, nil, metav1.PatchOptions{})
	return err
}

// patch writes metadata of a controller object, and its status unless that is nil. It returns the status that the object has then.
func (o objects) patch(
	ctx context.Context, d reconciler.Definition, patchType types.PatchType, metadata map[string]any, status *v1alpha1.ControllerStatus,
	options metav1.PatchOptions, subresources ...string,
) (stored *v1alpha1.ControllerStatus, err error) {
	metadata["name"], metadata["uid"] = d.Meta.Name, d.Meta.UID
	parts := map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": d.Kind, "metadata": metadata}
	if status != nil {
		parts["status"] = status
	}
	body, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", d.Kind, d.Meta.Name, err)
	}
	options.FieldManager = fieldManager
	if d.Kind == v1alpha1.KindDecorator {
		var written *v1alpha1.DecoratorController
		if written, err = o.client.DecoratorControllers().Patch(ctx, d.Meta.Name, patchType, body, options, subresources...); err == nil {
			return &written.Status.ControllerStatus, nil
		}
	} else {
		var written *v1alpha1.CompositeController
		if written, err = o.client.CompositeControllers().Patch(ctx, d.Meta.Name, patchType, body, options, subresources...); err == nil {
			return &written.Status.ControllerStatus, nil
		}
	}
	return nil, fmt.Errorf("writing %s %s: %w", d.Kind, d.Meta.Name, err)
}
