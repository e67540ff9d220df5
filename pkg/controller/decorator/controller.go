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

package decorator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/informers"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// Marker is the annotation by which a decorator knows its attachments; its value is the controller's name (docs/reference/contract.md#s17.2).
const Marker = "metacontroller.k8s.io/decorator-controller"

// Controller runs one DecoratorController. It implements supervisor.Instance.
type Controller struct {
	shared *dependencies.Shared
	spec   *v1alpha1.DecoratorControllerSpec
	name   string

	rules           map[schema.GroupResource]*rule
	rulesByKind     map[schema.GroupKind]*rule
	attachments     []attachment
	attachmentRules children.Rules
	finalizer       parent.Finalizer
	// finalizedOnce says that the controller has, or once had, a finalize hook.
	finalizedOnce bool
	hooks         *hookclient.Set

	watching      *informers.Set
	converger     *childcontrol.Control
	childCounters childcontrol.Counters
	customizer    *customize.Customizer
	loop          *worker.Loop
	counters      worker.Counters
	targets       targets
	echoes        parent.Echoes
	clock         clock.WithTicker

	// encoded is the controller as hooks see it.
	encoded atomic.Pointer[[]byte]
	started chan struct{}
}

// attachment is a declared kind of attachments.
type attachment struct {
	resource discovery.Resource
	informer *cache.Informer
}

var _ supervisor.Instance = &Controller{}

// New builds the controller of a definition. It resolves everything that the definition names, and watches nothing yet.
func New(ctx context.Context, shared *dependencies.Shared, definition *v1alpha1.DecoratorController) (*Controller, error) {
	c := &Controller{
		shared: shared, spec: &definition.Spec, name: definition.Name, started: make(chan struct{}), clock: clock.RealClock{},
		rules: map[schema.GroupResource]*rule{}, rulesByKind: map[schema.GroupKind]*rule{},
	}
	declared := definition.Spec.Hooks
	if declared == nil || declared.Sync == nil && declared.Finalize == nil {
		return nil, &supervisor.InvalidError{Reason: "no hooks defined; set spec.hooks.sync"}
	}
	if err := c.resolveTargets(ctx); err != nil {
		return nil, err
	}
	if err := c.resolveAttachments(ctx); err != nil {
		return nil, err
	}
	if err := c.Redefine(supervisor.Definition{Decorator: definition}); err != nil {
		return nil, err
	}
	c.finalizer = parent.Finalizer{Name: parent.DecoratorFinalizer(c.name), Enabled: declared.Finalize != nil}
	c.finalizedOnce = slices.Contains(definition.Finalizers, supervisor.HoldFinalizer)
	set, err := hookclient.New(shared.HookConfig(supervisor.KindDecorator, c.name, c.spec.EndpointConfigs, c.workers()),
		declared.Sync, declared.Finalize, declared.Customize)
	if err != nil {
		return nil, &supervisor.InvalidError{Reason: err.Error()}
	}
	c.hooks = set
	c.prepare()
	return c, nil
}

// resolveTargets finds the kinds of the targets. Of two rules for one kind the last one counts.
func (c *Controller) resolveTargets(ctx context.Context) error {
	for i := range c.spec.Resources {
		declared := &c.spec.Resources[i]
		resource, err := c.shared.Cluster.Discovery.Resource(ctx, declared.APIVersion, declared.Resource)
		if err != nil {
			return fmt.Errorf("resource: %w", err)
		}
		selector, err := newSelector(declared)
		if err != nil {
			return &supervisor.InvalidError{Reason: fmt.Sprintf("spec.resources[%d].%v", i, err)}
		}
		r := &rule{
			resource: resource, selector: selector,
			ignoreStatus: declared.IgnoreStatusChanges != nil && *declared.IgnoreStatusChanges,
		}
		c.rules[resource.GroupResource()] = r
		c.rulesByKind[resource.GroupVersionKind().GroupKind()] = r
	}
	return nil
}

// resolveAttachments finds the kinds of the attachments.
func (c *Controller) resolveAttachments(ctx context.Context) error {
	var rules []children.Rule
	for i := range c.spec.Attachments {
		declared := &c.spec.Attachments[i]
		resource, err := c.shared.Cluster.Discovery.Resource(ctx, declared.APIVersion, declared.Resource)
		if err != nil {
			return fmt.Errorf("attachment: %w", err)
		}
		rule := children.Rule{
			Kind: resource.GroupVersionKind(), Resource: resource.GroupVersionResource, Namespaced: resource.Namespaced,
			HasStatus: resource.HasStatus, Method: v1alpha1.ChildUpdateOnDelete,
		}
		c.shared.Options.ApplyTo(&rule, "", nil)
		if strategy := declared.UpdateStrategy; strategy != nil {
			rule.Method = strategy.Method
			c.shared.Options.ApplyTo(&rule, strategy.Apply, strategy.Force)
		}
		rules = append(rules, rule)
		c.attachments = append(c.attachments, attachment{resource: resource})
	}
	c.attachmentRules = children.NewRules(rules)
	return nil
}

