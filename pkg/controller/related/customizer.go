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

package related

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/trigger"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Config is what a Customizer needs. All fields are required, except Hook, Access, Triggers and Gone.
type Config struct {
	// Hook is the customize hook. Nil: there are no related objects.
	Hook *hookclient.Hook
	// Cluster has the related objects.
	Cluster *cluster.Cluster
	// Informers takes the informers of related objects.
	Informers *expectations.Informers
	// Access says whether hooks may be shown the related objects. Nil: they may.
	Access *access.Access
	// Enqueue asks for a sync of a parent to which an object is related that changed, and says how.
	Enqueue func(key parent.Key, e cache.Event, why trigger.Trigger)
	// Triggers says that Enqueue is told how the object changed. False: it is told the zero Trigger.
	Triggers bool
	// Gone is told of the types that a response names, and the cluster does not serve, about a parent that is finalized.
	Gone func(key parent.Key, o *object.Object, gone []Type)
}

// Customizer finds related objects. It is safe for concurrent use.
type Customizer struct {
	config    Config
	responses *Responses[parent.Key]
	index     *Index[parent.Key]

	// namespaces is the informer of namespaces, from before the index has rules that need it. Handlers use it, which must not acquire it.
	namespaces atomic.Pointer[watching]

	mu sync.Mutex
	// watches are those of the resources that are in use, and parents has what each parent uses.
	watches map[schema.GroupVersionResource]*watch
	parents map[parent.Key]uses
}

// New returns a customizer.
func New(c Config) *Customizer {
	z := &Customizer{
		config: c, responses: NewResponses[parent.Key](),
		watches: map[schema.GroupVersionResource]*watch{}, parents: map[parent.Key]uses{},
	}
	z.index = NewIndex[parent.Key](z.namespaceLabels)
	return z
}

// Asked is what the hook is asked about.
type Asked struct {
	// Key names the parent, Root is how hooks' caches know it, and Parent is the parent.
	Key    parent.Key
	Root   webhook.RootKey
	Parent *object.Object
	// Controller is the controller as hooks see it.
	Controller []byte
	// Finalizing says that the finalize hook is shown the objects. It needs no kind that the cluster does not serve.
	Finalizing bool
}

// Related returns the related objects of a parent. The error is a *worker.WaitError while the objects are not all known.
func (z *Customizer) Related(ctx context.Context, a Asked) ([]wire.Group, error) {
	if z.config.Hook == nil {
		return nil, nil
	}
	rules, ok := z.responses.Get(a.Key, a.Controller, a.Parent)
	if !ok {
		z.responses.Asking(a.Key)
		response, err := z.config.Hook.Related(ctx, a.Root, wire.Customize(a.Controller, a.Parent))
		if err != nil {
			return nil, err
		}
		if rules, err = z.compile(ctx, z.config.Hook, a, response); err != nil {
			return nil, err
		}
		z.responses.Put(a.Key, a.Controller, a.Parent, rules)
		if gone := rules.Gone(); len(gone) > 0 && z.config.Gone != nil {
			z.config.Gone(a.Key, a.Parent, gone)
		}
	}
	if err := z.config.Access.Relate(ctx, a.Key, groups(rules)); err != nil {
		return nil, z.config.Hook.Failed(err)
	}
	used := z.use(rules)
	// Last: informers stay while the index names them, and those of the present rules while they are read.
	defer z.keep(a.Key, used)
	// The index comes first: what changes from here on enqueues the parent.
	z.index.Update(a.Key, rules)
	groups, err := Select(rules, used.informers)
	if missing, ok := errors.AsType[*NotSyncedError](err); ok {
		return nil, &worker.WaitError{For: missing.Error(), Done: func(ctx context.Context) bool { return used.await(ctx, missing) }}
	}
	if err != nil {
		return nil, err
	}
	result := make([]wire.Group, len(groups))
	for i, g := range groups {
		result[i] = wire.GroupOf(g.Key, g.Objects)
	}
	return result, nil
}

