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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// Resource is a kind of objects that the cluster serves.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind of the objects.
	Kind string
	// Namespaced says whether objects live in namespaces.
	Namespaced bool
	// HasStatus says whether there is a status subresource.
	HasStatus bool
	// Verbs are what may be done with the objects.
	Verbs []string
}

// GroupVersionKind returns the kind in full.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind)
}

// APIVersion returns group and version as in objects.
func (r Resource) APIVersion() string { return r.GroupVersion().String() }

// A NotFoundError says that the cluster does not serve a resource or kind.
type NotFoundError struct {
	// APIVersion is the group and version.
	APIVersion string
	// Resource is the resource that was looked up, empty when Kind was.
	Resource string
	// Kind is the kind that was looked up, empty when Resource was.
	Kind string
}

// Error implements error.
func (e *NotFoundError) Error() string {
	if e.Resource == "" {
		return fmt.Sprintf("discovery: can't find kind %s in apiVersion %s", e.Kind, e.APIVersion)
	}
	return fmt.Sprintf("discovery: can't find resource %s in apiVersion %s", e.Resource, e.APIVersion)
}

// resourcesOf turns the API server's list for one group-version into resources by name.
func resourcesOf(version schema.GroupVersion, list *metav1.APIResourceList) map[string]Resource {
	resources := map[string]Resource{}
	for _, r := range list.APIResources {
		if parent, sub, ok := strings.Cut(r.Name, "/"); ok {
			if sub == "status" && slices.Contains(r.Verbs, "patch") {
				entry := resources[parent]
				entry.HasStatus = true
				resources[parent] = entry
			}
			continue
		}
		entry := resources[r.Name]
		entry.GroupVersionResource = version.WithResource(r.Name)
		entry.Kind, entry.Namespaced, entry.Verbs = r.Kind, r.Namespaced, r.Verbs
		resources[r.Name] = entry
	}
	return resources
}

// Serving returns a resource in the first version, by the preference of its group, in which the API server serves it. It asks
// the API server every time. A *NotFoundError says that the resource is served in no version.
func (d *Discovery) Serving(ctx context.Context, r schema.GroupResource) (Resource, error) {
	versions, err := d.askVersions(ctx, r.Group)
	if err != nil {
		return Resource{}, err
	}
	var failure error
	for _, version := range versions {
		resources, err := d.ask(ctx, schema.GroupVersion{Group: r.Group, Version: version})
		failure = errors.Join(failure, err)
		if found, ok := resources[r.Resource]; ok && found.Kind != "" {
			return found, nil
		}
	}
	if failure != nil {
		return Resource{}, failure
	}
	return Resource{}, &NotFoundError{APIVersion: r.Group, Resource: r.Resource}
}

// askVersions returns the versions of a group, the preferred one first, none if the group is not served.
func (d *Discovery) askVersions(ctx context.Context, group string) ([]string, error) {
	path := []string{"api"}
	if group != "" {
		path = []string{"apis", group}
	}
	data, err := d.client.Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the versions of the group %q: %w", group, err)
	}
	// The core group has a list of names, every other one a list of objects.
	if group == "" {
		var core metav1.APIVersions
		if err := json.Unmarshal(data, &core); err != nil {
			return nil, fmt.Errorf("decoding the versions of the core group: %w", err)
		}
		return core.Versions, nil
	}
	var served metav1.APIGroup
	if err := json.Unmarshal(data, &served); err != nil {
		return nil, fmt.Errorf("decoding the versions of the group %q: %w", group, err)
	}
	var versions []string
	for _, v := range served.Versions {
		versions = append(versions, v.Version)
	}
	return versions, nil
}

// Origin is where the kinds of a group-version come from.
type Origin int

// Origins of kinds.
const (
	// Unknown: the cluster does not say, or may not be asked.
	Unknown Origin = iota
	// BuiltIn kinds are the kube-apiserver's own.
	BuiltIn
	// Custom kinds are defined by CustomResourceDefinitions.
	Custom
	// Aggregated kinds are those of another API server.
	Aggregated
)

// automanagedLabel is on APIServices that kube-apiserver itself makes. Its value says for which kinds.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// Origin returns where the kinds of a group-version come from. It costs no request.
func (d *Discovery) Origin(version schema.GroupVersion) Origin {
	if !strings.Contains(version.Group, ".") {
		return BuiltIn // The group of a CustomResourceDefinition has a dot.
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.origin(version)
}

// origin is called with the lock held.
func (d *Discovery) origin(version schema.GroupVersion) Origin {
	o, ok := d.definition(apiServiceResource, version.Version+"."+version.Group)
	if !ok {
		return Unknown
	}
	switch value, _ := o.Label(automanagedLabel); value {
	case "true":
		return Custom
	case "onstart":
		return BuiltIn
	}
	return Aggregated
}

// Definition returns a number that changes when the CustomResourceDefinition of a resource is edited, and once more when the edit is served
// for certain. It is 0 for a resource without one.
func (d *Discovery) Definition(resource schema.GroupResource) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.definition(crdResource, resource.String())
	if !ok {
		return 0
	}
	const first = 1 // What is defined for the first time is served already, since its objects are there.
	number := 2 * o.Generation()
	if g := d.groups[resource.Group]; o.Generation() > first && g != nil && g.repeating {
		number--
	}
	return number
}

