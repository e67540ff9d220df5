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
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
