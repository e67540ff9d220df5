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
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/loopguard"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// Config is what a controller is built from. All fields are required, except Selectors.
type Config struct {
	// Resolver has what all controllers share, and found the declared kinds: at least one of parents.
	Resolver
	// Definition is the controller object.
	Definition Definition
	// Kind does what the two kinds of controllers do differently.
	Kind Kind
	// Selectors are those by which parents select their children. Nil: they have none, and adopt nothing.
	Selectors *related.Selectors
}

// Controller runs one controller object. It implements the supervisor's Instance.
type Controller struct {
	config Config
	shared *Shared

	byResource map[schema.GroupResource]*Source
	byKind     map[schema.GroupKind]*Source
	rules      children.Rules
	finalizer  parent.Finalizer
	hooks      *hooks.Set

	parents      parents
	informers    *expectations.Informers
	watched      []*cache.Informer // as Config.Children
	observed     []*cache.Informer // one for each kind of children: one that is declared in two versions has two that are watched
	expectations *expectations.Expectations
	customizer   *related.Customizer
	queue        *queue.Queue
	// manager is the field manager for server-side apply.
	manager string

	recorder  recorder
	settling  loopguard.Tracker
	unsettled unsettled
	noticed   notices
	history   *history.History
	tracer    *tracing.Tracer
	// takenUp is why the parents are synced that are there when the controller starts.
	takenUp v1alpha1.SyncReason
	metrics *metrics.Controller
	// counted are children that could not be created because their names were taken, children that were left alone for a while, and responses.
	counted struct{ conflicts, flapping, rejected atomic.Int64 }

	// encoded is the controller as hooks see it.
	encoded atomic.Pointer[[]byte]
	paused  atomic.Bool
	guard   *loopguard.DeletionGuard
	started chan struct{}
	// began is raised by the first sync of a parent that is being finalized, recheck asks for a look at whether hooks can be called, relatedKinds for
	// one at the kinds that customize hooks named, and retries for one at children of which the API server may make something else than before.
	// activity is raised after something happened that Health, Counters, Hooks or LastErrors may show.
	began, recheck, relatedKinds, retries, activity signal
	// called is how long the last call of a sync or finalize hook took.
	called atomic.Int64
}

// signal has somebody look at something. Until it does, further ones add nothing.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// recorder records events.
type recorder interface {
	Warning(subject, related *corev1.ObjectReference, reason, message string)
	Normal(subject, related *corev1.ObjectReference, reason, message string)
	NormalAlways(subject *corev1.ObjectReference, reason, message string)
}

// New builds a controller. It opens no connection and starts nothing; Run does. The error of a definition that cannot run before it
// is changed is a *InvalidError.
func New(c Config) (*Controller, error) {
	d := c.Definition
	if d.Sync == nil && d.Finalize == nil {
		return nil, &InvalidError{Reason: "no hooks defined; set spec.hooks.sync"}
	}
	r := &Controller{
		config: c, shared: c.Shared, rules: children.NewRules(c.Children, unserved(c)...),
		byResource: map[schema.GroupResource]*Source{}, byKind: map[schema.GroupKind]*Source{},
		finalizer: parent.Finalizer{Name: d.Finalizer, Enabled: d.Finalizes()}, started: make(chan struct{}),
		began: newSignal(), recheck: newSignal(), relatedKinds: newSignal(), retries: newSignal(), activity: newSignal(),
	}
	for _, s := range c.Sources {
		r.byResource[s.Resource.GroupResource()] = s
		r.byKind[s.Resource.GroupVersionKind().GroupKind()] = s
	}
	if err := r.encode(d); err != nil {
		return nil, err
	}
	kinds := hooks.Kinds{Discovery: r.shared.Cluster.Discovery, Parents: d.Parents, Children: d.Children, Compiling: r.shared.Compiling}
	set, err := hooks.New(r.shared.HookConfig(d.Kind, d.Meta.Name, d.EndpointConfigs, r.workers()), kinds, d.Sync, d.Finalize, d.Customize)
	if err != nil {
		return nil, &InvalidError{Reason: err.Error()}
	}
	r.hooks = set
	r.assemble()
	if d.Paused {
		r.paused.Store(true)
		r.shared.Access.Pause(true)
		r.queue.Pause()
	}
	r.bound(d)
	return r, nil
}

