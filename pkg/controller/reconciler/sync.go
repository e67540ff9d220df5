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

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// Sync is one sync of one parent: what its phases share.
type Sync struct {
	// Writer does what the sync decides, or notes it.
	Writer

	// Key names the parent, Source is its kind, Target is where it is written, and Root is how hooks' caches know it.
	Key    parent.Key
	Source *Source
	Target client.Target
	Root   webhook.RootKey
	// Parent is the parent, with the status that is left to the sync; a phase that writes it puts the new state here, and nil if nothing is
	// left to do. Hooks are shown [Sync.ParentShown].
	Parent *object.Object
	// Scope is what decides, besides the declared kinds, whether the children of a response are valid.
	Scope children.Scope
	// Shown are the observed children as the hook is shown them, by rule.
	Shown []wire.Group
	// Observed are the observed children as they are now, each once.
	Observed []*object.Object
	// Related are the related objects.
	Related []wire.Group
	// Decision is what the hook decided.
	Decision Decision

	controller *Controller
	// record is what is remembered of the parent.
	record *record
	// turn is what the sync before left to this one, and what this one leaves to the next.
	turn
	// called is how long the longest call of a hook took.
	called time.Duration
	// stored is the parent as the API server has it.
	stored    *object.Object
	seen      map[children.Key]struct{}
	responses []*hooks.Response
	// gathered is the input of the plan, as far as a rollout needed it.
	gathered plan.Input
	// fingerprint stands for the children of the response; zero for those of a rollout.
	fingerprint plan.Hash
	// claims is what happened to the owners of children.
	claims claims
	// result is what happened to the children.
	result result
	// insistent is the parent as the hook was shown it, once the sync has written over a later state of it; else nil.
	insistent *object.Object
	// deletedChildren says that ReconcileChildren left no child that the Decision does not want.
	deletedChildren bool
	// opened is the parent as it was when the sync began, and wroteParent says that its status, labels or annotations were written.
	opened      *object.Object
	wroteParent bool
	// moved says that the sync is a step of a rolling update.
	moved bool
	// managers are the field managers of the parent, if it has to be known who writes it besides this controller.
	managers managers
	// recording is what is remembered of the sync; the zero value if it is not recorded.
	recording history.Recording
	hooks     *hooks.Set
}

// Decision is what the hook, called once or once for each revision, wants.
type Decision struct {
	// Settled says that nothing is to be done about the children; they are not in Desired then.
	Settled bool
	// Desired are the desired children.
	Desired []children.Desired
	// Unserved are desired children of declared kinds that the cluster does not serve at present.
	Unserved []children.Key
	// Observed are the observed children that the desired ones are compared with. A rollout leaves some out.
	Observed []*object.Object
	// Status is the desired status; nil if there was none.
	Status map[string]any
	// Labels and Annotations are set on the parent; nil values remove.
	Labels, Annotations map[string]*string
	// ResyncAfter is the time after which the parent is to be synced again; zero for never.
	ResyncAfter time.Duration
	// Finalized says that the finalizer is to be taken off, Delete that the parent is to be deleted.
	Finalized, Delete bool
}

// maxPasses is how many syncs of a parent follow each other at once on one worker; then others have their turn.
const maxPasses = 4

// turn is what the syncs of a parent that follow each other at once leave to the next one.
type turn struct {
	// passes are how many there were before.
	passes int
	// unwritten is a status; nil for none.
	unwritten *unwritten
}

// traced is sync within a span.
func (c *Controller) traced(ctx context.Context, key parent.Key, why history.Begun, t turn) (result queue.Result, err error) {
	if c.tracer == nil {
		return c.sync(ctx, key, why, t)
	}
	d := c.config.Definition
	of := tracing.Sync{
		Controller: d.Kind + "-" + d.Meta.Name, Resource: key.Resource().String(), Namespace: key.Namespace, Name: key.Name, Waited: why.Waited,
	}
	for _, t := range why.Triggers.Kept() {
		of.Causes = append(of.Causes, string(t.Reason))
	}
	ctx, span := c.tracer.Sync(ctx, of)
	err = errPanicked // Unless sync returns.
	defer func() { span.End(err) }()
	return c.sync(ctx, key, why, t)
}

