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

package decorator

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// relevant reports whether the controller handles o: it is selected, or carries the controller's finalizer
// (docs/reference/contract.md#s17.1).
func (c *Controller) relevant(r *rule, o *object.Object) bool {
	return r.selector.matches(o) || c.finalizer.On(o)
}

func keyOf(r *rule, o *object.Object) parent.Key {
	return parent.Key{Resource: r.resource.GroupResource(), Namespace: o.Namespace(), Name: strings.Clone(o.Name())}
}

func rootOf(r *rule, o *object.Object) webhook.RootKey {
	return webhook.RootKey{Group: r.resource.Group, Kind: r.resource.Kind, Namespace: o.Namespace(), Name: strings.Clone(o.Name())}
}

// targetEvent is told of every change of an object of a target kind.
func (c *Controller) targetEvent(r *rule, e cache.Event) {
	if e.Type == cache.Deleted {
		c.forget(r, e.Old)
		return
	}
	key := keyOf(r, e.New)
	if !c.relevant(r, e.New) {
		if e.Old != nil && c.relevant(r, e.Old) {
			c.targets.remove(key)
			// A sync under way may put the customize response back; the next one takes it away, see open.
			c.loop.Enqueue(key, workqueue.Live)
		}
		return
	}
	c.targets.add(key)
	if e.Initial {
		// Nothing is known to have changed: what really changes meanwhile goes first.
		c.loop.Enqueue(key, workqueue.Resync)
		return
	}
	if r.ignoreStatus && parent.StatusOnly(e.Old, e.New) {
		return
	}
	c.loop.Enqueue(key, c.echoes.Urgency(e.New))
}

// attachmentEvent is told of every change of an object of an attachment kind. Orphans wake nobody: decorators do not adopt
// (docs/reference/contract.md#s17.1).
func (c *Controller) attachmentEvent(e cache.Event) {
	if e.Initial {
		// Every target is synced at the start anyway, after the attachments are there.
		return
	}
	for _, o := range []*object.Object{e.Old, e.New} {
		if o != nil && c.marked(o) {
			c.wakeOwner(o)
		}
	}
}

// marked reports whether o carries this controller's mark.
func (c *Controller) marked(o *object.Object) bool {
	by, ok := o.Annotation(Marker)
	return ok && by == c.name
}

// wakeOwner enqueues the target that controls an attachment, if it is one of ours.
func (c *Controller) wakeOwner(attached *object.Object) {
	owner := attached.Controller()
	if owner == nil {
		return
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return
	}
	r, ok := c.rulesByKind[schema.GroupKind{Group: version.Group, Kind: owner.Kind}]
	if !ok {
		return
	}
	namespace := ""
	if r.resource.Namespaced {
		namespace = attached.Namespace()
	}
	o, ok := r.informer.Get(namespace, owner.Name)
	if ok && o.UID() == owner.UID && c.relevant(r, o) {
		c.loop.Enqueue(keyOf(r, o), workqueue.Live)
	}
}

// forget drops everything that is remembered about a target that is gone.
func (c *Controller) forget(r *rule, o *object.Object) {
	key := keyOf(r, o)
	c.targets.remove(key)
	c.loop.Forget(key)
	c.customizer.Forget(key)
	c.converger.Forget(o.UID())
	c.echoes.Forget(o.UID())
	c.shared.Cluster.Barrier.Forget(o.UID())
	c.hooks.Forget(rootOf(r, o))
}

// ready holds a target back until the cache shows what its last sync wrote.
func (c *Controller) ready(key parent.Key, wake func()) bool {
	_, o, ok := c.find(key)
	return !ok || c.shared.Cluster.Barrier.Ready(o.UID(), wake)
}

// failed records a failed sync on the target.
func (c *Controller) failed(_ context.Context, key parent.Key, err error) {
	if hook.IsRejected(err) {
		c.rejected.Add(1)
	}
	if _, o, ok := c.find(key); ok {
		c.shared.Recorder.Warning(childcontrol.Reference(o), eventrecorder.ReasonSyncError, "Sync error: "+err.Error())
	}
}

// find returns the object of a key, and its rule.
func (c *Controller) find(key parent.Key) (*rule, *object.Object, bool) {
	r, ok := c.rules[key.Resource]
	if !ok {
		return nil, nil, false
	}
	o, ok := r.informer.Get(key.Namespace, key.Name)
	return r, o, ok
}

// targets are the keys of the present targets. The zero value is ready; it is safe for concurrent use.
type targets struct {
	mu   sync.Mutex
	keys map[parent.Key]struct{}
}

func (t *targets) add(key parent.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys == nil {
		t.keys = map[parent.Key]struct{}{}
	}
	t.keys[key] = struct{}{}
}

func (t *targets) remove(key parent.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.keys, key)
}

func (t *targets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys)
}
