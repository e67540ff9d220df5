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

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// busyRetry is after what time a child is looked at again whose parent was being synced.
const busyRetry = time.Second

// outdatedChild is a child of which the API server may make something else than is known.
type outdatedChild struct {
	source *Source
	record *record
	child  children.Key
}

// watchOutdated tries outdated children once more when it is asked to look for them, until ctx ends. It calls no hook.
func (c *Controller) watchOutdated(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.retries:
		}
		for pending := c.outdatedChildren(); len(pending) > 0 && ctx.Err() == nil; {
			if pending = c.retryChildren(ctx, pending); len(pending) > 0 {
				timer := time.NewTimer(busyRetry)
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
				timer.Stop()
			}
		}
	}
}

func (c *Controller) outdatedChildren() (list []outdatedChild) {
	for _, r := range c.parents.all() {
		for _, child := range c.outdatedOf(r) {
			list = append(list, outdatedChild{c.byResource[r.key.Resource()], r, child})
		}
	}
	return list
}

// retryChildren tries children, each in its turn, and returns those whose parents are busy. A paused controller and one that is held
// try nothing: they are asked again when they go on.
func (c *Controller) retryChildren(ctx context.Context, list []outdatedChild) (busy []outdatedChild) {
	for _, each := range list {
		if c.shared.Applier.AwaitTurn(ctx) != nil || c.paused.Load() || c.shared.Access.Held() {
			return nil
		}
		// A panic is logged, and the child is tried when it or a kind changes.
		_ = recovery.Call(ctx, "trying a child of "+each.record.key.String(), func() error {
			if !c.retryChild(ctx, each) {
				busy = append(busy, each)
			}
			return nil
		})
	}
	return busy
}

// retryChild tries a child, and enqueues its parent if that is to be synced. It reports false if the parent is busy.
func (c *Controller) retryChild(ctx context.Context, o outdatedChild) bool {
	p, ok := o.source.informer.Get(o.record.key.Namespace, o.record.key.Name)
	if !ok || !c.relevant(o.source, p) {
		return true
	}
	if !c.queue.Take(o.record.key) {
		return false
	}
	defer c.queue.Done(o.record.key)
	if c.expectations.Expects(o.record.key) {
		return false
	}
	if c.tryAgain(ctx, o.record, p, o.child) && !o.record.gone.Load() {
		o.record.outside()
		c.queue.Add(o.record.key, queue.Resync, history.Of(v1alpha1.SyncKindChanged))
	}
	return true
}