// definition returns an object that defines kinds, unless no event would show a change of it. It is called with the lock held.
func (d *Discovery) definition(kind schema.GroupVersionResource, name string) (*object.Object, bool) {
	if d.now("") < 0 {
		return nil, false
	}
	for _, definitions := range d.definitions {
		if definitions.Query().Resource == kind {
			return definitions.Get("", name)
		}
	}
	return nil, false
}

// responses are the API server's responses to one request for each group-version.
type responses[V any] struct {
	// ask returns nil for a group-version that is not served.
	ask func(context.Context, schema.GroupVersion) (map[string]V, error)
	// now returns how often a group has changed, negative if no event would show a change. It is called with the lock held.
	now   func(group string) int
	known map[schema.GroupVersion]*entry[V]
	// trusted is for how long a response counts while no event would show a change.
	trusted time.Duration
	// recheck is the age at which a response is asked for again of which no object tells.
	recheck time.Duration
	// replaced, where it is not nil, is called with the lock held when there is another response than before.
	replaced func(group string, before, after map[string]V)
}

// entry is what is known of one group-version. Its fields are guarded by the lock of the Discovery.
type entry[V any] struct {
	// turn is held by the caller that reads, so that many callers at once cause one request: a response can be megabytes.
	turn     chan struct{}
	response map[string]V
	// good says that there is a response.
	good bool
	// at is how often the group had changed at the time of the request; negative if no event would have shown a change.
	at int
	// requested is the time of the request.
	requested time.Time
	// completed counts the requests that have ended, and err is what the last one failed with.
	completed int
	err       error
}

// responseFor returns what is known of a group-version, and reads it if that is nothing or may be outdated. If reading fails,
// the last response stays.
func responseFor[V any](ctx context.Context, d *Discovery, a *responses[V], version schema.GroupVersion) (map[string]V, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := a.known[version]
	if e == nil {
		e = &entry[V]{turn: make(chan struct{}, 1)}
		a.known[version] = e
	}
	if e.isCurrent(a.now(version.Group), d.clock.Now().Add(-a.trusted)) {
		return e.response, nil
	}
	if err := read(ctx, d, a, version, e); err != nil {
		return nil, err
	}
	if e.err != nil && e.good {
		klog.FromContext(ctx).V(2).Info("Discovery failed; the last response stays", "apiVersion", version, "err", e.err)
		return e.response, nil
	}
	return e.response, e.err
}

// read has the API server asked for a group-version once after the call. It is called with the lock held, and gives it up meanwhile. The
// error is that of ctx; that of the API server is in the entry.
func read[V any](ctx context.Context, d *Discovery, a *responses[V], version schema.GroupVersion, e *entry[V]) error {
	arrived := e.completed
	d.mu.Unlock()
	err := e.take(ctx)
	d.mu.Lock()
	if err != nil {
		return err
	}
	defer func() { <-e.turn }()
	// What changes while the API server responds makes the response outdated, so the count is of before.
	now, requested := a.now(version.Group), d.clock.Now()
	// A response to a request of another caller, which ended while this one waited, is as good as its own.
	if e.completed == arrived {
		d.mu.Unlock()
		var response map[string]V
		err := recovery.Call(ctx, "asking for the kinds of "+version.String(), func() (err error) {
			response, err = a.ask(ctx, version)
			return err
		})
		d.mu.Lock()
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil && e.isCurrent(now, requested.Add(-a.trusted)) {
			return nil // It was only looked whether the response is another one by now; nobody has to wait for it.
		}
		e.completed++
		if e.err = err; err == nil {
			if e.good && a.replaced != nil {
				a.replaced(version.Group, e.response, response)
			}
			e.response, e.good, e.at, e.requested = response, true, now, requested
		}
	}
	return nil
}

// take waits for the turn to read.
func (e *entry[T]) take(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isCurrent reports whether the response is that of now, or, while no event would show a change, was requested after oldest.
func (e *entry[T]) isCurrent(now int, oldest time.Time) bool {
	if !e.good || e.err != nil {
		return false
	}
	return now >= 0 && e.at == now || now < 0 && e.requested.After(oldest)
}
