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

package childcontrol

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// Recorder records what happened to children on their parent. Related is the child, nil if there are several.
type Recorder interface {
	// Warning records what went wrong.
	Warning(subject, related *corev1.ObjectReference, reason, message string)
	// Normal records what happened.
	Normal(subject, related *corev1.ObjectReference, reason, message string)
}

// Expectations are what a parent waits for before it is synced again: that the caches show what was written.
type Expectations interface {
	// Wrote says that an object was written for a parent, which the informer has to show.
	Wrote(key parent.Key, informer *cache.Informer, written *object.Object)
	// Deleted says that an object was deleted for a parent, which the informer must not show as it was any more.
	Deleted(key parent.Key, informer *cache.Informer, o *object.Object)
	// Gone says that an object was deleted for a parent, and that it is gone.
	Gone(key parent.Key, informer *cache.Informer, o *object.Object)
}

// Counters count what operators look for.
type Counters struct {
	// Conflicts counts children that could not be created because their names were taken, and Flapping children that were left
	// alone for a while.
	Conflicts, Flapping atomic.Int64
}

// Config is what a Control needs. All fields are required but Guard.
type Config struct {
	// Cluster is where the children are.
	Cluster *cluster.Cluster
	// Applier writes them.
	Applier *apply.Applier
	// Recorder records events on parents.
	Recorder Recorder
	// Counters count conflicts and flapping children.
	Counters *Counters
	// Manager is the field manager for server-side apply.
	Manager string
	// Rules are the declared kinds.
	Rules children.Rules
	// Informers has the informers of each declared kind: several of one that is declared in several versions.
	Informers map[schema.GroupKind][]*cache.Informer
	// Expectations receive what was written.
	Expectations Expectations
	// Controller refers to the controller object, which kubectl names KubectlName.
	Controller  *corev1.ObjectReference
	KubectlName string
	// Guard decides about deletions. Nil: all are carried out.
	Guard *loopguard.DeletionGuard
	// Mine reports whether an object that the parent controls is a child of this controller. It may be a child of another controller
	// of the same parent.
	Mine func(parent, existing *object.Object) bool
	// Repeated reports whether a former sync of a parent changed a child at one of the places at which a step changes it, where something else
	// is now than it wrote. Then it is found out who changed them back.
	Repeated func(key parent.Key, step *plan.Step) bool
	// Handlers returns the names of other controllers of this process that handle an object of a resource as their parent.
	Handlers func(key parent.Key) []string
}

// Result is what Reconcile did.
type Result struct {
	// Again is the time after which to sync the parent again, 0 for none: for example, a child that flaps is left alone for a while.
	Again time.Duration
	// Outcomes are what happened to the children that were to be changed.
	Outcomes []plan.Outcome
	// Plan is the plan, with deletions even if they are held.
	Plan plan.Plan
	// Held says that the deletions of the plan were not carried out.
	Held bool
	// Overwrote says that children were written, or deleted, that others had written since this controller did, as far as is known.
	Overwrote bool
	// ChangedBackBy names who changed children back after former syncs: field managers and controllers.
	ChangedBackBy map[children.Key][]string
}

// Control brings the children of the parents of one controller to their desired states. It is safe for concurrent use; one parent
// is used by one goroutine at a time.
type Control struct {
	config Config
	// makePlan is plan.Make, or makeTwice.
	makePlan func(plan.Input) (plan.Plan, error)
}

// New returns a Control without records.
func New(c Config) *Control {
	control := &Control{config: c, makePlan: plan.Make}
	if os.Getenv(verifyVariable) == "plans" {
		control.makePlan = makeTwice
	}
	return control
}

// Prepare reads what the cluster publishes about the declared kinds, for which the first parents would have to wait. It returns
// early when ctx ends.
func (c *Control) Prepare(ctx context.Context) {
	for _, kind := range c.config.Rules.Kinds() {
		_, _ = c.schema(ctx, kind)
	}
}

