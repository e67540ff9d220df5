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

package composite

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// relevant reports whether the controller handles o: it is selected, or carries the controller's finalizer (docs/reference/contract.md#s5.1).
func (c *Controller) relevant(o *object.Object) bool {
	return c.selected(o) || c.finalizer.On(o)
}

// selected reports whether o matches parentResource.labelSelector.
func (c *Controller) selected(o *object.Object) bool {
	return c.parentSelector.Matches(o.LabelSet())
}

func (c *Controller) keyOf(o *object.Object) parent.Key {
	// A key is remembered longer than the object, of whose JSON the name is a part.
	return parent.Key{Resource: c.parentResource.GroupResource(), Namespace: o.Namespace(), Name: strings.Clone(o.Name())}
}

// parentEvent is told of every change of a parent.
func (c *Controller) parentEvent(e cache.Event) {
	if e.Type == cache.Deleted {
		c.forget(c.keyOf(e.Old), e.Old)
		return
	}
	key := c.keyOf(e.New)
	if !c.relevant(e.New) {
		c.forget(key, e.New)
		return
	}
	c.selectors.set(key, e.New)
	if e.Initial && !c.changedBefore(e.New) {
		// Nothing is known to have changed: what really changes meanwhile goes first.
		c.loop.Enqueue(key, workqueue.Resync)
		return
	}
	if c.ignoreStatus && parent.StatusOnly(e.Old, e.New) {
		return
	}
	c.loop.Enqueue(key, c.echoes.Urgency(e.New))
}

// changedBefore reports whether a parent that is there from the start has a change that nobody has dealt with yet, so that it need
// not wait for thousands that have none.
func (c *Controller) changedBefore(o *object.Object) bool {
	return c.parentResource.HasStatus && parent.Unsettled(o)
}

// childEvent is told of every change of an object of a child kind.
func (c *Controller) childEvent(e cache.Event) {
	if e.Initial {
		// Every parent is synced at the start anyway, after the children are there.
		return
	}
	if e.Type == cache.Deleted {
		c.wakeOwner(e.Old)
		return
	}
	if e.Old != nil && !sameController(e.Old, e.New) {
		// A parent that just lost this child by somebody's edit has to know even when its selector no longer matches.
		c.wakeOwner(e.Old)
	}
	if e.New.Controller() != nil {
		c.wakeOwner(e.New)
		return
	}
	if !e.New.Deleting() {
		c.selectors.matching(e.New, func(key parent.Key) { c.loop.Enqueue(key, workqueue.Live) })
	}
}

// sameController reports whether two states of a child have the same controlling owner, or both none.
func sameController(before, after *object.Object) bool {
	a, b := before.Controller(), after.Controller()
	return a == nil && b == nil || a != nil && b != nil && a.UID == b.UID
}

// wakeOwner enqueues the parent that controls child, if it is one of ours (docs/reference/contract.md#s5.2).
func (c *Controller) wakeOwner(child *object.Object) {
	owner := child.Controller()
	if owner == nil || owner.Kind != c.parentResource.Kind || groupOf(owner.APIVersion) != c.parentResource.Group {
		return
	}
	namespace := ""
	if c.parentResource.Namespaced {
		namespace = child.Namespace()
	}
	o, ok := c.parents.Get(namespace, owner.Name)
	if ok && o.UID() == owner.UID && c.relevant(o) {
		c.loop.Enqueue(c.keyOf(o), workqueue.Live)
	}
}

// forget drops everything that is remembered about a parent that is gone, or not ours any more.
func (c *Controller) forget(key parent.Key, o *object.Object) {
	c.selectors.remove(key)
	c.loop.Forget(key)
	c.customizer.Forget(key)
	c.converger.Forget(o.UID())
	c.echoes.Forget(o.UID())
	c.shared.Cluster.Barrier.Forget(o.UID())
	c.hooks.Forget(webhook.RootKey{
		Group: c.parentResource.Group, Kind: c.parentResource.Kind, Namespace: o.Namespace(), Name: o.Name(),
	})
}

func groupOf(apiVersion string) string {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return apiVersion
	}
	return version.Group
}
