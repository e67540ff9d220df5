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
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// admissionRetry is the time after which the served policies are read again, when reading them failed.
const admissionRetry = time.Minute

// longestEpoch bounds how long changes that follow each other keep an epoch from being followed.
const longestEpoch = time.Minute

// epochs count, for each resource, the changes of what decides which values API servers store. The zero value is ready.
type epochs struct {
	mu sync.Mutex
	// resources are those of which somebody knows the epoch.
	resources map[schema.GroupResource]*epoch
}

type epoch struct {
	// number is the present epoch, and followed the last one that all API servers follow.
	number, followed int64
	// since and last are the times of the first and of the last change that they may not follow yet. since is zero if they follow all.
	since, last time.Time
}

// Epoch returns a number that grows when something changes that decides what API servers store for a resource, and once more when
// they can be expected to follow. While it stays the same, an object that is sent again is stored as before, as far as the cluster tells.
// It costs no request.
//
// What counts: the CustomResourceDefinition of the resource, but for its status; the APIServices of its group, the mutating webhooks, and
// the mutating policies with their bindings, whose rules name the resource, but for metadata, status and CA bundles. What changes without
// any of them does not count: what a webhook does, a parameter of a policy, a label of a namespace that is selected. Neither does what
// only refuses objects, nor a rule that names an equivalent resource of another group. Who relies on an epoch relies on it for a limited
// time therefore.
func (d *Discovery) Epoch(resource schema.GroupResource) int64 {
	d.epochs.mu.Lock()
	defer d.epochs.mu.Unlock()
	return d.epochs.of(resource, d.clock.Now()).number
}

// Followed returns the latest epoch of a resource that all API servers can be expected to follow. What was learnt in a former one is to be
// learnt again, although the object does not change. Changes that follow each other count as one, for a minute at most. Subscribers are
// notified when it grows.
func (d *Discovery) Followed(resource schema.GroupResource) int64 {
	d.epochs.mu.Lock()
	defer d.epochs.mu.Unlock()
	return d.epochs.of(resource, d.clock.Now()).followed
}

// of returns the epoch of a resource. It is called with the lock held.
func (e *epochs) of(resource schema.GroupResource, now time.Time) *epoch {
	known := e.resources[resource]
	if known == nil {
		if e.resources == nil {
			e.resources = map[schema.GroupResource]*epoch{}
		}
		known = &epoch{}
		// The texts may be parts of an object's JSON.
		e.resources[schema.GroupResource{Group: strings.Clone(resource.Group), Resource: strings.Clone(resource.Resource)}] = known
	}
	known.pass(now)
	return known
}

// changed counts a change for the resources that it concerns. It reports whether anybody knows the epoch of one. That holds for what the
// first list shows, too: it may have changed since somebody asked, before the list.
func (e *epochs) changed(concerns func(schema.GroupResource) bool, now time.Time) (known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for resource, each := range e.resources {
		if concerns(resource) {
			each.change(now)
			known = true
		}
	}
	return known
}

func (e *epoch) change(now time.Time) {
	e.pass(now)
	e.number++
	e.last = now
	if e.since.IsZero() {
		e.since = now
	}
}

// pass ends the time in which API servers may not follow, if it is over.
func (e *epoch) pass(now time.Time) {
	follow := now.Sub(e.last) >= repeats[len(repeats)-1]
	if e.since.IsZero() || !follow && now.Sub(e.since) < longestEpoch {
		return
	}
	e.number++
	e.followed = e.number
	e.since = now
	if follow {
		e.since = time.Time{}
	}
}

// watchAdmission counts changes of the admission configuration until ctx ends.
func (d *Discovery) watchAdmission(ctx context.Context) {
	stop := d.countChanges(admissionVersion("v1").WithResource("mutatingwebhookconfigurations"), changedWebhooks)
	defer stop()
	served, ok := d.served(ctx, "mutatingadmissionpolicies")
	if ok {
		policies := d.cache.Acquire(cache.Query{Resource: served})
		defer policies.Release()
		defer d.countChanges(served, changedPolicy)()
		if served, ok = d.served(ctx, "mutatingadmissionpolicybindings"); ok {
			defer d.countChanges(served, func(e cache.Event) []mutation { return changedBinding(e, policies) })()
		}
	}
	<-ctx.Done()
}

// countChanges counts changes of the objects of a resource of admission, which are those of what they say of mutations.
func (d *Discovery) countChanges(resource schema.GroupVersionResource, changed func(cache.Event) []mutation) (stop func()) {
	informer := d.cache.Acquire(cache.Query{Resource: resource})
	cancel := informer.Subscribe(func(e cache.Event) {
		mutations := changed(e)
		if len(mutations) > 0 && d.epochs.changed(func(r schema.GroupResource) bool { return concern(mutations, r) }, d.clock.Now()) {
			d.poke()
		}
	})
	return func() {
		cancel()
		informer.Release()
	}
}

func admissionVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: version}
}