// Settled reports whether Reconcile would do nothing for a response that it was given before. Each observed child is given
// once.
func (m *Memory) Settled(f plan.Hash, observed []*object.Object) bool {
	records, _ := m.known()
	return records.Settled(f, observed, time.Now())
}

// Leaves returns until when a child of a parent is neither adopted nor released, because somebody undoes that each time, and whether that has been
// reported; false if it is not left.
func (m *Memory) Leaves(key children.Key, now time.Time) (until time.Time, reported, leaves bool) {
	records, _ := m.known()
	b := records.Get(key).Breaker()
	until, leaves = b.Paused(now)
	return until, b.Reported(), leaves
}

// Claimed counts children that a sync adopted or released, and notes which of those that are left have been reported.
func (m *Memory) Claimed(claimed, reported []children.Key, now time.Time) {
	records, _ := m.known()
	m.keep(records.Claimed(claimed, reported, now))
}

// Gather returns the input of a plan with all facts that it needs. For children that differ, it asks the API server what it would
// make of them (a dry run) when it is not known otherwise whether the API server or a change is the reason. Facts that cannot be
// had become errors of the plan. Comparing says that the input is for its Unchanged.
func (c *Control) Gather(
	ctx context.Context, m *Memory, parent *object.Object, observed []*object.Object, desired []children.Desired, comparing bool,
) (plan.Input, error) {
	records, stale := m.known()
	in := c.input(parent)
	in.Observed, in.Desired, in.Records, in.Comparing, in.Insists = observed, desired, records, comparing, stale >= insistAfter
	if comparing {
		in.Compared = map[children.Key]plan.Compared{}
	}
	return c.Complete(ctx, in)
}

// input returns what plans for the children of a parent begin with.
func (c *Control) input(parent *object.Object) plan.Input {
	return plan.Input{
		Parent: parent.UID(), ParentName: parent.String(), Owner: children.OwnerContent(parent), Rules: c.config.Rules,
		Manager: c.config.Manager, Now: time.Now(),
	}
}

