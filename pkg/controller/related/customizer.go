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
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Config is what a Customizer needs. All fields are required, except Hook, Access, Triggers and Gone.
type Config struct {
	// Hook is the customize hook. Nil: there are no related objects.
	Hook *hooks.Hook
	// Cluster has the related objects.
	Cluster *cluster.Cluster
	// Informers takes the informers of related objects.
	Informers *expectations.Informers
	// Access says whether hooks may be shown the related objects. Nil: they may.
	Access *access.Access
	// Enqueue asks for a sync of a parent to which an object is related that changed, and says how.
	Enqueue func(key parent.Key, e cache.Event, why history.Trigger)
	// Triggers says that Enqueue is told how the object changed. False: it is told the zero Trigger.
	Triggers bool
	// Parents yields all parents that the controller handles. It is called with a lock held, and must not call the Customizer.
	Parents iter.Seq2[parent.Key, *Parent]
	// Gone is told of the types that a response names, and the cluster does not serve, about a parent that is finalized.
	Gone func(key parent.Key, o *object.Object, gone []Type)
}

// Customizer finds related objects. It is safe for concurrent use.
type Customizer struct {
	config Config
	index  *Index[parent.Key]

	// namespaces is the informer of namespaces, from before the index has rules that need it. Handlers use it, which must not acquire it.
	namespaces atomic.Pointer[watching]

	mu sync.Mutex
	// watches are those of the resources that are in use.
	watches map[schema.GroupVersionResource]*watch
}

// Parent is what is remembered of one parent. It belongs to the Customizer; the zero value is ready.
type Parent struct {
	// left says that nothing is to be remembered any more.
	left bool
	// response is the last one of the hook, nil if the hook has to be called.
	response *response
	// again says that the hook is to be asked again by a call that has not begun.
	again bool
	// posted are the rules by which changes of objects enqueue the parent, and uses the watches that these need.
	posted Posted[parent.Key]
	uses   uses
}

// response is a compiled response of the customize hook (docs/reference/compatibility.md#d16.1). It depends on
//
//   - the parent: it is valid until the spec, labels or annotations change; for kinds without a generation, until anything of the
//     parent but its resourceVersion changes. An API server shows another spec under the same generation when defaults or conversions
//     of the kind change;
//   - the controller that the request held, of which any change counts;
//   - the types that its rules name, as the cluster served them, see [Customizer.KindsChanged];
//   - the hook itself, of whose changes nobody is told, see [Customizer.AskAgain].
type response struct {
	state state
	// controller is that of the request. All responses since its last change share the bytes.
	controller []byte
	rules      Rules
}

// New returns a customizer.
func New(c Config) *Customizer {
	z := &Customizer{config: c, watches: map[schema.GroupVersionResource]*watch{}}
	z.index = NewIndex[parent.Key](z.namespaceLabels)
	return z
}

// Asked is what the hook is asked about.
type Asked struct {
	// Key names the parent, Root is how hooks' caches know it, Known is what is remembered of it, and Parent is the parent.
	Key    parent.Key
	Root   webhook.RootKey
	Known  *Parent
	Parent *object.Object
	// Controller is the controller as hooks see it.
	Controller []byte
	// Finalizing says that the finalize hook is shown the objects. It needs no kind that the cluster does not serve.
	Finalizing bool
}

// Request is what the customize hook is shown.
func (a Asked) Request() hooks.Request {
	return hooks.Request{Request: wire.Request{Controller: a.Controller, Parent: a.Parent}, Encode: wire.Customize}
}

