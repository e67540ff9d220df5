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
	"iter"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// result is what a sync did about the children.
type result struct {
	// again is the time after which to sync the parent again, 0 for none: for example, a child that flaps is left alone for a while.
	again time.Duration
	// outcomes are what happened to the children that were to be changed.
	outcomes []plan.Outcome
	// plan is the plan, with deletions even if they are held, and held says that these were not carried out.
	plan plan.Plan
	held bool
	// overwrote says that children were written, or deleted, that others had written since this controller did, as far as is known.
	overwrote bool
	// changedBackBy names who changed children back after former syncs: field managers and controllers.
	changedBackBy map[children.Key][]string
}

// prepare reads what the cluster publishes about the declared kinds, for which the first parents would have to wait. It returns early when ctx ends.
func (c *Controller) prepare(ctx context.Context) {
	for _, kind := range c.rules.Kinds() {
		_, _ = c.schema(ctx, kind)
	}
}

// informersOf yields the informers of a declared kind: several of one that is declared in several versions.
func (c *Controller) informersOf(kind schema.GroupKind) iter.Seq[*cache.Informer] {
	return func(yield func(*cache.Informer) bool) {
		for i := range c.config.Children {
			if c.config.Children[i].Kind.GroupKind() == kind && !yield(c.watched[i]) {
				return
			}
		}
	}
}

// input returns what plans for the children of a parent begin with.
func (c *Controller) input(p *object.Object) plan.Input {
	return plan.Input{
		Parent: p.UID(), ParentName: p.String(), Owner: children.OwnerContent(p), Rules: c.rules, Manager: c.manager, Now: time.Now(),
	}
}

// gather returns the input of a plan with all facts that it needs. For children that differ, it asks the API server what it would
// make of them (a dry run) when it is not known otherwise whether the API server or a change is the reason. Facts that cannot be
// had become errors of the plan. Comparing says that the input is for its Unchanged.
func (s *Sync) gather(ctx context.Context, observed []*object.Object, desired []children.Desired, comparing bool) (plan.Input, error) {
	records, stale := s.record.children.known()
	in := s.controller.input(s.Parent)
	in.Observed, in.Desired, in.Records, in.Comparing, in.Insists = observed, desired, records, comparing, stale >= insistAfter
	if comparing {
		in.Compared = map[children.Key]plan.Asked{}
	}
	return s.controller.complete(ctx, in)
}

// complete adds the facts that an input needs and does not have, for example when other children are desired than those that it
// was gathered for. The error is that of ctx.
func (c *Controller) complete(ctx context.Context, in plan.Input) (plan.Input, error) {
	// The epochs are those of before anything is tried or written.
	epochs := map[schema.GroupKind]int64{}
	for i := range in.Desired {
		kind := in.Desired[i].GroupKind()
		if epoch, known := in.Epochs[kind]; known {
			epochs[kind] = epoch
		} else if _, known := epochs[kind]; !known {
			epochs[kind] = c.shared.Cluster.Discovery.Epoch(c.resource(kind))
		}
	}
	in.Epochs = epochs
	in = c.keepers(ctx, in)
	missing := plan.Missing(in)
	for _, kind := range missing.Schemas {
		found, err := c.schema(ctx, kind)
		if in.Schemas = with(in.Schemas, kind, found); err != nil {
			in.SchemaErrors = with(in.SchemaErrors, kind, err)
		}
	}
	for key, reading := range c.shared.Applier.Read(ctx, missing.Versions) {
		in.OtherVersions = with(in.OtherVersions, key, reading)
	}
	// Only with those it is known what has to be tried.
	in.Trials = c.shared.Applier.Try(ctx, in)
	if ctx.Err() != nil {
		return in, fmt.Errorf("asking what the API server would make of the children: %w", context.Cause(ctx))
	}
	return in, nil
}

func with[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[key] = value
	return m
}