// AskAgain has the next sync of a parent that begins after this ask the hook, which may have changed. The parent has to be enqueued.
func (z *Customizer) AskAgain(key parent.Key) {
	if z.config.Hook != nil {
		z.responses.AskAgain(key)
	}
}

// Len returns the number of parents of whose responses something is remembered.
func (z *Customizer) Len() int { return z.responses.Len() }

// Forget drops what is known of a parent that is gone, and gives back the informers that only it needed. Handlers may call it. A sync
// that is under way may remember the parent again.
func (z *Customizer) Forget(key parent.Key) {
	z.index.Remove(key)
	z.config.Access.Forget(key)
	z.keep(key, nil)
	z.responses.Remove(key)
}

// groups returns the resources that rules need, without their versions.
func groups(rules Rules) []schema.GroupResource {
	var list []schema.GroupResource
	for _, r := range rules.Resources() {
		list = append(list, r.GroupResource())
	}
	return list
}

// compile reads the rules of a response of hook.
func (z *Customizer) compile(ctx context.Context, called *hookclient.Hook, a Asked, response *wire.CustomizeResponse) (Rules, error) {
	resolve := z.resolve
	if a.Finalizing {
		resolve = z.resolveOrGone
	}
	rules, err := Compile(ctx, response.Rules, Scope{Version: called.Version, Namespace: a.Parent.Namespace()}, resolve)
	if refused, ok := errors.AsType[*RuleError](err); ok {
		return Rules{}, called.Reject(a.Root, &hook.RejectedError{Detail: refused.Error()})
	}
	called.Used()
	if err != nil {
		return Rules{}, called.Failed(err)
	}
	return rules, nil
}

// changed wakes the parents to which an object is related.
func (z *Customizer) changed(r schema.GroupVersionResource, e cache.Event) {
	if e.Initial {
		return
	}
	var keys []parent.Key
	switch e.Type {
	case cache.Added:
		keys = z.index.Affected(r, e.New.Namespace(), e.New.Name(), e.New.Labels())
	case cache.Deleted:
		keys = z.index.Affected(r, e.Old.Namespace(), e.Old.Name(), e.Old.Labels())
	case cache.Updated:
		keys = z.index.Affected(r, e.New.Namespace(), e.New.Name(), e.Old.Labels(), e.New.Labels())
	}
	if r == namespaces {
		keys = append(keys, z.namespaceChanged(e)...)
	}
	if len(keys) == 0 {
		return
	}
	var why trigger.Trigger
	if z.config.Triggers {
		why = trigger.OfObject(v1alpha1.SyncRelatedChanged, r.GroupResource(), e.Old, e.New)
	}
	for _, key := range keys {
		z.config.Enqueue(key, e, why)
	}
}

func (z *Customizer) namespaceChanged(e cache.Event) []parent.Key {
	switch e.Type {
	case cache.Added:
		return z.index.NamespaceCameOrWent(e.New.Labels())
	case cache.Updated:
		return z.index.NamespaceChanged(e.Old.Labels(), e.New.Labels())
	case cache.Deleted:
		return z.index.NamespaceCameOrWent(e.Old.Labels())
	}
	return nil
}

func (z *Customizer) namespaceLabels(name string) (map[string]string, bool) {
	w := z.namespaces.Load()
	if w == nil {
		return nil, false
	}
	o, ok := w.informer.Get("", name)
	if !ok {
		return nil, false
	}
	return o.Labels(), true
}

// watch is the use of the informer of a resource by all parents whose rules name it.
type watch struct {
	resource schema.GroupVersionResource
	uses     int
	// start acquires the informer and subscribes to it. It returns when that is done, whichever sync called it first.
	start func() *watching
}

type watching struct {
	informer *cache.Informer
	release  func()
}

// uses are the watches that a parent's rules need, by resource.
type uses map[schema.GroupVersionResource]*watch

func (u uses) informers(r schema.GroupVersionResource) Informer { return u.informer(r) }

func (u uses) informer(r schema.GroupVersionResource) *cache.Informer { return u[r].start().informer }

