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
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/record"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/claim"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Recorder records what happened to children on their parent.
type Recorder interface {
	// Warning records what went wrong.
	Warning(subject *corev1.ObjectReference, reason, message string)
	// Normal records what happened.
	Normal(subject *corev1.ObjectReference, reason, message string)
}

// Config is what a Control needs. All fields are required.
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
	// Informers has the informer for each declared kind.
	Informers    map[schema.GroupKind]*cache.Informer
	Expectations Expectations
	Mine         func(p, o *object.Object) bool
}

// Counters count what happened to the children of a controller. They are safe for concurrent use.
type Counters struct {
	// Conflicts counts children that could not be created because another object has their name, Flapping those that were
	// left alone because they kept changing back.
	Conflicts, Flapping atomic.Int64
}

// Control converges the children of the parents of one controller. It is safe for concurrent use.
type Control struct {
	config Config
	memory *plan.Memory
	// unwritten remembers of which kinds a parent was told that their status is not written.
	unwritten unwritten
}

// New returns a converger that remembers nothing.
func New(c Config) *Control {
	return &Control{config: c, memory: plan.NewMemory(nil)}
}

// Prepare reads what the cluster publishes about the declared kinds, which else the first parents wait for. It returns early
// when ctx ends.
func (c *Control) Prepare(ctx context.Context) {
	for _, kind := range c.config.Rules.Kinds() {
		c.schema(ctx, kind)
	}
}

// Forget drops what is remembered of a parent that is gone.
func (c *Control) Forget(parent types.UID) {
	c.memory.Forget(parent)
	c.unwritten.forget(parent)
}

// Input returns the input of a plan for a parent.
func (c *Control) Input(ctx context.Context, parent *object.Object, observed []*object.Object, desired []children.Desired) plan.Input {
	return plan.Input{
		// What is remembered by the UID must not keep the object in memory, of whose JSON the UID is a part.
		Parent:   types.UID(strings.Clone(string(parent.UID()))),
		Owner:    claim.OwnerOf(parent).Content(),
		Rules:    c.config.Rules,
		Observed: observed,
		Desired:  desired,
		Schema:   func(kind schema.GroupVersionKind) merge.Schema { return c.schema(ctx, kind) },
		Read:     c.config.Applier.Reader(ctx),
		Manager:  c.config.Manager,
		Memory:   c.memory,
	}
}

// Response returns what stands for the children of a response; see [plan.Memory.Response].
func (c *Control) Fingerprint(children []byte, scope string) record.Fingerprint {
	return record.Fingerprint(c.memory.Response(children, scope))
}

// Gather is a placeholder.
func (c *Control) Gather(ctx context.Context, parent *object.Object, observed []*object.Object, desired []children.Desired) (plan.Input, error) {
	return c.Input(ctx, parent, observed, desired), nil
}

type Expectations interface {
	Wrote(key parent.Key, informer *cache.Informer, written *object.Object)
	Deleted(key parent.Key, informer *cache.Informer, o *object.Object)
}

// Settled reports whether Children would do nothing for a response that it was given before.
func (c *Control) Settled(parent types.UID, a record.Fingerprint, observed []*object.Object) bool {
	return c.memory.Settled(parent, plan.Response(a), observed)
}

// Children makes the observed children the desired ones, which were read from the response a, or from several if that is zero. It
// returns the time after which to look again, 0 for none: a child that flaps is left alone for a while.
func (c *Control) Reconcile(ctx context.Context, key parent.Key, parent *object.Object, in plan.Input, a record.Fingerprint) (time.Duration, error) {
	p, errPlan := plan.Make(in)
	var outcomes []apply.Outcome
	var errApply error
	if p.Writes() > 0 {
		outcomes, errApply = c.config.Applier.Apply(ctx, parent.String(), in, p)
	}
	for i := range outcomes {
		c.expect(key, &outcomes[i])
	}
	// Whether a parent must be told of a status depends on the child as it is observed.
	if a != 0 && !setsStatus(in.Desired) {
		c.memory.Responded(in.Parent, plan.Response(a), p)
	}
	c.tell(ctx, parent, p, outcomes)
	c.tellStatus(parent, in)
	c.countConflicts(errApply)
	var again time.Duration
	if len(p.News) > 0 || c.flaps(p) {
		again = c.memory.RetryAfter(parent.UID())
	}
	return again, errors.Join(errPlan, errApply)
}

func (c *Control) flaps(p plan.Plan) bool {
	for i := range p.Steps {
		if p.Steps[i].Reason == plan.Flapping {
			return true
		}
	}
	return false
}

// expect lets the parent wait until the cache shows what was done.
func (c *Control) expect(key parent.Key, o *apply.Outcome) {
	informer := c.config.Informers[o.GroupKind()]
	if !o.Done || informer == nil {
		return
	}
	if o.Written != nil {
		c.config.Expectations.Wrote(key, informer, o.Written)
		return
	}
	c.config.Expectations.Deleted(key, informer, o.Observed)
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

// schema returns what the cluster publishes about a kind. Without it lists are merged by guessing.
func (c *Control) schema(ctx context.Context, kind schema.GroupVersionKind) merge.Schema {
	found, err := c.config.Cluster.Discovery.Schema(ctx, kind)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Schema is not known; lists are merged by guessing", "kind", kind, "err", err)
		return nil
	}
	return merge.SchemaOf(found)
}