func (w acting) reconcile(ctx context.Context, in plan.Input) error {
	s, c, m := w.s, w.s.controller, &w.s.record.children
	made, errPlan := makePlan(in)
	p, held := s.hold(made)
	by := s.changersBack(ctx, p)
	sent, errConflicts := s.unblocked(p)
	var errApply error
	var outcomes []plan.Outcome
	if sent.Writes() > 0 {
		outcomes, errApply = c.shared.Applier.Apply(ctx, sent)
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Existing != nil && !c.mine(s.Parent, o.Existing) {
			o.Stale = false
			conflict := &apply.ConflictError{Key: o.Key, Parent: s.Parent.String(), Controlled: true, Owner: s.whose(o.Existing)}
			errConflicts = append(errConflicts, fmt.Errorf("creating %s: %w", o.Key, conflict))
		}
		s.expect(o)
	}
	c.deleted(outcomes)
	// Whether a status is reported depends on the child as it is observed, and what is held is not settled.
	f := s.fingerprint
	if held || setsStatus(in.Desired) {
		f = 0
	}
	stale := staleStep(p, outcomes)
	count := m.synced(p.Next(in.Records, outcomes, f).Compared(in.Compared), stale != nil)
	s.recordEvents(ctx, p, outcomes)
	s.reportStatus(in)
	again, errStale := retryStale(stale, count)
	s.result = result{
		again: queue.Earliest(p.Again(), again), outcomes: outcomes, plan: made, held: held, overwrote: overwrote(in.Records, outcomes), changedBackBy: by,
	}
	err := errors.Join(append(errConflicts, errPlan, errApply, errStale)...)
	c.counted.conflicts.Add(int64(len(conflicts(err))))
	s.deletedChildren = err == nil && deletedAll(&s.result)
	s.recording.Children(&made, outcomes, held, by, c.rules)
	return err
}

// overwrote reports whether a child was written in another version than the one that this controller left.
func overwrote(before plan.Records, outcomes []plan.Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o plan.Outcome) bool {
		if !o.Done || o.Observed == nil {
			return false
		}
		known := before.Get(o.Key)
		return known == nil || known.Version != o.Observed.ResourceVersion()
	})
}

// unblocked returns a plan without the children whose creation failed in the parent's last sync, because another object has the name, and
// would fail again as far as the cache shows. It says why they cannot be created. An event that says otherwise has the parent synced at once.
func (s *Sync) unblocked(p plan.Plan) (plan.Plan, []error) {
	if len(s.record.obstacles) == 0 {
		return p, nil
	}
	var errs []error
	names := sets.New(s.record.obstacles...)
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(step plan.Step) bool {
		if step.Action != plan.Create || !names.Has(step.Key) {
			return false
		}
		conflict := s.conflict(step.Key)
		if conflict != nil {
			errs = append(errs, fmt.Errorf("creating %s: %w", step.Key, conflict))
		}
		return conflict != nil
	})
	return p, errs
}

// conflict returns why a child cannot be created: an object of its name is there that is no child of the parent and this controller, as
// far as the cache shows. Nil if it can be.
func (s *Sync) conflict(child children.Key) error {
	for informer := range s.controller.informersOf(child.GroupKind()) {
		existing, ok := informer.Get(child.Namespace, child.Name)
		switch {
		case !ok || s.controller.mine(s.Parent, existing):
			return nil
		case existing.ControlledBy(s.Parent.UID()):
			return &apply.ConflictError{Key: child, Parent: s.Parent.String(), Controlled: true, Owner: s.whose(existing)}
		}
		return s.controller.shared.Applier.Conflict(child, s.Parent.UID(), s.Parent.String(), existing)
	}
	return nil
}

// expect lets the parent wait until the cache shows what was done, in every version in which the kind is declared.
func (s *Sync) expect(o *plan.Outcome) {
	e := s.controller.expectations
	for informer := range s.controller.informersOf(o.GroupKind()) {
		switch {
		case o.Done && o.Written != nil:
			e.Wrote(s.Key, informer, o.Written)
		case o.Done && o.Left != nil:
			e.Wrote(s.Key, informer, o.Left)
		case o.Done && o.Gone != nil:
			e.Gone(s.Key, informer, o.Gone)
		case o.Done:
			e.Deleted(s.Key, informer, o.Observed)
		case o.Moved != nil:
			e.Wrote(s.Key, informer, o.Moved)
		}
	}
}

// schema returns what the cluster publishes about a kind, nil if that is nothing. Without it lists are merged by guessing.
func (c *Controller) schema(ctx context.Context, kind schema.GroupVersionKind) (merge.Schema, error) {
	found, err := c.shared.Cluster.Discovery.Schema(ctx, kind)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Schema is not known; lists are merged by guessing", "kind", kind, "err", err)
		return nil, err
	}
	return schemaOf(found), nil
}