// Related returns the related objects of a parent. The error is a *queue.WaitError while the objects are not all known.
func (z *Customizer) Related(ctx context.Context, a Asked) ([]wire.Group, error) {
	if z.config.Hook == nil {
		return nil, nil
	}
	rules, ok := z.remembered(a)
	if !ok {
		z.asking(a.Known)
		called, err := z.config.Hook.Related(ctx, a.Root, a.Request())
		if err != nil {
			return nil, err
		}
		if rules, err = z.compile(ctx, z.config.Hook, a, called); err != nil {
			return nil, err
		}
		z.remember(a, rules)
		if gone := rules.Gone(); len(gone) > 0 && z.config.Gone != nil {
			z.config.Gone(a.Key, a.Parent, gone)
		}
	}
	if err := z.config.Access.Relate(ctx, groups(rules), true); err != nil {
		return nil, z.config.Hook.Failed(err)
	}
	used := z.use(rules)
	// Last: informers stay while the index names them, and those of the present rules while they are read.
	defer z.keep(a.Known, used)
	// The index comes first: what changes from here on enqueues the parent.
	z.post(a, rules)
	if missing := unsynced(rules, used.informer); len(missing) > 0 {
		return nil, &queue.WaitError{For: listing(missing), Done: func(ctx context.Context) bool { return used.await(ctx, missing) }}
	}
	groups := Select(rules, used.informer)
	result := make([]wire.Group, len(groups))
	for i, g := range groups {
		result[i] = wire.GroupOf(g.Key, g.Objects)
	}
	return result, nil
}

// remembered returns the rules of the response for the controller and the parent as they are; false when the hook must be called.
func (z *Customizer) remembered(a Asked) (Rules, bool) {
	z.mu.Lock()
	known := a.Known.response
	if a.Known.again {
		known = nil
	}
	z.mu.Unlock()
	if known == nil || known.state.uid != a.Parent.UID() || known.state.generation != a.Parent.Generation() ||
		!bytes.Equal(known.controller, a.Controller) || known.state != stateOf(a.Parent) {
		return nil, false
	}
	return known.rules, true
}

// Remembers reports whether a sync of a parent would not call the hook, because its response is remembered.
func (z *Customizer) Remembers(a Asked) bool {
	_, ok := z.remembered(a)
	return ok
}

// remember keeps the response to a request that held the controller, whose bytes are not modified, and the parent as given. Of a call that
// failed nothing is kept.
func (z *Customizer) remember(a Asked, rules Rules) {
	known := &response{state: stateOf(a.Parent), controller: a.Controller, rules: rules}
	z.mu.Lock()
	defer z.mu.Unlock()
	a.Known.response = known
}

// AskAgain has the next sync of a parent that begins after this ask the hook, which may have changed: the response to a call that is under way
// may come from the hook as it was. The parent has to be enqueued.
func (z *Customizer) AskAgain(p *Parent) {
	z.mu.Lock()
	defer z.mu.Unlock()
	p.again = true
}

// asking notes that a call of the hook begins for a parent.
func (z *Customizer) asking(p *Parent) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if p.again {
		p.again, p.response = false, nil // The call may fail.
	}
}

// post has changes of the objects that rules select enqueue the parent.
func (z *Customizer) post(a Asked, rules Rules) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !a.Known.left {
		a.Known.posted = z.index.Replace(a.Known.posted, a.Key, rules)
	}
}

// Len returns the number of parents of which something is remembered.
func (z *Customizer) Len() (n int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, p := range z.config.Parents {
		if p.response != nil || p.again || len(p.uses) > 0 {
			n++
		}
	}
	return n
}

// Resources returns the resources that the remembered responses name.
func (z *Customizer) Resources() sets.Set[schema.GroupResource] {
	z.mu.Lock()
	defer z.mu.Unlock()
	named := sets.New[schema.GroupResource]()
	for _, p := range z.config.Parents {
		if p.response != nil {
			named.Insert(groups(p.response.rules)...)
		}
	}
	return named
}

