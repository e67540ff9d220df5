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

package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// What says that the kinds of a group may have changed.
var (
	crdResource = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	apiServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// repeats are the times after a change of a definition at which subscribers are notified again: what is defined is served a
// moment later, and no event says when.
var repeats = []time.Duration{
	0, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second,
}

// schemasTrusted is for how long schemas count while no event would show a change, as where definitions may not be watched:
// every sync needs some, and a response can be megabytes.
const schemasTrusted = 10 * time.Second

// Discovery knows the kinds of one cluster. It is safe for concurrent use.
type Discovery struct {
	client rest.Interface
	cache  *cache.Cache
	clock  clock.WithTicker

	// interval is that of rechecks.
	interval time.Duration

	mu          sync.Mutex
	definitions []*cache.Informer // both while Run runs
	versions    *responses[Resource]
	schemas     *responses[*Schema]
	groups      map[string]*group
	// listed is of all groups: it counts that the definitions are listed for the first time, since nothing tells which of them came after
	// kinds had been asked for.
	listed      group
	subscribers map[*func()]struct{}
	changed     chan struct{}
	epochs      epochs
}

// group is a group of which a definition changed, or the kinds without one.
type group struct {
	// changes counts the changes of definitions, and the times after them at which a response may be new.
	changes int
	// repeating says that a change is so recent that it may not be served yet.
	repeating bool
}

// New returns a Discovery that watches definitions through c.
func New(config *rest.Config, c *cache.Cache) (*Discovery, error) {
	client, err := cache.NewClient(config, runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	d := &Discovery{
		client: client, cache: c, clock: clock.RealClock{}, interval: recheckInterval,
		groups:      map[string]*group{},
		subscribers: map[*func()]struct{}{}, changed: make(chan struct{}, 1),
	}
	d.versions = &responses[Resource]{
		ask: d.ask, now: d.kindsNow, known: map[schema.GroupVersion]*entry[Resource]{}, replaced: d.kindsReplaced,
	}
	d.schemas = &responses[*Schema]{
		ask: d.askSchemas, now: d.now, known: map[schema.GroupVersion]*entry[*Schema]{}, trusted: schemasTrusted, recheck: schemasRecheck,
	}
	return d, nil
}

// Run watches definitions until ctx ends.
func (d *Discovery) Run(ctx context.Context) {
	crds, stop := d.watch(cache.Query{Resource: crdResource, MetadataOnly: true}, d.crdChanged)
	defer stop()
	apiServices, stop := d.watch(cache.Query{Resource: apiServiceResource}, d.apiServiceChanged)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.watchAdmission(ctx) })
	running.Go(func() { d.awaitLists(ctx, crds, apiServices) })
	running.Go(func() { d.recheckRegularly(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
		}
		d.notifyRepeatedly(ctx)
	}
}

// watch watches definitions until stop is called.
func (d *Discovery) watch(definitions cache.Query, changed cache.Handler) (informer *cache.Informer, stop func()) {
	informer = d.cache.Acquire(definitions)
	cancel := informer.Subscribe(changed)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.definitions = append(d.definitions, informer)
	return informer, func() {
		d.mu.Lock()
		d.definitions = slices.DeleteFunc(d.definitions, func(i *cache.Informer) bool { return i == informer })
		d.mu.Unlock()
		cancel()
		informer.Release()
	}
}

// awaitLists has kinds asked for again once the definitions are there. Whoever asked before may have been told that a kind is not served
// whose definition is in the first list, which is no event.
func (d *Discovery) awaitLists(ctx context.Context, definitions ...*cache.Informer) {
	for _, informer := range definitions {
		select {
		case <-ctx.Done():
			return
		case <-informer.Synced():
		}
	}
	d.mu.Lock()
	d.listed.changes++
	d.listed.repeating = true
	d.mu.Unlock()
	d.poke()
}

// notifyRepeatedly notifies subscribers now and some times more. A further change starts over.
func (d *Discovery) notifyRepeatedly(ctx context.Context) {
	started := d.clock.Now()
	for i := 0; i < len(repeats); i++ {
		timer := d.clock.NewTimer(repeats[i] - d.clock.Since(started))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.changed:
			timer.Stop()
			started, i = d.clock.Now(), -1
			continue
		case <-timer.C():
		}
		d.repeat(i == len(repeats)-1)
		d.notify(ctx)
	}
}