// published is what a cluster publishes about a kind.
type published struct{ *discovery.Schema }

// schemaOf returns it as it is merged by, nil for nothing.
func schemaOf(s *discovery.Schema) merge.Schema {
	if s == nil {
		return nil
	}
	return published{s}
}

// Field implements merge.Schema.
func (p published) Field(name string) merge.Schema { return schemaOf(p.Schema.Field(name)) }

// Item implements merge.Schema.
func (p published) Item() merge.Schema { return schemaOf(p.Schema.Item()) }

// setsStatus reports whether a desired child has a status.
func setsStatus(desired []children.Desired) bool {
	return slices.ContainsFunc(desired, func(d children.Desired) bool {
		status, ok := d.Content["status"].(map[string]any)
		return ok && len(status) > 0
	})
}

// A parent is synced again whose children changed after they were observed: what the API server calls a conflict may also be that of
// a quota or a webhook, after which no event comes. The pause doubles from firstStaleRetry to lastStaleRetry, and after
// maxStale syncs in a row the conflict is an error.
const (
	firstStaleRetry = time.Second
	lastStaleRetry  = time.Minute
	maxStale        = 8
)

// A StaleError says that the API server refuses the writes of a child as conflicts, which reading it again does not end.
type StaleError struct {
	// Key is the child.
	Key children.Key
	// Syncs is how many syncs in a row ended so.
	Syncs int
	// Cause is the error of the API server.
	Cause error
}

// Error implements error.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%s was not as observed in %d syncs in a row; look for quotas and webhooks that refuse it: %v", e.Key, e.Syncs, e.Cause)
}

// Unwrap returns the error of the API server.
func (e *StaleError) Unwrap() error { return e.Cause }

// FailureReason returns the API server's reason, by which metrics count the error. A single conflict is no failure; this one is.
func (e *StaleError) FailureReason() string { return string(apierrors.ReasonForError(e.Cause)) }

// retryStale returns after how long a parent is synced again because its children were not as observed in so many syncs in a row, 0 if they were:
// the step is one of these. The error is one if that does not end.
func retryStale(step *plan.Step, count int) (time.Duration, error) {
	if count == 0 {
		return 0, nil
	}
	if count >= maxStale && step.Cause != nil {
		return 0, &StaleError{Key: step.Key, Syncs: count, Cause: step.Cause}
	}
	return min(firstStaleRetry<<min(count-1, maxStale), lastStaleRetry), nil
}

// staleStep returns the first step whose child was not as observed, nil if there is none.
func staleStep(p plan.Plan, outcomes []plan.Outcome) *plan.Step {
	for i := range p.Steps {
		if p.Steps[i].Reason == plan.Stale {
			return &p.Steps[i]
		}
	}
	for i := range outcomes {
		if outcomes[i].Stale {
			return &outcomes[i].Step
		}
	}
	return nil
}

// hold takes the deletions out of a plan unless they may be carried out. It reports whether it did.
func (s *Sync) hold(p plan.Plan) (plan.Plan, bool) {
	c, deletions := s.controller, p.Deletions()
	admitted, first, news := c.guard.Admit(&s.record.children.held, deletions, time.Now())
	if admitted {
		return p, false
	}
	if held, ok := c.guard.Held(); ok && news {
		message := held.Explain(c.config.Definition.KubectlName())
		s.warn(nil, events.ReasonDeletionsHeld, loopguard.CountDeletions(len(deletions))+" held. "+message)
		if first {
			c.recorder.Warning(c.config.Definition.Reference(), nil, events.ReasonDeletionsHeld, message)
		}
	}
	return p.WithoutDeletions(), true
}

// deleted reports to the guard which deletions were carried out, or may have been, and which were not.
func (c *Controller) deleted(outcomes []plan.Outcome) {
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case !o.Deletes():
		case o.Done || o.Unknown:
			c.guard.Done(o.Observed.UID())
		default:
			c.guard.Undone(o.Observed.UID(), time.Now())
		}
	}
}

// verifyVariable is the environment variable that, with the value "plans", has every plan made twice: a plan is a value, so
// the two must be equal, and making them must change nothing. A difference panics, which the worker reports as a failed sync. It is
// for tests (docs/design/0013-plans-and-records.md).
const verifyVariable = "METACONTROLLER_VERIFY"