// Forget drops what is known of a parent that is gone, and gives back the informers that only it needed. Handlers may call it. Of a sync that is
// under way nothing is remembered.
func (z *Customizer) Forget(key parent.Key, p *Parent) {
	z.mu.Lock()
	z.index.Replace(p.posted, key, nil)
	former := p.uses
	*p = Parent{left: true}
	z.mu.Unlock()
	z.end(former)
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
func (z *Customizer) compile(ctx context.Context, called *hooks.Hook, a Asked, response *wire.CustomizeResponse) (Rules, error) {
	resolve := z.resolve
	if a.Finalizing {
		resolve = z.resolveOrGone
	}
	rules, err := Compile(ctx, response.Rules, Scope{Version: called.Version, Namespace: a.Parent.Namespace()}, resolve)
	if wrong, ok := errors.AsType[*RuleError](err); ok && !wrong.Unresolved {
		return nil, called.Reject(a.Root, &hook.RejectedError{Detail: wrong.Error()})
	}
	called.Used()
	if err != nil {
		return nil, called.Failed(err)
	}
	return rules, nil
}

// changed wakes the parents to which an object is related.
func (z *Customizer) changed(r schema.GroupVersionResource, e cache.Event) {
	if e.Initial {
		return
	}
	var o *object.Object
	var states []map[string]string
	for _, state := range []*object.Object{e.Old, e.New} {
		if state != nil {
			o, states = state, append(states, state.Labels())
		}
	}
	keys := z.index.Affected(r, o.Namespace(), o.Name(), states...)
	if r == namespaces {
		keys = append(keys, z.index.NamespaceChanged(states...)...)
	}
	if len(keys) == 0 {
		return
	}
	var why history.Trigger
	if z.config.Triggers {
		why = history.OfObject(v1alpha1.SyncRelatedChanged, r.GroupResource(), e.Old, e.New)
	}
	for _, key := range keys {
		z.config.Enqueue(key, e, why)
	}
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

// uses are the watches that a parent's rules need. They are replaced, not changed: a sync that waits for informers reads them.
type uses []*watch

func (u uses) informer(r schema.GroupVersionResource) Informer { return u.of(r) }

func (u uses) of(r schema.GroupVersionResource) *cache.Informer {
	return u[slices.IndexFunc(u, func(w *watch) bool { return w.resource == r })].start().informer
}

// await waits until the informers are filled. It reports whether they are before ctx ends.
func (u uses) await(ctx context.Context, missing []schema.GroupVersionResource) bool {
	for _, r := range missing {
		select {
		case <-u.of(r).Synced():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// use takes the informers that rules need. A declared child kind may be related too, so an informer may be there already for another
// purpose.
func (z *Customizer) use(rules Rules) uses {
	var u uses
	z.mu.Lock()
	for _, r := range rules.Resources() {
		w, ok := z.watches[r]
		if !ok {
			w = &watch{resource: r}
			w.start = sync.OnceValue(func() *watching { return z.start(w) })
			z.watches[r] = w
		}
		w.uses++
		u = append(u, w)
	}
	z.mu.Unlock()
	for _, w := range u {
		w.start()
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

// keep holds the informers of a parent's present rules, and ends the uses of those of its former rules.
func (z *Customizer) keep(p *Parent, present uses) {
	z.mu.Lock()
	if !p.left {
		p.uses, present = present, p.uses
	}
	z.mu.Unlock()
	z.end(present)
}

// end ends uses, and gives informers back that nothing uses any more. It is called without the lock.
func (z *Customizer) end(former uses) {
	var unused uses
	z.mu.Lock()
	for _, w := range former {
		if w.uses--; w.uses == 0 {
			delete(z.watches, w.resource)
			unused = append(unused, w)
		}
	}
	z.mu.Unlock()
	for _, w := range unused {
		given := w.start()
		z.namespaces.CompareAndSwap(given, nil)
		given.release()
	}
}

// Asking is how Look gets the response of the customize hook.
type Asking struct {
	// Hook is a quiet one, by which the rules are read.
	Hook *hooks.Hook
	// Ask calls the hook, or gives a response in place of it.
	Ask func(ctx context.Context) (*wire.CustomizeResponse, error)
	// Given says that Ask counts even where a response is remembered.
	Given bool
	// Confined is the only namespace of which objects are shown, empty if it is not the only one.
	Confined string
	// Permit is asked before objects are looked for, in places, by what Ask returned. Its error is that of Look. Nil: all is permitted.
	Permit func(ctx context.Context, places []inspection.Place) error
}

// Look returns the related objects of a parent as [Customizer.Related] does, and remembers nothing of it: neither the response, nor that
// the parent is related to objects. It waits for caches that are not filled until ctx ends.
func (z *Customizer) Look(ctx context.Context, a Asked, by Asking) ([]Group, error) {
	if z.config.Hook == nil {
		return nil, nil
	}
	rules, ok := z.remembered(a)
	if !ok || by.Given {
		response, err := by.Ask(ctx)
		if err != nil {
			return nil, err
		}
		if rules, err = z.compile(ctx, by.Hook, a, response); err != nil {
			return nil, err
		}
		if by.Permit != nil {
			if err := by.Permit(ctx, rules.places(by.Confined)); err != nil {
				return nil, err
			}
		}
	}
	if err := z.config.Access.Relate(ctx, groups(rules), false); err != nil {
		return nil, by.Hook.Failed(err)
	}
	used := z.use(rules)
	defer z.end(used)
	if missing := unsynced(rules, used.informer); !used.await(ctx, missing) {
		return nil, fmt.Errorf("%s: %w", listing(missing), context.Cause(ctx))
	}
	return Select(rules, used.informer), nil
}

// KindsChanged compares the kinds that rules name with those that the cluster serves now. It drops the responses that name one that is not
// served any more, or in another way, and returns their parents, whose hook is to be asked again. Informers of resources that are not
// served any more are given back. It may wait for the API server.
//
// A sync that is under way may remember what it read before. Discovery notifies several times after a change, and the next call finds that.
func (z *Customizer) KindsChanged(ctx context.Context) (dropped []parent.Key) {
	types, watched := z.inUse()
	outdated := sets.New[Type]()
	for t := range types {
		if served, err := z.resolve(ctx, t.Resource.GroupVersion().String(), t.Resource.Resource); unserved(err) && !t.Gone || err == nil && served != t {
			outdated.Insert(t)
		}
	}
	gone := sets.New[schema.GroupVersionResource]()
	for _, r := range watched {
		if _, err := z.resolve(ctx, r.GroupVersion().String(), r.Resource); unserved(err) {
			gone.Insert(r)
		}
	}
	if len(outdated)+len(gone) == 0 {
		return nil
	}
	var ended uses
	z.mu.Lock()
	for key, r := range z.config.Parents {
		if r.response != nil && slices.ContainsFunc(r.response.rules, func(named rule) bool { return outdated.Has(named.Type) }) {
			r.response = nil // A sync that begins after this asks the hook.
			dropped = append(dropped, key)
		}
		var kept uses
		for _, w := range r.uses {
			if gone.Has(w.resource) {
				ended = append(ended, w)
			} else {
				kept = append(kept, w)
			}
		}
		r.uses = kept
	}
	z.mu.Unlock()
	z.end(ended)
	return dropped
}

// inUse returns the types that the rules of remembered responses name, and the resources whose informers are in use.
func (z *Customizer) inUse() (types sets.Set[Type], watched []schema.GroupVersionResource) {
	z.mu.Lock()
	defer z.mu.Unlock()
	types = sets.New[Type]()
	for _, r := range z.config.Parents {
		if r.response != nil {
			for _, named := range r.response.rules {
				types.Insert(named.Type)
			}
		}
	}
	return types, slices.Collect(maps.Keys(z.watches))
}

// resolve finds the type that a rule names.
func (z *Customizer) resolve(ctx context.Context, apiVersion, resource string) (Type, error) {
	r, err := z.config.Cluster.Discovery.Resource(ctx, apiVersion, resource)
	if err == nil && len(r.Verbs) > 0 && !slices.Contains(r.Verbs, rights.List) {
		// It is only written, as the bindings of Pods: an informer would never be filled.
		err = errors.New("its objects cannot be listed; name another resource")
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

// seed makes the digests of this process comparable.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // It does not change, and digests of all parents must be comparable.

// state identifies what of a parent a response depends on: equal states have the same response.
type state struct {
	uid        types.UID
	generation int64
	digest     uint64
}

// stateOf returns the state of a parent.
func stateOf(parent *object.Object) state {
	var digest maphash.Hash
	digest.SetSeed(seed)
	add := func(name string, value []byte) {
		_, _ = digest.WriteString(name)
		_ = digest.WriteByte(0) // JSON has none.
		_, _ = digest.Write(value)
		_ = digest.WriteByte(0)
	}
	if parent.Generation() > 0 {
		add("labels", parent.RawLabels())
		add("annotations", parent.RawAnnotations())
		for name, value := range parent.Members() {
			if name != "metadata" && name != "status" {
				add(name, value)
			}
		}
	} else {
		// Within strings quotes are escaped, so this cuts out fields of this name only.
		field := []byte(`"resourceVersion":"` + parent.ResourceVersion() + `"`)
		for part := range bytes.SplitSeq(parent.JSON(), field) {
			add("", part)
		}
	}
	return state{parent.UID(), parent.Generation(), digest.Sum64()}
}