// Complete adds the facts that an input needs and does not have, for example when other children are desired than those that it
// was gathered for. The error is that of ctx.
func (c *Control) Complete(ctx context.Context, in plan.Input) (plan.Input, error) {
	// The epochs are those of before anything is tried or written.
	epochs := map[schema.GroupKind]int64{}
	for i := range in.Desired {
		kind := in.Desired[i].GroupKind()
		if epoch, known := in.Epochs[kind]; known {
			epochs[kind] = epoch
		} else if _, known := epochs[kind]; !known {
			epochs[kind] = c.config.Cluster.Discovery.Epoch(c.resource(kind))
		}
	}
	in.Epochs = epochs
	missing := plan.Missing(in)
	for _, kind := range missing.Schemas {
		found, err := c.schema(ctx, kind)
		if in.Schemas = with(in.Schemas, kind, found); err != nil {
			in.SchemaErrors = with(in.SchemaErrors, kind, err)
		}
	}
	for key, reading := range c.config.Applier.Read(ctx, missing.Versions) {
		in.OtherVersions = with(in.OtherVersions, key, reading)
	}
	// Only with those it is known what has to be tried.
	in.Trials = c.config.Applier.Try(ctx, in)
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

// Reconcile makes the observed children the desired ones. f is the fingerprint of the response in which they were desired, zero if
// that is none or several.
func (c *Control) Reconcile(
	ctx context.Context, key parent.Key, m *Memory, parent *object.Object, in plan.Input, f plan.Hash,
) (result Result, err error) {
	made, errPlan := c.makePlan(in)
	p, held := c.hold(m, parent, made)
	by := c.changersBack(ctx, key, p)
	var outcomes []plan.Outcome
	var errApply error
	if p.Writes() > 0 {
		outcomes, errApply = c.config.Applier.Apply(ctx, p)
	}
	var errConflicts []error
	for i := range outcomes {
		o := &outcomes[i]
		if o.Existing != nil && !c.config.Mine(parent, o.Existing) {
			o.Stale = false
			conflict := &apply.ConflictError{Key: o.Key, Parent: parent.String(), Controlled: true, Owner: c.whose(key, o.Existing)}
			errConflicts = append(errConflicts, fmt.Errorf("creating %s: %w", o.Key, conflict))
		}
		c.expect(key, o)
	}
	// Whether a status is reported depends on the child as it is observed, and what is held is not settled.
	if held || setsStatus(in.Desired) {
		f = 0
	}
	c.deleted(outcomes)
	stale := staleStep(p, outcomes)
	count := m.synced(p.Next(in.Records, outcomes, f).Compared(in.Compared), stale != nil)
	c.recordEvents(ctx, key, m, parent, p, outcomes)
	c.reportStatus(m, parent, in)
	again, errStale := retryStale(stale, count)
	err = errors.Join(append(errConflicts, errPlan, errApply, errStale)...)
	c.countConflicts(err)
	return Result{
		Again: queue.Earliest(p.Again(), again), Outcomes: outcomes, Plan: made, Held: held, Overwrote: overwrote(in.Records, outcomes), ChangedBackBy: by,
	}, err
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

// Plan works out what Reconcile would do for a parent, and does nothing of it. Held are the deletions that would not be carried out; the plan has them.
// The error is about children for which no step could be worked out.
func (c *Control) Plan(in plan.Input) (p plan.Plan, held bool, err error) {
	p, err = c.makePlan(in)
	return p, !c.config.Guard.Would(p.Deletions(), time.Now()), err
}

// Conflict returns why a child cannot be created: an object of its name is there that is no child of the parent and this controller, as
// far as the cache shows. Nil if it can be.
func (c *Control) Conflict(key parent.Key, parent *object.Object, child children.Key) error {
	informers := c.config.Informers[child.GroupKind()]
	if len(informers) == 0 {
		return nil
	}
	existing, ok := informers[0].Get(child.Namespace, child.Name)
	if !ok {
		return nil
	}
	if existing.ControlledBy(parent.UID()) {
		if c.config.Mine(parent, existing) {
			return nil
		}
		return &apply.ConflictError{Key: child, Parent: parent.String(), Controlled: true, Owner: c.whose(key, existing)}
	}
	return c.config.Applier.Conflict(child, parent.UID(), parent.String(), existing)
}

// expect lets the parent wait until the cache shows what was done, in every version in which the kind is declared.
func (c *Control) expect(key parent.Key, o *plan.Outcome) {
	for _, informer := range c.config.Informers[o.GroupKind()] {
		switch {
		case o.Done && o.Written != nil:
			c.config.Expectations.Wrote(key, informer, o.Written)
		case o.Done && o.Left != nil:
			c.config.Expectations.Wrote(key, informer, o.Left)
		case o.Done && o.Gone != nil:
			c.config.Expectations.Gone(key, informer, o.Gone)
		case o.Done:
			c.config.Expectations.Deleted(key, informer, o.Observed)
		case o.Moved != nil:
			c.config.Expectations.Wrote(key, informer, o.Moved)
		}
	}
}

func (c *Control) countConflicts(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			c.countConflicts(each)
		}
		return
	}
	if _, ok := errors.AsType[*apply.ConflictError](err); ok {
		c.config.Counters.Conflicts.Add(1)
	}
}

// schema returns what the cluster publishes about a kind, nil if that is nothing. Without it lists are merged by guessing.
func (c *Control) schema(ctx context.Context, kind schema.GroupVersionKind) (merge.Schema, error) {
	found, err := c.config.Cluster.Discovery.Schema(ctx, kind)
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
	// insistAfter is after how many such syncs in a row children are deleted, applied and merged whatever changes in them meanwhile.
	insistAfter = 3
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
func (c *Control) hold(m *Memory, owner *object.Object, p plan.Plan) (plan.Plan, bool) {
	deletions := p.Deletions()
	admitted, first, news := c.config.Guard.Admit(&m.Held, deletions, time.Now())
	if admitted {
		return p, false
	}
	if held, ok := c.config.Guard.Held(); ok && news {
		message := held.Explain(c.config.KubectlName)
		c.config.Recorder.Warning(Reference(owner), nil, events.ReasonDeletionsHeld, loopguard.CountDeletions(len(deletions))+" held. "+message)
		if first {
			c.config.Recorder.Warning(c.config.Controller, nil, events.ReasonDeletionsHeld, message)
		}
	}
	return p.WithoutDeletions(), true
}

// deleted tells the guard which deletions were carried out, or may have been, and which were not.
func (c *Control) deleted(outcomes []plan.Outcome) {
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case !o.Deletes():
		case o.Done || o.Unknown:
			c.config.Guard.Done(o.Observed.UID())
		default:
			c.config.Guard.Undone(o.Observed.UID(), time.Now())
		}
	}
}