// sync reconciles one parent (docs/reference/contract.md#s6, docs/reference/contract.md#s17.3).
func (c *Controller) sync(ctx context.Context, key parent.Key, why history.Begun, t turn) (queue.Result, error) {
	began := time.Now()
	s := c.open(key, t)
	if s == nil {
		return queue.Result{}, nil
	}
	if result, paused, err := s.holdPaused(ctx); paused {
		return result, err
	}
	s.recording = c.history.Begin(key, why)
	uid := s.Parent.UID()
	defer func() {
		c.parents.change(s.record, func(r *record) { r.at, r.took = time.Now().UnixNano(), time.Since(began) })
		if s.recording.Records() {
			c.recorded(s, errPanicked)
		}
		if s.record.gone.Load() {
			c.left(s.record, s.Root) // It left during the sync.
		}
	}()
	if s.record.settling.Contended() {
		s.managers = c.managersOf(ctx, s.Target, client.PatchManager)
	}
	err := recovery.Call(ctx, "syncing", func() error { return s.run(ctx) }) // What was left to a sync that panics is written.
	if err != nil {
		err = errors.Join(err, s.writeLeft(ctx))
	}
	left := c.hasLeft(s, uid)
	var pause time.Duration
	if !left {
		pause = c.settle(ctx, s, err) // What a sync that fails has written may cause the next one, without a back-off.
	}
	var next queue.Sync
	if !left && err == nil {
		if next, why = s.goOn(); next == nil {
			if err = s.writeLeft(ctx); err == nil && s.Parent != nil && s.Source.KeepsSynced {
				err = s.writeSynced(ctx, s.synced())
			}
		}
	}
	c.recorded(s, err)
	if left {
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Sync of a parent that left failed", "parent", key, "err", err)
		}
		return queue.Result{}, nil
	}
	again := queue.Earliest(queue.Earliest(s.Decision.ResyncAfter, s.result.again), s.claims.again)
	if err == nil {
		c.parents.synced(s.record)
		again = queue.Earliest(again, pause)
	}
	return queue.Result{ResyncAfter: again, Next: next, Why: why}, err
}

// mayGoOn reports whether another sync may follow at once, because this one wrote children, all of which the informers show as it left them.
func (s *Sync) mayGoOn() bool {
	c := s.controller
	return s.wroteChildren() && s.passes+1 < maxPasses && !c.paused.Load() && !c.shared.Access.Held() && !c.expectations.Expects(s.Key) &&
		s.record.settling.Waits(time.Now()) == 0
}

// goOn begins the sync that follows at once, and returns it; nil if none does.
func (s *Sync) goOn() (next queue.Sync, why history.Begun) {
	c, left := s.controller, turn{passes: s.passes + 1, unwritten: s.unwritten}
	if s.Parent == nil || !s.mayGoOn() {
		return nil, why
	}
	why, ok := c.queue.GoOn(s.Key)
	if !ok {
		return nil, why
	}
	return func(ctx context.Context, key parent.Key, why history.Begun) (queue.Result, error) {
		return c.traced(ctx, key, why, left)
	}, why
}

func (s *Sync) run(ctx context.Context) error {
	kind := s.controller.config.Kind
	relate := func(ctx context.Context) (err error) {
		s.Related, err = s.relate(ctx)
		return err
	}
	decide := func(ctx context.Context) error {
		// The decision holds nothing of the responses, whose room others wait for.
		defer s.release()
		err := kind.Decide(ctx, s)
		if err == nil {
			s.Remember(s.notice)
		}
		return err
	}
	s.Remember(func() {
		if s.awaitsFinalizing() {
			s.controller.finalizes(s.record)
		} else {
			s.controller.parents.finalized(s.record)
		}
	})
	write := func(ctx context.Context) error { return kind.Write(ctx, s) }
	for _, phase := range []func(context.Context) error{s.ensureFinalizer, s.observe, s.retainFirst, relate, decide, s.retainLast, write} {
		if err := phase(ctx); err != nil || s.Parent == nil {
			return err
		}
	}
	return nil
}