// repeat makes the responses stale that may have changed by now. After the last repeat of a change they stay.
func (d *Discovery) repeat(last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed.repeat(last)
	for _, g := range d.groups {
		g.repeat(last)
	}
}

func (g *group) repeat(last bool) {
	if g.repeating {
		g.changes++
		g.repeating = !last
	}
}

// notify calls the subscribers. What one misses that panics it is told again by the repeats.
func (d *Discovery) notify(ctx context.Context) {
	d.mu.Lock()
	subscribers := slices.Collect(maps.Keys(d.subscribers))
	d.mu.Unlock()
	for _, s := range subscribers {
		_ = recovery.Call(ctx, "telling of kinds that changed", func() error { (*s)(); return nil }) // It is logged and counted.
	}
}

// Subscribe calls changed, from one goroutine, whenever the kinds that are served, or the Epoch of a resource, may have changed, until
// cancel is called.
func (d *Discovery) Subscribe(changed func()) (cancel func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers[&changed] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.subscribers, &changed)
	}
}

// crdChanged handles the events of CustomResourceDefinitions, named <plural>.<group>. Only their status keeps their generation.
func (d *Discovery) crdChanged(e cache.Event) {
	plural, group := nameOf(e)
	same := e.Old != nil && e.New != nil && e.New.Generation() != 0 && e.New.Generation() == e.Old.Generation()
	d.definitionChanged(e, same, group, func(r schema.GroupResource) bool { return r.Group == group && r.Resource == plural })
}

// apiServiceChanged handles the events of APIServices, named <version>.<group>.
func (d *Discovery) apiServiceChanged(e cache.Event) {
	_, group := nameOf(e)
	d.definitionChanged(e, sameService(e), group, func(r schema.GroupResource) bool { return r.Group == group })
}

// nameOf returns the two parts of the name of a definition.
func nameOf(e cache.Event) (first, group string) {
	o := cmp.Or(e.New, e.Old)
	first, group, _ = strings.Cut(o.Name(), ".")
	return first, group
}

// definitionChanged handles the event of a definition, which concerns resources of a group. Same says that it defines them as before; they may
// be served all the same that were not.
func (d *Discovery) definitionChanged(e cache.Event, same bool, group string, concerns func(schema.GroupResource) bool) {
	counted := !same && d.epochs.changed(concerns, d.clock.Now())
	if e.Initial && !counted {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The text is a part of the object's JSON, which a key must not keep in memory.
	d.groupChanged(strings.Clone(group))
}

// groupChanged notes that a group changed. It is called with the lock held.
func (d *Discovery) groupChanged(name string) {
	if d.groups[name] == nil {
		d.groups[name] = &group{}
	}
	d.groups[name].changes++
	d.groups[name].repeating = true
	d.poke()
}

// poke has the subscribers notified.
func (d *Discovery) poke() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// now returns how often the definitions of a group have changed, negative if no event would show a change. It is called
// with the lock held.
func (d *Discovery) now(name string) int {
	if len(d.definitions) < 2 {
		return -1
	}
	for _, definitions := range d.definitions {
		if !definitions.HasSynced() || definitions.Err() != nil {
			return -1
		}
	}
	if g, ok := d.groups[name]; ok {
		return g.changes
	}
	return 0
}

// kindsNow is like now, and counts the first lists of definitions, too. Schemas are not read again for these: they are large, and a kind
// whose schema was read was served.
func (d *Discovery) kindsNow(name string) int {
	now := d.now(name)
	if now < 0 {
		return now
	}
	return now + d.listed.changes
}

// Resource returns what is known of a resource. A *NotFoundError says that it is not served.
func (d *Discovery) Resource(ctx context.Context, apiVersion, resource string) (Resource, error) {
	resources, err := d.resources(ctx, apiVersion)
	if err != nil {
		return Resource{}, err
	}
	if r, ok := resources[resource]; ok && r.Kind != "" {
		return r, nil
	}
	return Resource{}, &NotFoundError{APIVersion: apiVersion, Resource: resource}
}

// Kind returns what is known of a kind. A *NotFoundError says that it is not served.
func (d *Discovery) Kind(ctx context.Context, apiVersion, kind string) (Resource, error) {
	resources, err := d.resources(ctx, apiVersion)
	if err != nil {
		return Resource{}, err
	}
	for _, r := range resources {
		if r.Kind == kind {
			return r, nil
		}
	}
	return Resource{}, &NotFoundError{APIVersion: apiVersion, Kind: kind}
}

// resources returns the resources of a group-version, none if it is not served.
func (d *Discovery) resources(ctx context.Context, apiVersion string) (map[string]Resource, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing the apiVersion %q: %w", apiVersion, err)
	}
	return responseFor(ctx, d, d.versions, version)
}