// await waits until the informers are filled. It reports whether they are before ctx ends.
func (u uses) await(ctx context.Context, missing *NotSyncedError) bool {
	for _, r := range missing.Resources {
		select {
		case <-u.informer(r).Synced():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// use takes the informers that rules need. A declared child kind may be related too, so an informer may be there already for another
// purpose.
func (z *Customizer) use(rules Rules) uses {
	u := z.count(rules.Resources())
	for _, w := range u {
		w.start()
	}
	return u
}

func (z *Customizer) count(resources []schema.GroupVersionResource) uses {
	z.mu.Lock()
	defer z.mu.Unlock()
	u := uses{}
	for _, r := range resources {
		w, ok := z.watches[r]
		if !ok {
			w = &watch{resource: r}
			w.start = sync.OnceValue(func() *watching { return z.start(w) })
			z.watches[r] = w
		}
		w.uses++
		u[r] = w
	}
	return u
}

func (z *Customizer) start(w *watch) *watching {
	started := &watching{}
	started.informer, started.release = z.config.Informers.Watch(z.config.Cluster.Cache, cache.Query{Resource: w.resource},
		func(e cache.Event) { z.changed(w.resource, e) })
	if w.resource == namespaces {
		z.namespaces.Store(started)
	}
	return started
}

// keep holds the informers of a parent's present rules, nil for none, and gives back those that only its former rules needed.
func (z *Customizer) keep(key parent.Key, present uses) {
	z.giveBack(z.unused(key, present))
}

func (z *Customizer) giveBack(unused []*watch) {
	for _, w := range unused {
		given := w.start()
		z.namespaces.CompareAndSwap(given, nil)
		given.release()
	}
}

// unused returns the watches that no parent uses any more.
func (z *Customizer) unused(key parent.Key, present uses) []*watch {
	z.mu.Lock()
	defer z.mu.Unlock()
	former := z.parents[key]
	delete(z.parents, key)
	if len(present) > 0 {
		z.parents[key] = present
	}
	return z.drop(former)
}

// drop ends uses, and returns the watches that nothing uses any more. It is called with the lock held.
func (z *Customizer) drop(former uses) (unused []*watch) {
	for r, w := range former {
		if w.uses--; w.uses == 0 {
			delete(z.watches, r)
			unused = append(unused, w)
		}
	}
	return unused
}

// Asking is how Look gets the response of the customize hook.
type Asking struct {
	// Hook is a quiet one, by which the rules are read.
	Hook *hookclient.Hook
	// Ask calls the hook, or gives a response in place of it.
	Ask func(ctx context.Context) (*wire.CustomizeResponse, error)
	// Given says that Ask counts even where a response is remembered.
	Given bool
	// Permit is asked before objects are looked for by what Ask returned. Its error is that of Look. Nil: all is permitted.
	Permit func(ctx context.Context, reaches []Reach) error
}

// Look returns the related objects of a parent as [Customizer.Related] does, and remembers nothing of it: neither the response, nor that
// the parent is related to objects. It waits for caches that are not filled until ctx ends.
func (z *Customizer) Look(ctx context.Context, a Asked, by Asking) ([]Group, error) {
	if z.config.Hook == nil {
		return nil, nil
	}
	rules, ok := z.responses.Get(a.Key, a.Controller, a.Parent)
	if !ok || by.Given {
		response, err := by.Ask(ctx)
		if err != nil {
			return nil, err
		}
		if rules, err = z.compile(ctx, by.Hook, a, response); err != nil {
			return nil, err
		}
		if by.Permit != nil {
			if err := by.Permit(ctx, rules.Reaches()); err != nil {
				return nil, err
			}
		}
	}
	if err := z.config.Access.Permits(ctx, groups(rules)); err != nil {
		return nil, by.Hook.Failed(err)
	}
	used := z.use(rules)
	defer z.unuse(used)
	groups, err := Select(rules, used.informers)
	if missing, ok := errors.AsType[*NotSyncedError](err); ok {
		if !used.await(ctx, missing) {
			return nil, fmt.Errorf("%w: %w", missing, context.Cause(ctx))
		}
		groups, err = Select(rules, used.informers)
	}
	return groups, err
}

// Remembers reports whether a sync of a parent would not call the hook, because its response is remembered.
func (z *Customizer) Remembers(key parent.Key, controller []byte, parent *object.Object) bool {
	_, ok := z.responses.Get(key, controller, parent)
	return ok
}

// unuse gives back what use took.
func (z *Customizer) unuse(u uses) {
	z.giveBack(func() []*watch {
		z.mu.Lock()
		defer z.mu.Unlock()
		return z.drop(u)
	}())
}

// KindsChanged compares the kinds that rules name with those that the cluster serves now. It drops the responses that name one that is not
// served any more, or in another way, and returns their parents, whose hook is to be asked again. Informers of resources that are not
// served any more are given back. It may wait for the API server.
//
// A sync that is under way may remember what it read before. Discovery notifies several times after a change, and the next call finds that.
func (z *Customizer) KindsChanged(ctx context.Context) []parent.Key {
	outdated := map[Type]struct{}{}
	for _, t := range z.responses.Types() {
		if served, err := z.resolve(ctx, t.Resource.GroupVersion().String(), t.Resource.Resource); unserved(err) && !t.Gone || err == nil && served != t {
			outdated[t] = struct{}{}
		}
	}
	gone := map[schema.GroupVersionResource]struct{}{}
	for _, r := range z.watched() {
		if _, err := z.resolve(ctx, r.GroupVersion().String(), r.Resource); unserved(err) {
			gone[r] = struct{}{}
		}
	}
	// The responses go first: a sync that begins after this asks the hook.
	dropped := z.responses.Drop(outdated)
	z.giveBack(z.abandoned(gone))
	return dropped
}

// errNotListed says that a rule names what is only written, such as the bindings of Pods.
var errNotListed = errors.New("its objects cannot be listed; name another resource")

// resolve finds the type that a rule names.
func (z *Customizer) resolve(ctx context.Context, apiVersion, resource string) (Type, error) {
	r, err := z.config.Cluster.Discovery.Resource(ctx, apiVersion, resource)
	if err == nil && len(r.Verbs) > 0 && !slices.Contains(r.Verbs, rights.List) {
		err = errNotListed // An informer of them would never be filled.
	}
	return Type{Resource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced}, err
}

// resolveOrGone finds the type that a rule names, or that it is gone: an API server that serves it in another version has objects of it.
func (z *Customizer) resolveOrGone(ctx context.Context, apiVersion, resource string) (Type, error) {
	found, err := z.resolve(ctx, apiVersion, resource)
	if !unserved(err) {
		return found, err
	}
	version, _ := schema.ParseGroupVersion(apiVersion) // It was asked for.
	gone := version.WithResource(resource)
	switch served, elsewhere := z.config.Cluster.Discovery.Serving(ctx, gone.GroupResource()); {
	case elsewhere == nil:
		return found, fmt.Errorf("%w; it is served as %s, which the customize hook has to name", err, served.APIVersion())
	case !unserved(elsewhere):
		return found, elsewhere
	}
	found, _ = z.index.Type(gone)
	found.Resource, found.Gone = gone, true
	return found, nil
}

// unserved reports whether an error says that a kind is not served. Others say nothing about it.
func unserved(err error) bool {
	_, ok := errors.AsType[*discovery.NotFoundError](err)
	return ok
}

// watched returns the resources whose informers are in use.
func (z *Customizer) watched() []schema.GroupVersionResource {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Collect(maps.Keys(z.watches))
}

// abandoned ends what parents use of resources, and returns the watches that nothing uses any more.
func (z *Customizer) abandoned(gone map[schema.GroupVersionResource]struct{}) (unused []*watch) {
	if len(gone) == 0 {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for key, used := range z.parents {
		// A sync that waits for informers reads the uses: they are replaced, not changed.
		kept, ended := uses{}, uses{}
		for r, w := range used {
			if _, is := gone[r]; is {
				ended[r] = w
			} else {
				kept[r] = w
			}
		}
		if len(ended) == 0 {
			continue
		}
		if z.parents[key] = kept; len(kept) == 0 {
			delete(z.parents, key)
		}
		unused = append(unused, z.drop(ended)...)
	}
	return unused
}
