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

package composite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/customize"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/dependencies"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/informers"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Controller runs one CompositeController. It implements supervisor.Instance.
type Controller struct {
	shared *dependencies.Shared
	spec   *v1alpha1.CompositeControllerSpec
	name   string

	parentResource discovery.Resource
	parentSelector labels.Selector
	childResources []discovery.Resource
	rules          children.Rules
	ignoreStatus   bool
	finalizer      parent.Finalizer
	// finalizedOnce says that the controller has, or once had, a finalize hook.
	finalizedOnce bool
	hooks         *hookclient.Set
	planner       *rollout.Planner

	watching  *informers.Set
	parents   *cache.Informer
	children  []*cache.Informer // as childResources
	revisions *cache.Informer   // nil unless something rolls

	selectors     *selectors
	echoes        parent.Echoes
	converger     *childcontrol.Control
	childCounters childcontrol.Counters
	customizer    *customize.Customizer
	loop          *worker.Loop
	counters      worker.Counters
	clock         clock.WithTicker

	// encoded is the controller as hooks see it.
	encoded atomic.Pointer[[]byte]
	started chan struct{}
}

var _ supervisor.Instance = &Controller{}

// New builds the controller of a definition. It resolves everything that the definition names, and watches nothing yet.
func New(ctx context.Context, shared *dependencies.Shared, definition *v1alpha1.CompositeController) (*Controller, error) {
	c := &Controller{
		shared: shared, spec: &definition.Spec, name: definition.Name, started: make(chan struct{}), clock: clock.RealClock{},
	}
	if err := c.resolve(ctx); err != nil {
		return nil, err
	}
	if err := c.Redefine(supervisor.Definition{Composite: definition}); err != nil {
		return nil, err
	}
	declared := definition.Spec.Hooks
	if declared == nil || declared.Sync == nil && declared.Finalize == nil {
		return nil, &supervisor.InvalidError{Reason: "no hooks defined; set spec.hooks.sync"}
	}
	c.finalizer = parent.Finalizer{Name: parent.CompositeFinalizer(c.name), Enabled: declared.Finalize != nil}
	c.finalizedOnce = slices.Contains(definition.Finalizers, supervisor.HoldFinalizer)
	set, err := hookclient.New(shared.HookConfig(supervisor.KindComposite, c.name, c.spec.EndpointConfigs, c.workers()),
		declared.Sync, declared.Finalize, declared.Customize)
	if err != nil {
		return nil, &supervisor.InvalidError{Reason: err.Error()}
	}
	c.hooks = set
	c.prepare()
	return c, nil
}

// resolve finds the kinds that the definition names.
func (c *Controller) resolve(ctx context.Context) error {
	var err error
	rule := &c.spec.ParentResource
	if c.parentResource, err = c.shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource); err != nil {
		return fmt.Errorf("parent resource: %w", err)
	}
	if c.parentSelector, err = selectorOf(rule.LabelSelector); err != nil {
		return &supervisor.InvalidError{Reason: fmt.Sprintf("spec.parentResource.labelSelector: %v", err)}
	}
	c.ignoreStatus = rule.IgnoreStatusChanges != nil && *rule.IgnoreStatusChanges
	rolling := map[schema.GroupKind]rollout.Rule{}
	var rules []children.Rule
	for i := range c.spec.ChildResources {
		rule := &c.spec.ChildResources[i]
		resource, err := c.shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource)
		if err != nil {
			return fmt.Errorf("child resource: %w", err)
		}
		c.childResources = append(c.childResources, resource)
		kind := resource.GroupVersionKind()
		declared := children.Rule{
			Kind: kind, Resource: resource.GroupVersionResource, Namespaced: resource.Namespaced, HasStatus: resource.HasStatus,
		}
		c.shared.Options.ApplyTo(&declared, "", nil)
		if strategy := rule.UpdateStrategy; strategy != nil {
			declared.Method = strategy.Method
			c.shared.Options.ApplyTo(&declared, strategy.Apply, strategy.Force)
		}
		rules = append(rules, declared)
		delete(rolling, kind.GroupKind())
		if rolls, ok := rollout.RuleOf(rule.UpdateStrategy); ok {
			rolling[kind.GroupKind()] = rolls
		}
	}
	c.rules = children.NewRules(rules)
	config := rollout.Config{
		Resource: c.parentResource.GroupVersionResource, Kind: c.parentResource.Kind, GenerateSelector: c.generatesSelector(),
		Namespace: c.shared.Options.ServerNamespace, Rules: rolling,
	}
	if history := c.spec.ParentResource.RevisionHistory; history != nil {
		config.FieldPaths = history.FieldPaths
	}
	c.planner = rollout.New(config)
	return nil
}