// open returns the sync of a parent; nil if there is nothing to do for it.
func (c *Controller) open(key parent.Key, t turn) *Sync {
	source, ok := c.byResource[key.Resource()]
	if !ok {
		return nil
	}
	o, ok := source.informer.Get(key.Namespace, key.Name)
	if !ok || !c.relevant(source, o) {
		return nil
	}
	s := &Sync{
		Key: key, Source: source, controller: c, record: c.parents.ofSync(key), turn: t, seen: map[children.Key]struct{}{},
		Target: source.target(o), Root: source.root(key), hooks: c.hooks,
	}
	s.Writer = acting{s}
	s.show(o)
	s.opened = s.Parent
	return s
}

// hasLeft reports whether the controller no longer handles the parent that was synced. Its event may be still to come.
func (c *Controller) hasLeft(s *Sync, uid types.UID) bool {
	o, ok := s.Source.informer.Get(s.Key.Namespace, s.Key.Name)
	return !ok || o.UID() != uid || !c.relevant(s.Source, o)
}

// release gives back what the responses of the hook hold.
func (s *Sync) release() {
	for _, r := range s.responses {
		r.Release()
	}
}

// ensureFinalizer puts the finalizer on the parent if it has to be there, and takes it off if the controller does not finalize
// (docs/reference/contract.md#s15).
func (s *Sync) ensureFinalizer(ctx context.Context) error {
	f := s.controller.finalizer
	// Without a finalize hook nothing is to be done for a parent that is not selected any more: it stays the owner of its children.
	f.Enabled = f.Enabled && (s.controller.hooks.Finalize != nil || s.Parent.Deleting() || s.Source.Selected(s.Parent))
	wanted, changes := f.Wanted(s.Parent)
	if !changes {
		return nil
	}
	if err := s.setFinalizers(ctx, wanted); err != nil || s.Parent == nil {
		return err
	}
	if !s.controller.relevant(s.Source, s.Parent) {
		s.Parent = nil
	}
	return nil
}

// knownLimit is how long a write of the finalizer may go on after the context of its sync has ended.
const knownLimit = 20 * time.Second

// untilKnown returns the context of a write of the finalizer, which ends with end. It goes on for a while when ctx ends and the process does
// not: who takes the finalizer off all parents, when the controller has ended, should not miss one on which the API server puts it after
// that. The next instance, or a second look of who takes it off, finds one that is later still.
func (c *Controller) untilKnown(ctx context.Context) (writing context.Context, end func()) {
	writing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		cause := context.Cause(ctx)
		if !errors.Is(cause, context.Canceled) {
			select {
			case <-writing.Done():
			case <-c.shared.ShuttingDown:
			case <-time.After(knownLimit):
			}
		}
		cancel(cause)
	})
	return writing, func() {
		cancel(nil)
		if !stop() {
			<-ended
		}
	}
}

// asks is what the customize hook is asked about.
func (s *Sync) asks() related.Asked {
	return related.Asked{
		Key: s.Key, Root: s.Root, Known: &s.record.related, Parent: s.ParentShown(), Controller: *s.controller.encoded.Load(), Finalizing: s.finalizing(),
	}
}

// Handled reports whether the controller handles the parent still: its event may have come during the sync, after which nothing may be
// remembered of it.
func (s *Sync) Handled() bool { return !s.record.gone.Load() }