func (d *Discovery) ask(ctx context.Context, version schema.GroupVersion) (map[string]Resource, error) {
	path := []string{"api", version.Version}
	if version.Group != "" {
		path = []string{"apis", version.Group, version.Version}
	}
	data, err := d.client.Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the resources of %s: %w", version, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("decoding the response: %w", err)
	}
	return resourcesOf(version, &list), nil
}

const (
	// recheckInterval is how often kinds are asked for of which no object tells, unless the caller says otherwise, and for how long at least it
	// is remembered that a group-version is not served.
	recheckInterval = time.Minute
	// schemasRecheck is the age at which schemas are read again of which no object tells: a response can be megabytes.
	schemasRecheck = 10 * time.Minute
)

// Recheck sets how often kinds are asked for of which no object tells, in place of every minute. It is called before Run.
func (d *Discovery) Recheck(interval time.Duration) { d.interval = interval }

// recheckRegularly finds until ctx ends what changes without an object that tells of it: the kinds of built-in and aggregated
// group-versions change with the server that serves them, as when it is replaced by a newer one without downtime.
func (d *Discovery) recheckRegularly(ctx context.Context) {
	ticker := d.clock.NewTicker(d.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		recheck(ctx, d, d.versions)
		recheck(ctx, d, d.schemas)
	}
}

// recheck asks again for the group-versions of which no object tells, and forgets those that are not served. Meanwhile the last responses
// count: nobody waits for it.
func recheck[V any](ctx context.Context, d *Discovery, a *responses[V]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.forget(d.clock.Now().Add(-d.interval))
	byName := func(v, w schema.GroupVersion) int { return strings.Compare(v.String(), w.String()) }
	for _, version := range slices.SortedFunc(maps.Keys(a.known), byName) {
		if e := a.known[version]; e != nil && e.response != nil && d.clock.Since(e.requested) >= a.recheck && !d.told(version) {
			_ = read(ctx, d, a, version, e) // The last response stays.
		}
	}
}

// forget drops group-versions that are not served, as of a time before. Their number is not bounded, since hooks name them; and when one is
// served, an object tells.
func (a *responses[V]) forget(before time.Time) {
	maps.DeleteFunc(a.known, func(_ schema.GroupVersion, e *entry[V]) bool {
		return e.response == nil && len(e.turn) == 0 && !e.requested.After(before)
	})
}

// told reports whether an object tells of every change of a group-version's kinds: those of CustomResourceDefinitions. It is called with
// the lock held.
func (d *Discovery) told(version schema.GroupVersion) bool { return d.origin(version) == Custom }

// kindsReplaced has subscribers notified of kinds that differ from those that they were told, unless they are about to be. It is called
// with the lock held.
func (d *Discovery) kindsReplaced(group string, before, after map[string]Resource) {
	g := d.groups[group]
	if d.listed.repeating || g != nil && g.repeating || reflect.DeepEqual(before, after) {
		return
	}
	d.groupChanged(group)
}