// makePlan makes a plan; twice, if that is to be verified.
func makePlan(in plan.Input) (plan.Plan, error) {
	if os.Getenv(verifyVariable) != "plans" {
		return plan.Make(in)
	}
	before := copyOf(in.Records)
	p, err := plan.Make(in)
	switch again, errAgain := plan.Make(in); {
	case fmt.Sprint(err) != fmt.Sprint(errAgain):
		panic(fmt.Sprintf("two plans from one input fail differently: %v, %v", err, errAgain)) //nolint:forbidigo // It is for tests, which look for panics.
	case !reflect.DeepEqual(p, again): //nolint:govet // Both have the errors of the same facts.
		panic(fmt.Sprintf("two plans from one input differ: %+v, %+v", p, again)) //nolint:forbidigo // Likewise.
	case !reflect.DeepEqual(before, copyOf(in.Records)):
		panic("making a plan changed the records of " + in.ParentName) //nolint:forbidigo // Likewise.
	}
	return p, err
}

func copyOf(records plan.Records) []plan.Record {
	list := make([]plan.Record, len(records))
	for i, r := range records {
		list[i] = *r
		if r.More != nil {
			more := *r.More
			list[i].More = &more
		}
	}
	return list
}

// outdatedOf returns the children of a parent that may have to be written because the schema of their kind changed, or what mutates them.
func (c *Controller) outdatedOf(r *record) []children.Key {
	records, _ := r.children.known()
	return slices.DeleteFunc(records.Outdated(c.followed), func(key children.Key) bool {
		rule, _ := c.rules.For(key.GroupKind())
		return rule.Method == v1alpha1.ChildUpdateOnDelete // It is not written.
	})
}

// tryAgain asks the API server once more what it makes of a child of a parent, if what is known of that is outdated: of what was applied to the
// child last, without the hook. It writes nothing. It reports whether the parent is to be synced: the child has to be written, or only the
// hook knows what is desired, or something failed. That sync does not ask again what was answered, and asks about the parent's other children
// of which the knowledge is outdated.
func (c *Controller) tryAgain(ctx context.Context, r *record, p *object.Object, key children.Key) (sync bool) {
	in := c.input(p)
	records, _ := r.children.known()
	known := records.Get(key)
	if known == nil || len(plan.Records{known}.Outdated(c.followed)) == 0 {
		return false
	}
	in.Records = plan.Records{known.Unsettled()} // A parent may have very many others.
	for informer := range c.informersOf(key.GroupKind()) {
		o, ok := informer.Get(key.Namespace, key.Name)
		if !ok || !c.mine(p, o) {
			continue
		}
		if d, ok := in.Applied(o); ok && d.APIVersion == o.APIVersion() {
			in.Observed, in.Desired = []*object.Object{o}, []children.Desired{d}
			break
		}
	}
	next, sync := in.Records, true
	if len(in.Desired) > 0 {
		next, sync = c.tryChild(ctx, in)
	}
	records = records.With(next...)
	if sync {
		records = records.Unsettled(records.Outdated(c.followed)...)
	}
	r.children.keep(records)
	return sync
}

// tryChild returns the records after a plan for one child that is not carried out, and whether it is to be.
func (c *Controller) tryChild(ctx context.Context, in plan.Input) (next plan.Records, carryOut bool) {
	in, err := c.complete(ctx, in)
	if err != nil {
		return in.Records, true
	}
	p, err := makePlan(in)
	if err != nil {
		return in.Records, true
	}
	step := &p.Steps[0]
	return p.Next(in.Records, nil, 0), step.Action != plan.Leave || step.Reason != plan.Same && step.Reason != plan.Deleting
}

// followed returns the latest epoch of a declared kind that API servers follow.
func (c *Controller) followed(kind schema.GroupKind) int64 {
	return c.shared.Cluster.Discovery.Followed(c.resource(kind))
}

// resource returns the resource of a declared kind.
func (c *Controller) resource(kind schema.GroupKind) schema.GroupResource {
	rule, _ := c.rules.For(kind)
	return rule.Resource.GroupResource()
}

// maxTopics is how many topics of one parent are remembered beside those of one sync. Beyond that all of them are reported once more.
const maxTopics = 256