// Redefine implements supervisor.Instance.
func (c *Controller) Redefine(d supervisor.Definition) error {
	encoded, err := wire.EncodeComposite(d.Composite, wire.EncodeOptions{ManagedFields: c.shared.Options.HookManagedFields})
	if err != nil {
		return err
	}
	c.encoded.Store(&encoded)
	return nil
}

// Started implements supervisor.Instance.
func (c *Controller) Started() <-chan struct{} { return c.started }

// Problem implements supervisor.Instance.
func (c *Controller) Problem() error {
	return c.watching.Problem()
}

// Counters implements supervisor.Instance.
func (c *Controller) Counters() *v1alpha1.ControllerCounters {
	snapshot := c.counters.Snapshot(c.selectors.len())
	snapshot.Conflicts, snapshot.Flapping = c.childCounters.Conflicts.Load(), c.childCounters.Flapping.Load()
	return snapshot
}

// prepare acquires what Run needs, so that what Run shares with other goroutines is there from the beginning.
func (c *Controller) prepare() {
	c.selectors = newSelectors(c.generatesSelector())
	c.watching = informers.New(c.shared.Cluster.Barrier)
	c.parents = c.watching.Acquire(c.shared.Cluster.Cache, c.parentQuery())
	informers := map[schema.GroupKind]*cache.Informer{}
	for _, r := range c.childResources {
		informer := c.watching.Acquire(c.shared.Cluster.Cache, cache.Query{Resource: r.GroupVersionResource})
		c.children = append(c.children, informer)
		informers[r.GroupVersionKind().GroupKind()] = informer
	}
	if c.planner.Active() {
		c.revisions = c.watching.Acquire(c.shared.Own.Cache, cache.Query{Resource: revisionResource})
	}
	c.loop = worker.New(worker.Config{
		Name: supervisor.KindComposite + "-" + c.name, Workers: hookclient.Syncs(c.workers()), Sync: c.sync, Ready: c.ready, Failed: c.failed,
		Counters: &c.counters,
	})
	c.customizer = customize.New(customize.Config{
		Hook: c.hooks.Customize, Cluster: c.shared.Cluster, Watching: c.watching,
		Enqueue: func(key parent.Key) { c.loop.Enqueue(key, workqueue.Live) },
	})
	c.converger = childcontrol.New(childcontrol.Config{
		Cluster: c.shared.Cluster, Applier: c.shared.Applier, Recorder: c.shared.Recorder, Counters: &c.childCounters,
		Expectations: dependencies.Expectations{Barrier: c.shared.Cluster.Barrier, UID: c.uidOf}, Mine: c.mine,
		Manager: c.shared.Options.FieldManagerOf("CompositeController", c.name), Rules: c.rules, Informers: informers,
	})
}

// parentQuery lets the API server leave out parents that are not selected. With a finalize hook, now or formerly, those
// may carry the controller's finalizer and must be seen.
func (c *Controller) parentQuery() cache.Query {
	q := cache.Query{Resource: c.parentResource.GroupVersionResource}
	if !c.finalizer.Enabled && !c.finalizedOnce && !c.parentSelector.Empty() {
		q.LabelSelector = c.parentSelector.String()
	}
	return q
}