// served returns a resource of admission in the newest version that is served, false if none is or ctx ends.
func (d *Discovery) served(ctx context.Context, resource string) (schema.GroupVersionResource, bool) {
	for {
		var failed error
		for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
			found, err := d.Resource(ctx, admissionVersion(version).String(), resource)
			if err == nil {
				return found.GroupVersionResource, true
			}
			if _, ok := errors.AsType[*NotFoundError](err); !ok {
				failed = err
			}
		}
		if failed == nil {
			return schema.GroupVersionResource{}, false
		}
		klog.FromContext(ctx).V(2).Info("It is not known whether a kind of admission policies is served", "resource", resource, "err", failed)
		timer := d.clock.NewTimer(admissionRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return schema.GroupVersionResource{}, false
		case <-timer.C():
		}
	}
}

// mutation is what a webhook or a policy says of the objects that it changes.
type mutation struct {
	// rules name the resources, and limits, where there are any, which of these.
	rules, limits []any
}

// concern reports whether one of the mutations may change an object of a resource when it is created or updated. The versions and the
// objects that a rule selects are not looked at: API servers match a request in equivalent versions, too.
func concern(mutations []mutation, resource schema.GroupResource) bool {
	named := func(rule any) bool { return names(rule, resource) }
	return slices.ContainsFunc(mutations, func(m mutation) bool {
		return slices.ContainsFunc(m.rules, named) && (len(m.limits) == 0 || slices.ContainsFunc(m.limits, named))
	})
}

// names reports whether a rule names a resource, as API servers match rules.
func names(rule any, resource schema.GroupResource) bool {
	content, _ := rule.(map[string]any)
	list := func(field string) []string {
		texts, _, _ := unstructured.NestedStringSlice(content, field) // A rule that is not valid is not stored.
		return texts
	}
	writes := slices.ContainsFunc(list("operations"), func(operation string) bool {
		return operation == "*" || operation == "CREATE" || operation == "UPDATE"
	})
	groups := list("apiGroups")
	return writes && (slices.Contains(groups, "*") || slices.Contains(groups, resource.Group)) &&
		slices.ContainsFunc(list("resources"), func(name string) bool {
			name, sub, isSub := strings.Cut(name, "/")
			return (name == "*" || name == resource.Resource) && (!isSub || sub == "*")
		})
}

// changedWebhooks returns the webhooks of a configuration, of both states, that an event changes. Webhooks are called in their order.
func changedWebhooks(e cache.Event) []mutation {
	before, after := webhooksOf(e.Old), webhooksOf(e.New)
	var changed []mutation
	for i := range max(len(before), len(after)) {
		var pair []any
		for _, list := range [][]any{before, after} {
			if i < len(list) {
				pair = append(pair, list[i])
			}
		}
		if len(pair) == 2 && reflect.DeepEqual(pair[0], pair[1]) {
			continue
		}
		for _, each := range pair {
			webhook, _ := each.(map[string]any)
			changed = append(changed, mutation{rules: listIn(webhook, "rules")})
		}
	}
	return changed
}

// webhooksOf returns the webhooks of a configuration without the CA bundles, which say whom the API server trusts and not what it asks.
func webhooksOf(o *object.Object) []any {
	webhooks := listIn(contentOf(o), "webhooks")
	for _, each := range webhooks {
		webhook, _ := each.(map[string]any)
		unstructured.RemoveNestedField(webhook, "clientConfig", "caBundle")
	}
	return webhooks
}

// changedPolicy returns what the policy of an event changes before and after it, if that is not the same.
func changedPolicy(e cache.Event) []mutation {
	before, after := specOf(e.Old), specOf(e.New)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	return []mutation{{rules: policyRules(before)}, {rules: policyRules(after)}}
}

// changedBinding returns what the policy of a binding changes before and after an event, if that is not the same. Without its policy a
// binding does nothing; a policy that comes later is a change of its own.
func changedBinding(e cache.Event, policies *cache.Informer) []mutation {
	before, after := specOf(e.Old), specOf(e.New)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	var changed []mutation
	for _, binding := range []map[string]any{before, after} {
		name, _, _ := unstructured.NestedString(binding, "policyName") // It is required.
		if policy, ok := policies.Get("", name); ok {
			changed = append(changed, mutation{policyRules(specOf(policy)), listIn(binding, "matchResources", "resourceRules")})
		}
	}
	return changed
}

func policyRules(policy map[string]any) []any {
	return listIn(policy, "matchConstraints", "resourceRules")
}

// sameService reports whether an APIService has the same group-version served in the same way after an event.
func sameService(e cache.Event) bool {
	before, after := specOf(e.Old), specOf(e.New)
	unstructured.RemoveNestedField(before, "caBundle")
	unstructured.RemoveNestedField(after, "caBundle")
	return e.Old != nil && e.New != nil && reflect.DeepEqual(before, after)
}

// specOf returns the spec of an object, nil for none.
func specOf(o *object.Object) map[string]any {
	spec, _ := contentOf(o)["spec"].(map[string]any)
	return spec
}

// contentOf decodes an object. What is in a cache can be decoded.
func contentOf(o *object.Object) map[string]any {
	if o == nil {
		return nil
	}
	content, _ := o.Decode()
	return content
}

// listIn returns a list in a decoded object, nil for none.
func listIn(content map[string]any, path ...string) []any {
	value, _, _ := unstructured.NestedFieldNoCopy(content, path...)
	list, _ := value.([]any)
	return list
}