// memory is what is remembered of the children of one parent from one sync to the next. The zero value is ready. It is safe for concurrent use; one
// goroutine at a time has what it remembers changed.
type memory struct {
	// held are the deletions of children that are held.
	held loopguard.Held

	mu sync.Mutex
	// records are those of its children.
	records plan.Records
	// reported are the topics of what is reported once.
	reported map[plan.Hash]struct{}
	// stale counts the syncs in a row that found its children not as observed.
	stale int
}

// sizes returns the number of records of children, and whether anything else is remembered.
func (m *memory) sizes() (records int, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records), len(m.reported) > 0 || m.stale > 0
}

// settled reports whether a sync would do nothing for a response that it was given before. Each observed child is given once.
func (m *memory) settled(f plan.Hash, observed []*object.Object) bool {
	records, _ := m.known()
	return records.Settled(f, observed, time.Now())
}

// known returns the records of a parent's children, and how many syncs in a row found them not as observed.
func (m *memory) known() (records plan.Records, stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records, m.stale
}

// keep replaces the records of a parent's children.
func (m *memory) keep(records plan.Records) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = records
}

// synced replaces the records after a sync, which found the children not as observed if stale. It returns how many syncs in a row did.
func (m *memory) synced(records plan.Records, stale bool) (inARow int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = records
	if m.stale++; !stale {
		m.stale = 0
	}
	return m.stale
}

// knows reports whether a topic was reported.
func (m *memory) knows(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.reported[plan.HashText(topic)]
	return ok
}

// report notes that a topic is reported, and returns whether it was not before. A sync may have a number of such topics.
func (m *memory) report(topic string, most int) bool {
	if m.knows(topic) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reported == nil || len(m.reported) >= maxTopics+most {
		m.reported = map[plan.Hash]struct{}{}
	}
	m.reported[plan.HashText(topic)] = struct{}{}
	return true
}

// busyRetry is after what time a child is looked at again whose parent was being synced.
const busyRetry = time.Second

// outdatedChild is a child of which the API server may make something else than is known.
type outdatedChild struct {
	source *Source
	record *record
	child  children.Key
}

// watchOutdated tries outdated children once more when it is asked to look for them, until ctx ends. It calls no hook.
func (c *Controller) watchOutdated(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.retries:
		}
		for pending := c.outdatedChildren(); len(pending) > 0 && ctx.Err() == nil; {
			if pending = c.retryChildren(ctx, pending); len(pending) > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(busyRetry):
				}
			}
		}
	}
}

func (c *Controller) outdatedChildren() (list []outdatedChild) {
	for _, r := range c.parents.all() {
		for _, child := range c.outdatedOf(r) {
			list = append(list, outdatedChild{c.byResource[r.key.Resource()], r, child})
		}
	}
	return list
}

// retryChildren tries children, each in its turn, and returns those whose parents are busy. A paused controller and one that is held
// try nothing: they are asked again when they go on.
func (c *Controller) retryChildren(ctx context.Context, list []outdatedChild) (busy []outdatedChild) {
	for _, each := range list {
		if c.shared.Applier.AwaitTurn(ctx) != nil || c.paused.Load() || c.shared.Access.Held() {
			return nil
		}
		// A panic is logged, and the child is tried when it or a kind changes.
		_ = recovery.Call(ctx, "trying a child of "+each.record.key.String(), func() error {
			if !c.retryChild(ctx, each) {
				busy = append(busy, each)
			}
			return nil
		})
	}
	return busy
}

// retryChild tries a child, and enqueues its parent if that is to be synced. It reports false if the parent is busy.
func (c *Controller) retryChild(ctx context.Context, o outdatedChild) bool {
	p, ok := o.source.informer.Get(o.record.key.Namespace, o.record.key.Name)
	if !ok || !c.relevant(o.source, p) || c.pausedUntil(p) != "" {
		return true // A paused one is asked about again when it goes on.
	}
	if !c.queue.Take(o.record.key) {
		return false
	}
	defer c.queue.Done(o.record.key)
	if c.expectations.Expects(o.record.key) {
		return false
	}
	if c.tryAgain(ctx, o.record, p, o.child) && !o.record.gone.Load() {
		o.record.outside()
		c.queue.Add(o.record.key, queue.Resync, history.Of(v1alpha1.SyncKindChanged))
	}
	return true
}