// Redefine implements supervisor.Instance.
func (c *Controller) Redefine(d supervisor.Definition) error {
	encoded, err := wire.EncodeDecorator(d.Decorator, wire.EncodeOptions{ManagedFields: c.shared.Options.HookManagedFields})
	if err != nil {
		return err
	}
	c.encoded.Store(&encoded)
	return nil
}

// Started implements supervisor.Instance.
func (c *Controller) Started() <-chan struct{} { return c.started }

// Problem implements supervisor.Instance.
func (c *Controller) Problem() error { return c.watching.Problem() }

// Counters implements supervisor.Instance.
func (c *Controller) Counters() *v1alpha1.ControllerCounters {
	snapshot := c.counters.Snapshot(c.targets.len())
	snapshot.Conflicts, snapshot.Flapping = c.childCounters.Conflicts.Load(), c.childCounters.Flapping.Load()
	return snapshot
}

// prepare acquires what Run needs, so that what Run shares with other goroutines is there from the beginning.
func (c *Controller) prepare() {
	c.watching = informers.New(c.shared.Cluster.Barrier)
	for _, r := range c.rules {
		r.informer = c.watching.Acquire(c.shared.Cluster.Cache, c.targetQuery(r))
	}
	informers := map[schema.GroupKind]*cache.Informer{}
	for i := range c.attachments {
		a := &c.attachments[i]
		a.informer = c.watching.Acquire(c.shared.Cluster.Cache, cache.Query{Resource: a.resource.GroupVersionResource})
		informers[a.resource.GroupVersionKind().GroupKind()] = a.informer
	}
	c.loop = worker.New(worker.Config{
		Name: supervisor.KindDecorator + "-" + c.name, Workers: hookclient.Syncs(c.workers()), Sync: c.sync, Ready: c.ready, Failed: c.failed,
		Counters: &c.counters,
	})
	c.customizer = customize.New(customize.Config{
		Hook: c.hooks.Customize, Cluster: c.shared.Cluster, Watching: c.watching,
		Enqueue: func(key parent.Key) { c.loop.Enqueue(key, workqueue.Live) },
	})
	c.converger = childcontrol.New(childcontrol.Config{
		Cluster: c.shared.Cluster, Applier: c.shared.Applier, Recorder: c.shared.Recorder, Counters: &c.childCounters,
		Expectations: dependencies.Expectations{Barrier: c.shared.Cluster.Barrier, UID: c.uidOf}, Mine: func(_, existing *object.Object) bool { return c.marked(existing) },
		Manager: c.shared.Options.FieldManagerOf("DecoratorController", c.name), Rules: c.attachmentRules, Informers: informers,
	})
}

// targetQuery lets the API server leave out objects that the label selector does not select. With a finalize hook, now or
// formerly, those may carry the controller's finalizer and must be seen.
func (c *Controller) targetQuery(r *rule) cache.Query {
	q := cache.Query{Resource: r.resource.GroupVersionResource}
	if !c.finalizer.Enabled && !c.finalizedOnce && !r.selector.labels.Empty() {
		q.LabelSelector = r.selector.labels.String()
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
	// Targets first: an attachment's event is for a target that is known.
	for _, r := range c.rules {
		c.watching.Subscribe(r.informer, func(e cache.Event) { c.targetEvent(r, e) })
	}
	subscribed := map[*cache.Informer]bool{}
	for _, a := range c.attachments {
		if !subscribed[a.informer] {
			subscribed[a.informer] = true
			c.watching.Subscribe(a.informer, c.attachmentEvent)
		}
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

// resync asks for a sync of every target (docs/reference/contract.md#s5.3).
func (c *Controller) resync() {
	for _, r := range c.rules {
		for o := range r.informer.All("") {
			if c.relevant(r, o) {
				c.loop.Enqueue(keyOf(r, o), workqueue.Resync)
			}
		}
	}
}

func (c *Controller) workers() int { return c.shared.Options.WorkersOr(c.spec.Workers) }

// uidOf returns the UID of a target, empty if it is gone.
func (c *Controller) uidOf(key parent.Key) types.UID {
	if _, o, ok := c.find(key); ok {
		return o.UID()
	}
	return ""
}
