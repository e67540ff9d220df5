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

package reconciler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
)

// Redefine takes up a definition with the same spec, or one that differs in spec.paused and spec.deletionGuard: hooks are shown it from
// their next call on. The error says that they still see the former one.
func (c *Controller) Redefine(ctx context.Context, d definition.Definition) error {
	if d.Paused {
		c.pause(ctx, true)
	}
	err := c.encode(d)
	c.bound(d)
	c.pause(ctx, d.Paused)
	return err
}

// bound takes up spec.deletionGuard, and confirmations.
func (c *Controller) bound(d definition.Definition) {
	var limit *intstr.IntOrString
	if d.DeletionGuard != nil {
		limit = d.DeletionGuard.MaxDeletions
	}
	for _, key := range c.guard.Configure(limit, d.Meta.Annotations[v1alpha1.AnnotationConfirmDeletions], time.Now()) {
		c.pool.Enqueue(key, workqueue.Live)
	}
}

// countChildren returns how many children the parents have, as the informers show them.
func (c *Controller) countChildren() int {
	n := 0
	counted := map[*cache.Informer]bool{}
	for _, informer := range c.watched {
		if counted[informer] {
			continue
		}
		counted[informer] = true
		for o := range informer.All("") {
			if _, _, ok := c.owner(o); ok {
				n++
			}
		}
	}
	return n
}

// pause pauses or resumes the controller. Informers go on all the time, so that changes are noted, but nothing is synced. What a pause cut
// short is not known: all parents are synced when it ends.
func (c *Controller) pause(ctx context.Context, paused bool) {
	switch was := c.paused.Swap(paused); {
	case paused && !was:
		c.pool.Pause()
		c.deferred.HurryAll()
	case !paused && was:
		c.finalizing.restart()
		select {
		case <-c.started:
			// Before the first one is synced, so that each is synced once.
			c.enqueueAll(ctx, func(parent.Key, *object.Object) bool { return true })
		default: // The events of the start enqueue them.
		}
		c.pool.Resume()
	}
}