// unserved returns the resources of the missing kinds of children.
func unserved(c Config) []schema.GroupVersionResource {
	var list []schema.GroupVersionResource
	for _, rule := range c.Missing {
		if version, err := schema.ParseGroupVersion(rule.APIVersion); err == nil && slices.Contains(c.Definition.Children, rule) {
			list = append(list, version.WithResource(rule.Resource))
		}
	}
	return list
}

// assemble joins the parts of a controller.
func (c *Controller) assemble() {
	d := c.config.Definition
	c.metrics = metrics.NewController(d.Kind, d.Meta.Name)
	c.recorder, c.manager = c.shared.Recorder.Of(d.Finalizer, d.Reference()), c.shared.Options.FieldManagerOf(d.Kind, d.Meta.Name)
	c.history, c.takenUp = c.shared.History.Of(d.Kind+" "+d.Meta.Name, d.Meta.UID), v1alpha1.SyncStarted
	if c.history.Len() > 0 {
		c.takenUp = v1alpha1.SyncControllerChanged
	}
	c.tracer = tracing.New(c.shared.Options.TracerProvider)
	c.queue = queue.New(queue.Config{
		Workers: hooks.Syncs(c.workers()),
		Sync: func(ctx context.Context, key parent.Key, why history.Begun) (queue.Result, error) {
			return c.traced(ctx, key, why, turn{})
		},
		Ready: func(key parent.Key) bool {
			return !c.shared.Access.Held() && c.expectations.Satisfied(key) && !c.holdsBack(key)
		}, Failed: c.failed, Waits: c.waits,
		Recovered: c.recovered, Processed: c.active, Metrics: c.metrics, Random: c.shared.Options.Random,
		Triggers: c.triggers(),
	})
	c.expectations = c.shared.Expectations.New(d.Finalizer, c.queue.Release, nil)
	c.expectations.Because = func(key parent.Key) []uint64 {
		if r := c.parents.of(key); r != nil {
			return r.settling.Because()
		}
		return nil
	}
	c.settling.Answers, c.parents.tracker = c.expectations.Answers, &c.settling
	c.metrics.CountParents(c.parents.len)
	c.metrics.CountExpectations(c.expectations.Pending)
	c.metrics.CountRemembered(c.remembered)
	c.informers = expectations.NewInformers(c.expectations)
	c.informers.NotifyProblem(c.active)
	c.guard = loopguard.NewDeletionGuard(c.countChildren)
	c.customizer = related.New(related.Config{
		Hook: c.hooks.Customize, Cluster: c.shared.Cluster, Informers: c.informers, Access: c.shared.Access,
		Parents: each(&c.parents, func(r *record) *related.Parent { return &r.related }), Enqueue: c.relatedChanged, Triggers: c.triggers(), Gone: c.relatedGone,
	})
}

// acquire takes the informers of all declared kinds.
func (c *Controller) acquire() {
	for _, s := range c.config.Sources {
		s.informer = c.informers.Acquire(c.shared.Cluster.Cache, c.query(s))
	}
	seen := map[schema.GroupKind]bool{}
	for i := range c.config.Children {
		rule := &c.config.Children[i]
		c.watched = append(c.watched, c.informers.Acquire(c.shared.Cluster.Cache, cache.Query{Resource: rule.Resource}))
		if kind := rule.Kind.GroupKind(); !seen[kind] {
			seen[kind], c.observed = true, append(c.observed, c.watched[i])
		}
	}
	c.config.Kind.Acquire(c.informers, func(key parent.Key, why v1alpha1.SyncReason) {
		c.queue.Add(key, queue.Retry, history.Of(why))
	})
}

// query lets the API server leave out objects that are not selected. Those that carry the controller's finalizer must be seen: with a
// finalize hook, or while the status records that one was there.
func (c *Controller) query(s *Source) cache.Query {
	q := cache.Query{Resource: s.Resource.GroupVersionResource}
	recorded := slices.Contains(c.config.Definition.Status.FinalizedResources,
		v1alpha1.FinalizedResource{Group: s.Resource.Group, Resource: s.Resource.Resource})
	if !c.finalizer.Enabled && !recorded && !s.Labels.Empty() {
		q.LabelSelector = s.Labels.String()
	}
	return q
}

