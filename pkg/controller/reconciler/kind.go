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
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// Kind is what CompositeControllers and DecoratorControllers do differently. Methods are safe for concurrent use; those that take a
// Sync are never called for one parent by two goroutines at once.
type Kind interface {
	// Acquire takes the informers that only this kind needs. It is called once, before the first sync. enqueue has a parent synced of which
	// they show what its last syncs did not see, and ends its back-off; it does not block.
	Acquire(set *expectations.Informers, enqueue func(parent.Key, v1alpha1.SyncReason))
	// Forget drops a parent of which something is remembered, or nothing.
	Forget(key parent.Key)
	// Count adds what the kind remembers itself.
	Count(r *metrics.Remembered)
	// Owns reports whether an object of a child kind, which a parent controls, is a child of this controller.
	Owns(o *object.Object) bool
	// Observe finds the children of the parent and sets Scope, Shown and Observed.
	Observe(ctx context.Context, s *Sync) error
	// Decide calls the hook and sets the Decision. [Sync.Decide] does so with one call.
	Decide(ctx context.Context, s *Sync) error
	// Write carries the Decision out: on the parent, on its children, or on both.
	Write(ctx context.Context, s *Sync) error
}

// Reviser is a Kind whose parents have revisions.
type Reviser interface {
	// Former returns the parent of a sync as it was at a revision: that of a name, or the newest one that is not the present one if the
	// name is empty or [v1alpha1.RevisionPrevious]. It is [ErrNoRevision] if there is none.
	Former(s *Sync, name string) (Former, error)
}

// ErrNoRevision says that a parent has no such revision. It is told by errors.Is.
var ErrNoRevision = inspection.ErrNoRevision

// Former is a parent as it was.
type Former struct {
	// Name is that of the revision, and Latest that of the parent as it is.
	Name, Latest string
	// Parent is the parent as it is, but for the fields of the revision.
	Parent map[string]any
}

// Source is a kind of parents.
type Source struct {
	// Resource is the resource of the parents.
	Resource discovery.Resource
	// Selected reports whether an object is selected as a parent. An object that is not selected and carries the controller's finalizer
	// is a parent still.
	Selected func(*object.Object) bool
	// SelectedWith is Selected for an object with some labels and annotations. Only decorators need it.
	SelectedWith func(l, annotations labels.Set) bool
	// Labels restricts the informer at the API server where no object that does not match can carry the controller's finalizer.
	Labels labels.Selector
	// IgnoreStatus says that changes of nothing but the status do not enqueue the parent.
	IgnoreStatus bool
	// AllowDelete says that hooks may delete the parents.
	AllowDelete bool
	// ReportsGeneration says that the engine writes status.observedGeneration with every sync, so that a parent without the present one
	// has a change that was not reconciled. It is false for targets of decorators, whose status belongs to others.
	ReportsGeneration bool

	informer *cache.Informer
	// noGeneration says that the API server refused status.observedGeneration, which this kind does not have.
	noGeneration atomic.Bool
}

// unsettled reports whether a parent that exists when the controller starts has a change that was not reconciled, so that it need not
// wait for those that have none.
func (s *Source) unsettled(o *object.Object) bool {
	return o.Deleting() || s.ReportsGeneration && parent.Unsettled(o)
}

// target is where an object of the kind is written.
func (s *Source) target(o *object.Object) client.Target {
	return client.Target{Resource: s.Resource.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()}
}

func (s *Source) key(o *object.Object) parent.Key {
	return parent.KeyOf(s.Resource.GroupResource(), o)
}