// verifyVariable is the environment variable that, with the value "plans", has every plan made twice: a plan is a value, so
// the two must be equal, and making them must change nothing. A difference panics, which the worker reports as a failed sync. It is
// for tests (docs/design/0013-plans-and-records.md).
const verifyVariable = "METACONTROLLER_VERIFY"

// makeTwice makes a plan, and panics unless that is a value.
func makeTwice(in plan.Input) (plan.Plan, error) {
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

// Outdated returns the children of a parent that may have to be written because the schema of their kind changed, or what mutates them.
func (c *Control) Outdated(m *Memory) []children.Key {
	records, _ := m.known()
	keys := records.Outdated(c.followed)
	return slices.DeleteFunc(keys, func(key children.Key) bool {
		rule, _ := c.config.Rules.For(key.GroupKind())
		return rule.Method == v1alpha1.ChildUpdateOnDelete // It is not written.
	})
}

// Retry asks the API server once more what it makes of a child of a parent, if what is known of that is outdated: of what was applied to the
// child last, without the hook. It writes nothing. It reports whether the parent is to be synced: the child has to be written, or only the
// hook knows what is desired, or something failed. That sync does not ask again what was answered, and asks about the parent's other children
// of which the knowledge is outdated.
func (c *Control) Retry(ctx context.Context, m *Memory, parent *object.Object, key children.Key) (sync bool) {
	in := c.input(parent)
	records, _ := m.known()
	known := records.Get(key)
	if known == nil || len(plan.Records{known}.Outdated(c.followed)) == 0 {
		return false
	}
	in.Records = plan.Records{known.Unsettled()} // A parent may have very many others.
	for _, informer := range c.config.Informers[key.GroupKind()] {
		o, ok := informer.Get(key.Namespace, key.Name)
		if !ok || !c.config.Mine(parent, o) {
			continue
		}
		if d, ok := in.Applied(o); ok && d.APIVersion == o.APIVersion() {
			in.Observed, in.Desired = []*object.Object{o}, []children.Desired{d}
			break
		}
	}
	next, sync := in.Records, true
	if len(in.Desired) > 0 {
		next, sync = c.retry(ctx, in)
	}
	records = records.With(next...)
	if sync {
		records = records.Unsettled(records.Outdated(c.followed)...)
	}
	m.keep(records)
	return sync
}

// retry returns the records after a plan for one child that is not carried out, and whether it is to be.
func (c *Control) retry(ctx context.Context, in plan.Input) (next plan.Records, carryOut bool) {
	in, err := c.Complete(ctx, in)
	if err != nil {
		return in.Records, true
	}
	p, err := c.makePlan(in)
	if err != nil {
		return in.Records, true
	}
	step := &p.Steps[0]
	return p.Next(in.Records, nil, 0), step.Action != plan.Leave || step.Reason != plan.Same && step.Reason != plan.Deleting
}

// followed returns the latest epoch of a declared kind that API servers follow.
func (c *Control) followed(kind schema.GroupKind) int64 {
	return c.config.Cluster.Discovery.Followed(c.resource(kind))
}

// resource returns the resource of a declared kind.
func (c *Control) resource(kind schema.GroupKind) schema.GroupResource {
	rule, _ := c.config.Rules.For(kind)
	return rule.Resource.GroupResource()
}