// Selector returns the selector by which the parent selects its children, or the reason why it has none.
func (s *Sync) Selector() (labels.Selector, error) {
	selector, err := s.controller.config.Selectors.Of(&s.record.selector, s.Parent)
	if errors.Is(err, related.ErrNoSelector) {
		err = NoSelector(s.controller.origin(s.Source))
	}
	return selector, err
}

// Show shows the hook the observed children of a declared kind, and adds them, as they are now, to Observed. Two rules may name
// one kind in two versions: the hook is shown its children twice, and they are observed once.
func (s *Sync) Show(rule int, shown, now []*object.Object) {
	declared := &s.controller.config.Children[rule]
	s.Shown = append(s.Shown, wire.GroupOf(hook.TypeKey(declared.Kind.GroupVersion().String(), declared.Kind.Kind), shown))
	for _, o := range now {
		key := children.KeyOf(o)
		if _, twice := s.seen[key]; !twice {
			s.seen[key] = struct{}{}
			s.Observed = append(s.Observed, o)
		}
	}
}

// Children calls yield with each declared kind of children that is served, its informer, and its index for Show.
func (s *Sync) Children(yield func(int, *children.Rule, *cache.Informer) error) error {
	for i := range s.controller.config.Children {
		if err := yield(i, &s.controller.config.Children[i], s.controller.watched[i]); err != nil {
			return err
		}
	}
	return nil
}

// Rollout notes whether a rolling update of the parent is under way, how many of its children are not on the latest revision, and how many the
// sync moves to it.
func (s *Sync) Rollout(underWay bool, outdated, moved int) {
	s.moved = moved > 0
	s.Remember(func() {
		s.controller.parents.change(s.record, func(r *record) {
			r.rolling, r.outdated = underWay, int32(min(outdated, 1<<30)) //nolint:gosec // It fits.
		})
	})
}

// Observes reports whether a child is among the observed ones already, under another version of its kind perhaps.
func (s *Sync) Observes(o *object.Object) bool {
	_, ok := s.seen[children.KeyOf(o)]
	return ok
}

// finalizing reports whether the finalize hook is called in place of the sync hook.
func (s *Sync) finalizing() bool {
	return s.hooks.Finalize != nil && (s.Parent.Deleting() || !s.Source.Selected(s.Parent))
}

// callAbout calls the hook about the parent, shown as it is or, with the name of a revision, as it was in that. The response, nil if nothing but the
// request is wanted, is released with the sync.
func (s *Sync) callAbout(ctx context.Context, shown wire.Object, revision string) (*hooks.Response, error) {
	c := s.controller
	x := exchange{called: s.hooks.Sync, revision: revision, decode: wire.DecodeComposite}
	if s.finalizing() {
		x.called = s.hooks.Finalize
	}
	if x.called == nil {
		return nil, fmt.Errorf("sync hook not defined for %s: no enabled hooks found", s.Parent) // docs/reference/contract.md#s17.3
	}
	x.request.Encode, x.request.Request = wire.Composite, wire.Request{
		Version: x.called.Version, Controller: *c.encoded.Load(), Parent: shown,
		Children: s.Shown, Related: s.Related, Finalizing: s.finalizing(),
	}
	if c.config.Definition.Kind == v1alpha1.KindDecorator {
		x.request.Encode, x.decode = wire.Decorator, wire.DecodeDecorator
	}
	response, err := s.call(ctx, x)
	if err != nil {
		return nil, InContext(fmt.Sprintf("sync hook failed for %s", s.Parent), err)
	}
	if response == nil {
		return nil, nil
	}
	s.responses = append(s.responses, response)
	if response.Delete && !s.Source.AllowDelete {
		err := &hook.RejectedError{Field: "delete", Detail: fmt.Sprintf("targets are deleted only where spec.resources sets allowDelete: true, which "+
			"it does not for %s; set it, or leave delete out", s.Source.Resource.GroupResource())}
		response.Reject(err)
		return nil, fmt.Errorf("response refused for %s: %w", s.Parent, err)
	}
	if response.Status != nil && len(response.Status) == 0 && s.BuiltIn() {
		response.Status = nil // It would empty what another controller reports.
	}
	if len(response.Ignored) > 0 {
		klog.FromContext(ctx).V(4).Info("Response of the hook has fields that are ignored", "parent", s.Parent, "fields", response.Ignored)
	}
	return response, nil
}