// Run implements supervisor.Instance.
func (c *Controller) Run(ctx context.Context) {
	defer c.hooks.Close()
	defer c.watching.Release()
	var running sync.WaitGroup
	defer running.Wait()
	if !c.watching.Await(ctx) {
		// The loop has a goroutine that ends with its run.
		c.loop.Run(ctx)
		return
	}
	// Parents first: a child's event is for a parent that is known.
	c.watching.Subscribe(c.parents, c.parentEvent)
	for _, informer := range c.distinctChildren() {
		c.watching.Subscribe(informer, c.childEvent)
	}
	running.Go(func() {
		worker.Every(ctx, c.clock, c.shared.Options.ResyncPeriod(c.spec.ResyncPeriodSeconds), c.resync)
	})
	defer c.shared.Cluster.Credentials.Subscribe(c.credentialsChanged)()
	if c.hooks.Customize != nil {
		// A rule may name a kind that was not served.
		defer c.shared.Cluster.Discovery.Subscribe(c.loop.RetryFailed)()
	}
	running.Go(func() { c.converger.Prepare(ctx) })
	close(c.started)
	c.loop.Run(ctx)
}

// credentialsChanged retries what failed for want of good credentials, perhaps.
func (c *Controller) credentialsChanged(r credentials.Reference) {
	if c.hooks.Reads(webhook.Reference(r)) {
		c.loop.RetryFailed()
	}
}

// distinctChildren returns every child informer once, though two rules may name one resource.
func (c *Controller) distinctChildren() []*cache.Informer {
	seen := map[*cache.Informer]bool{}
	var list []*cache.Informer
	for _, informer := range c.children {
		if !seen[informer] {
			seen[informer] = true
			list = append(list, informer)
		}
	}
	return list
}

// resync asks for a sync of every parent (docs/reference/contract.md#s5.3).
func (c *Controller) resync() {
	for o := range c.parents.All("") {
		if c.relevant(o) {
			c.loop.Enqueue(c.keyOf(o), workqueue.Resync)
		}
	}
}

// ready holds a parent back until the cache shows what its last sync wrote.
func (c *Controller) ready(key parent.Key, wake func()) bool {
	o, ok := c.parents.Get(key.Namespace, key.Name)
	return !ok || c.shared.Cluster.Barrier.Ready(o.UID(), wake)
}

// failed records a failed sync on the parent.
func (c *Controller) failed(key parent.Key, err error) {
	if hook.IsRejected(err) {
		c.counters.Rejected.Add(1)
	}
	if o, ok := c.parents.Get(key.Namespace, key.Name); ok {
		c.shared.Recorder.Warning(childcontrol.Reference(o), eventrecorder.ReasonSyncError, "Sync error: "+err.Error())
	}
}

func (c *Controller) workers() int { return c.shared.Options.WorkersOr(c.spec.Workers) }

func (c *Controller) generatesSelector() bool {
	return c.spec.GenerateSelector != nil && *c.spec.GenerateSelector
}

func selectorOf(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(selector)
}

var errNoHook = errors.New("no enabled hooks found")

// logger returns the logger of a sync.
func logger(ctx context.Context) klog.Logger { return klog.FromContext(ctx) }

// uidOf returns the UID of a parent, empty if it is gone.
func (c *Controller) uidOf(key parent.Key) types.UID {
	if o, ok := c.parents.Get(key.Namespace, key.Name); ok {
		return o.UID()
	}
	return ""
}

// mine reports whether an object that a parent controls is a child of this controller.
func (c *Controller) mine(o, existing *object.Object) bool {
	selector, err := c.selectors.of(c.keyOf(o), o)
	return err == nil && selector.Matches(existing.LabelSet())
}
