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
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
)

// admission is the group of what configures the admission of objects, and also the key under which its changes are counted: no
// definition of a kind has it.
const admission = "admissionregistration.k8s.io"

// admissionRetry is the time after which the served policies are read again, when reading them failed.
const admissionRetry = time.Minute

// epochs counts the changes of what decides which values API servers store. The zero value is ready.
type epochs struct {
	mu     sync.Mutex
	groups map[string]*epoch
	// asked are the groups of which somebody knows the epoch.
	asked map[string]struct{}
}

type epoch struct {
	changes int64
	last    time.Time
}

// Epoch returns a number that changes when a definition of a kind of the group changes, or the cluster's admission
// configuration, and again in the seconds after that, since API servers follow a moment later. While it stays the same, an
// object that is sent again is stored as before, as far as the cluster tells. It costs no request.
func (d *Discovery) Epoch(group string) int64 {
	d.epochs.mu.Lock()
	defer d.epochs.mu.Unlock()
	d.epochs.ask(group)
	now := d.clock.Now()
	return d.epochs.groups[group].at(now) + d.epochs.groups[admission].at(now)
}

// at returns the number of changes and of the repeats after them. It grows only.
func (e *epoch) at(now time.Time) int64 {
	if e == nil {
		return 0
	}
	number := e.changes * int64(len(repeats)+1)
	for _, after := range repeats {
		if now.Sub(e.last) >= after {
			number++
		}
	}
	return number
}

// ask takes note that somebody knows the epoch of a group. It is called with the lock held.
func (e *epochs) ask(group string) {
	if e.asked == nil {
		e.asked = map[string]struct{}{admission: {}}
	}
	if _, ok := e.asked[group]; !ok {
		e.asked[strings.Clone(group)] = struct{}{}
	}
}

// count takes note of a change of a definition or of the admission configuration. It reports whether there was one. What the first list shows may
// have changed since somebody asked, before the list.
func (e *epochs) count(group string, event cache.Event, now time.Time) bool {
	if sameGeneration(event) {
		// A status changes nothing.
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, asked := e.asked[group]; event.Initial && !asked {
		return false
	}
	if e.groups == nil {
		e.groups = map[string]*epoch{}
	}
	changed := e.groups[group]
	if changed == nil {
		changed = &epoch{}
		e.groups[strings.Clone(group)] = changed
	}
	changed.changes++
	changed.last = now
	return true
}

// sameGeneration reports whether an object is what it was before, but for its metadata and status. Not all kinds say.
func sameGeneration(e cache.Event) bool {
	return e.Old != nil && e.New != nil && e.New.Generation() != 0 && e.New.Generation() == e.Old.Generation()
}

// watchAdmission counts changes of the admission configuration until ctx ends.
func (d *Discovery) watchAdmission(ctx context.Context) {
	var stops []func()
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		stops = append(stops, d.countChanges(schema.GroupVersionResource{Group: admission, Version: "v1", Resource: resource}))
	}
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		if served, ok := d.served(ctx, resource); ok {
			stops = append(stops, d.countChanges(served))
		}
	}
	<-ctx.Done()
	for _, stop := range stops {
		stop()
	}
}

func (d *Discovery) countChanges(resource schema.GroupVersionResource) (stop func()) {
	informer := d.cache.Acquire(cache.Query{Resource: resource, MetadataOnly: true})
	cancel := informer.Subscribe(func(e cache.Event) {
		if d.epochs.count(admission, e, d.clock.Now()) {
			d.poke()
		}
	})
	return func() {
		cancel()
		informer.Release()
	}
}

// served returns a resource of admission in the newest version that is served, false if none is or ctx ends.
func (d *Discovery) served(ctx context.Context, resource string) (schema.GroupVersionResource, bool) {
	for {
		var failed error
		for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
			found, err := d.Resource(ctx, admission+"/"+version, resource)
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