// Run reconciles until ctx ends, and returns when everything that it started has ended. It waits for no informer then: the controller that follows
// waits when it starts until its own ones show what this one wrote.
func (c *Controller) Run(ctx context.Context) {
	d := c.config.Definition
	defer c.hooks.Close()
	defer c.expectations.Close()
	defer c.informers.Close()
	c.acquire()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.shared.Access != nil {
		// Syncs that are under way when ctx ends still read credentials.
		reading, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		running.Go(func() { c.shared.Cluster.Credentials.Run(reading) })
		running.Go(func() { c.shared.Access.Run(ctx, c.customizer.Resources, c.permitted) })
	}
	if !c.informers.Await(ctx) || !c.expectations.AwaitFormer(ctx) {
		return
	}
	// Parents first: the event of a child is for a parent that is known.
	for _, s := range c.config.Sources {
		c.informers.Keep(s.informer, s.informer.Subscribe(func(e cache.Event) { c.parentEvent(s, e) })) //nolint:contextcheck // Handlers have none.
	}
	c.history.Keep(c.parents.has) // A former definition may have selected others.
	// Every parent is synced at the start anyway, after the children have been listed.
	interest := cache.Interest{Owners: slices.Collect(maps.Keys(c.byKind)), AwaitsNames: func() bool { return c.parents.total().blocked > 0 }}
	for i, informer := range c.watched {
		if !slices.Contains(c.watched[:i], informer) {
			c.informers.Keep(informer, informer.SubscribeTo(interest, c.childEvent)) //nolint:contextcheck // Likewise.
		}
	}
	running.Go(func() { c.resyncPeriodically(ctx) })
	defer c.shared.Handlers.Add(d.Kind+" "+d.Meta.Name, c.parents.has)()
	defer c.shared.Cluster.Credentials.Subscribe(c.credentialsChanged)()
	defer c.shared.Cluster.Discovery.Subscribe(c.kindsChanged)()
	running.Go(func() { c.watchRelatedKinds(ctx) })
	running.Go(func() { c.watchOutdated(ctx) })
	running.Go(func() { c.checkHooks(ctx) })
	running.Go(func() { c.watchFinalizing(ctx) })
	running.Go(func() {
		_ = recovery.Call(ctx, "reading the schemas of children", func() error { c.prepare(ctx); return nil }) // Logged, and read again by syncs.
	})
	c.noticeNoStatus()
	close(c.started)
	c.queue.Run(ctx)
}

// Hold opens the informers of a controller that does not run, and reads the schemas of its children, so that they are there for one that
// does, until shut is called. It waits for no informer; the controller is never run.
func (c *Controller) Hold(ctx context.Context) (shut func()) {
	c.acquire()
	c.prepare(ctx)
	return c.shut
}

// shut gives back what a controller that does not run has used.
func (c *Controller) shut() {
	c.hooks.Close()
	c.expectations.Close()
	c.informers.Close()
}

// Started is closed when the informers have synced and parents are being reconciled.
func (c *Controller) Started() <-chan struct{} { return c.started }

// Problem says why an informer cannot list or watch, nil if all can.
func (c *Controller) Problem() error { return c.informers.Problem() }

// Fingerprint is what the cluster said of the declared kinds when the controller was built.
func (c *Controller) Fingerprint() []string { return c.config.Fingerprint }

// Missing returns the declared kinds that the cluster did not serve when the controller was built.
func (c *Controller) Missing() []string {
	missing := make([]string, len(c.config.Missing))
	for i, rule := range c.config.Missing {
		missing[i] = fmt.Sprintf("%s in %s", rule.Resource, rule.APIVersion)
	}
	return missing
}

// encode shows hooks the present metadata of the controller object.
func (c *Controller) encode(d Definition) error {
	encoded, err := d.Encode(wire.EncodeOptions{ManagedFields: c.shared.Options.HookManagedFields})
	if err != nil {
		return err
	}
	c.encoded.Store(&encoded)
	return nil
}