// errEnough ends a sync of which nothing more is wanted.
var errEnough = errors.New("nothing more was asked for")

// CallEach calls the hook n times: about the parent as shown returns it, with the name of its revision, which is empty for the present one. It
// passes each response to take. A response is released with the sync.
func (s *Sync) CallEach(
	ctx context.Context, n int, shown func(i int) (wire.Object, string, error), take func(i int, response *hooks.Response) error,
) error {
	enough := false
	for i := range n {
		o, revision, err := shown(i)
		if err != nil {
			return err
		}
		response, err := s.callAbout(ctx, o, revision)
		if err != nil {
			return err
		}
		if enough = response == nil; enough {
			continue
		}
		if err := take(i, response); err != nil {
			return err
		}
	}
	if enough {
		return errEnough
	}
	return nil
}

// Decide calls the hook once and takes its response as the Decision.
func (s *Sync) Decide(ctx context.Context) error {
	response, err := s.callAbout(ctx, s.ParentShown(), "")
	if err != nil {
		return err
	}
	if response == nil {
		return errEnough
	}
	s.Decision = Decision{
		Observed: s.Observed, Status: response.Status, Labels: response.Labels, Annotations: response.Annotations,
		ResyncAfter: response.ResyncAfter, Finalized: response.Finalized, Delete: response.Delete,
	}
	scope := ""
	if s.Scope.Selector != nil {
		scope = s.Scope.Selector.String()
	}
	s.fingerprint = plan.FingerprintOf(response.RawChildren, scope)
	if s.record.children.settled(s.fingerprint, s.Observed) {
		s.Decision.Settled = true
		return nil
	}
	s.Decision.Desired, s.Decision.Unserved, err = s.Validate(response)
	if len(s.Decision.Unserved) > 0 {
		// The response is not settled before these children are there.
		s.fingerprint = 0
	}
	return err
}

// Validate decodes and validates the children of a response. Those of kinds that are declared and not served are not among the desired
// ones.
func (s *Sync) Validate(response *hooks.Response) ([]children.Desired, []children.Key, error) {
	list, err := response.Children()
	if err != nil {
		return nil, nil, InContext(fmt.Sprintf("sync hook failed for %s", s.Parent), err)
	}
	desired, unserved, err := children.Validate(s.Scope, s.controller.rules, list)
	if err != nil {
		response.Reject(err)
		name := hook.Sync
		if s.finalizing() {
			name = hook.Finalize
		}
		return nil, nil, InContext(fmt.Sprintf("syncing %s", s.Parent), fmt.Errorf("the response of the %s hook is rejected: %w", name, err))
	}
	return desired, unserved, nil
}

// unserved is the error about desired children that cannot be written now.
func (s *Sync) unserved() error {
	if len(s.Decision.Unserved) == 0 {
		return nil
	}
	names := make([]string, len(s.Decision.Unserved))
	for i, key := range s.Decision.Unserved {
		names[i] = key.String()
	}
	return &unservedError{fmt.Sprintf("the cluster does not serve the kind of %s; install it, or take it out of the spec and of the response",
		strings.Join(names, ", "))}
}

// ChildrenDone reports whether ReconcileChildren, which did not fail, left nothing to do for another sync.
func (s *Sync) ChildrenDone() bool {
	return s.deletedChildren && s.result.again == 0 && !s.result.held &&
		!slices.ContainsFunc(s.result.outcomes, func(o plan.Outcome) bool { return o.Stale || o.Action == plan.Recreate })
}