// remembered is called once the controller runs.
func (c *Controller) remembered() metrics.Remembered {
	sums := c.parents.total()
	r := metrics.Remembered{
		CustomizeResponses: c.customizer.Len(), EtagResponses: c.hooks.Remembered(), SyncedParents: c.history.Len(), Deletions: c.guard.Len(),
		Obstacles: sums.blocked, Failing: c.queue.Remembered(), Finalizing: sums.finalizing, Rights: c.shared.Access.Len(),
		Selectors: c.config.Selectors.Len(),
	}
	one := map[bool]int{true: 1}
	for _, each := range c.parents.all() {
		records, more := each.children.sizes()
		r.Parents, r.Children = r.Parents+min(records, 1), r.Children+records
		r.Told, r.Settling, r.OwnWrites = r.Told+one[more], r.Settling+one[each.settling.Known()], r.OwnWrites+one[each.own.Pending()]
	}
	c.config.Kind.Count(&r)
	return r
}

func (c *Controller) workers() int {
	if declared := c.config.Definition.Workers; declared != nil {
		return int(*declared)
	}
	return c.shared.Options.Workers
}

// mine reports whether an object that has the name of a child is observed as a child of the parent.
func (c *Controller) mine(p, existing *object.Object) bool {
	return existing.ControlledBy(p.UID()) && c.selecting(p)(existing)
}

// selecting returns what reports whether an object that a parent controls is among the children that are observed.
func (c *Controller) selecting(p *object.Object) func(*object.Object) bool {
	if c.config.Selectors == nil {
		return c.config.Kind.Owns
	}
	r := c.parents.ofSync(c.byKind[p.GroupVersionKind().GroupKind()].key(p))
	selector, err := c.config.Selectors.Of(&r.selector, p)
	return func(o *object.Object) bool {
		return err == nil && c.config.Kind.Owns(o) && selector.Matches(o.LabelSet())
	}
}

// Redefine takes up a definition with the same spec, or one that differs in spec.paused and spec.deletionGuard: hooks are shown it from
// their next call on. The error says that they still see the former one.
func (c *Controller) Redefine(ctx context.Context, d Definition) error {
	if d.Paused {
		c.pause(ctx, true)
	}
	err := c.encode(d)
	records := slices.DeleteFunc(c.parents.all(), func(r *record) bool { return !r.settling.Outside(time.Now()) })
	c.bound(d)
	c.pause(ctx, d.Paused)
	for _, r := range records {
		c.queue.Add(r.key, queue.Live, history.Of(v1alpha1.SyncControllerChanged))
	}
	return err
}

// bound takes up spec.deletionGuard, and confirmations.
func (c *Controller) bound(d Definition) {
	limit := ptr.Deref(d.DeletionGuard, v1alpha1.DeletionGuard{}).MaxDeletions
	held := each(&c.parents, func(r *record) *loopguard.Held { return &r.children.held })
	for _, key := range c.guard.Configure(limit, d.Meta.Annotations[v1alpha1.AnnotationConfirmDeletions], held) {
		c.queue.Add(key, queue.Live, history.Of(v1alpha1.SyncControllerChanged))
	}
}

// countChildren returns how many children the parents have, as the informers show them. It looks at no other objects.
func (c *Controller) countChildren() int {
	n := 0
	for _, r := range c.parents.all() {
		if p, ok := c.byResource[r.key.Resource()].informer.Get(r.key.Namespace, r.key.Name); ok {
			for range c.childrenOf(p) {
				n++
			}
		}
	}
	return n
}

// childrenOf yields the children of a parent, as the informers show them.
func (c *Controller) childrenOf(p *object.Object) iter.Seq[*object.Object] {
	return func(yield func(*object.Object) bool) {
		selects := c.selecting(p)
		for _, informer := range c.observed {
			for _, o := range informer.ControlledBy(p.UID()) {
				if (p.Namespace() == "" || o.Namespace() == p.Namespace()) && selects(o) && !yield(o) {
					return
				}
			}
		}
	}
}

// pause pauses or resumes the controller. Informers go on all the time, so that changes are noted, but nothing is synced. What a pause cut
// short is not known: all parents are synced when it ends.
func (c *Controller) pause(ctx context.Context, paused bool) {
	c.shared.Access.Pause(paused)
	switch was := c.paused.Swap(paused); {
	case paused && !was:
		c.queue.Pause()
	case !paused && was:
		c.parents.restart()
		select {
		case <-c.started:
			// Before the first one is synced, so that each is synced once.
			c.enqueueAll(ctx, v1alpha1.SyncControllerChanged, func(parent.Key, *object.Object) bool { return true })
		default: // The events of the start enqueue them.
		}
		c.queue.Resume()
		c.retries.raise()
	}
}
