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
	"errors"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// ErrReplaced is the cause of the end of a controller's context when another controller of its name may take its place: because the
// definition or the kinds that it names have changed, or because the object is gone, which may be created again at once.
var ErrReplaced = errors.New("the controller is replaced")

// Definition is a controller object as the engine uses it. It is read-only and shares memory with the object.
type Definition struct {
	// Kind is v1alpha1.KindComposite or v1alpha1.KindDecorator.
	Kind string
	// Meta is the metadata of the controller object.
	Meta *metav1.ObjectMeta
	// Status is the status of the controller object as it was last observed.
	Status *v1alpha1.ControllerStatus
	// Spec is a *v1alpha1.CompositeControllerSpec or a *v1alpha1.DecoratorControllerSpec, as Kind says.
	Spec any
	// Sync, Finalize and Customize are the declared hooks, nil where there is none.
	Sync, Finalize, Customize *v1alpha1.Hook
	// EndpointConfigs are the settings of the connections to the hooks.
	EndpointConfigs []v1alpha1.EndpointConfig
	// Account is the service account as which the controller acts, nil if it acts as the server.
	Account *rights.Account
	// Needs returns the rights that the controller uses.
	Needs func() rights.Needs
	// Workers and ResyncPeriodSeconds are nil where the spec leaves them to the options of the server.
	Workers, ResyncPeriodSeconds *int32
	// Paused says that nothing is to be done until it is false, and DeletionGuard bounds deletions; nil if there is none. A running
	// controller takes up changes of both.
	Paused        bool
	DeletionGuard *v1alpha1.DeletionGuard
	// Parents are the resources of the parents, Children those of the children or attachments, in the order of the spec.
	Parents, Children []v1alpha1.ResourceRule
	// Retains says that children of a rule stay when their parent is deleted.
	Retains bool
	// Finalizer is the name of the finalizer that the controller puts on its parents while it declares a finalize hook or such a rule.
	Finalizer string
	// Encode returns the controller as hooks see it.
	Encode func(wire.EncodeOptions) ([]byte, error)
}

// OfComposite returns the definition of a CompositeController.
func OfComposite(c *v1alpha1.CompositeController) Definition {
	d := Definition{
		Kind: v1alpha1.KindComposite, Meta: &c.ObjectMeta, Status: &c.Status.ControllerStatus, Spec: &c.Spec,
		EndpointConfigs: c.Spec.EndpointConfigs, Workers: c.Spec.Workers, ResyncPeriodSeconds: c.Spec.ResyncPeriodSeconds,
		Paused: c.Spec.Paused != nil && *c.Spec.Paused, DeletionGuard: c.Spec.DeletionGuard,
		Parents:   []v1alpha1.ResourceRule{c.Spec.ParentResource.ResourceRule},
		Finalizer: parent.CompositeFinalizer(c.Name), Retains: c.Spec.Retains(), Account: rights.AccountOf(c.Spec.ServiceAccountRef),
		Needs:  func() rights.Needs { return rights.OfComposite(&c.Spec) },
		Encode: func(o wire.EncodeOptions) ([]byte, error) { return wire.EncodeComposite(c, o) },
	}
	if hooks := c.Spec.Hooks; hooks != nil {
		d.Sync, d.Finalize, d.Customize = hooks.Sync, hooks.Finalize, hooks.Customize
	}
	for i := range c.Spec.ChildResources {
		d.Children = append(d.Children, c.Spec.ChildResources[i].ResourceRule)
	}
	return d
}

// OfDecorator returns the definition of a DecoratorController.
func OfDecorator(c *v1alpha1.DecoratorController) Definition {
	d := Definition{
		Kind: v1alpha1.KindDecorator, Meta: &c.ObjectMeta, Status: &c.Status.ControllerStatus, Spec: &c.Spec,
		EndpointConfigs: c.Spec.EndpointConfigs, Workers: c.Spec.Workers, ResyncPeriodSeconds: c.Spec.ResyncPeriodSeconds,
		Paused: c.Spec.Paused != nil && *c.Spec.Paused, DeletionGuard: c.Spec.DeletionGuard,
		Finalizer: parent.DecoratorFinalizer(c.Name), Retains: c.Spec.Retains(), Account: rights.AccountOf(c.Spec.ServiceAccountRef),
		Needs:  func() rights.Needs { return rights.OfDecorator(&c.Spec) },
		Encode: func(o wire.EncodeOptions) ([]byte, error) { return wire.EncodeDecorator(c, o) },
	}
	if hooks := c.Spec.Hooks; hooks != nil {
		d.Sync, d.Finalize, d.Customize = hooks.Sync, hooks.Finalize, hooks.Customize
	}
	for i := range c.Spec.Resources {
		d.Parents = append(d.Parents, c.Spec.Resources[i].ResourceRule)
	}
	for i := range c.Spec.Attachments {
		d.Children = append(d.Children, c.Spec.Attachments[i].ResourceRule)
	}
	return d
}

// Finalizes reports whether parents have the finalizer: there is a finalize hook, or a rule with children that stay without their parent.
func (d Definition) Finalizes() bool { return d.Finalize != nil || d.Retains }

// SameSpec reports whether a controller that was built from other can go on with d, which [Controller.Redefine] gives it:
// they are of one object, and their specs differ in nothing but Paused and DeletionGuard.
func (d Definition) SameSpec(other Definition) bool {
	return d.Meta.UID == other.Meta.UID && equality.Semantic.DeepEqual(built(d.Spec), built(other.Spec))
}

// built returns the part of a spec from which an instance is built.
func built(spec any) any {
	switch s := spec.(type) {
	case *v1alpha1.CompositeControllerSpec:
		part := *s
		part.Paused, part.DeletionGuard = nil, nil
		return &part
	case *v1alpha1.DecoratorControllerSpec:
		part := *s
		part.Paused, part.DeletionGuard = nil, nil
		return &part
	}
	return spec
}

// KubectlName returns the object as kubectl names it.
func (d Definition) KubectlName() string { return strings.ToLower(d.Kind) + "/" + d.Meta.Name }

// SameToHooks reports whether hooks are shown the same controller for d and other, which have the same spec. The version
// changes whenever the server writes the status, and says nothing to hooks.
func (d Definition) SameToHooks(other Definition) bool {
	return d.Meta.Generation == other.Meta.Generation &&
		equality.Semantic.DeepEqual(d.Meta.Labels, other.Meta.Labels) &&
		equality.Semantic.DeepEqual(d.Meta.Annotations, other.Meta.Annotations)
}

// Reference returns a reference to the controller object, for events.
func (d Definition) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: d.Kind, Name: d.Meta.Name, UID: d.Meta.UID,
	}
}

// An InvalidError says that a definition cannot run before it is changed.
type InvalidError struct {
	// Reason is the plain text for people.
	Reason string
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Reason }

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
	// name is empty or [v1alpha1.RevisionPrevious]. It is inspection.ErrNoRevision if there is none.
	Former(s *Sync, name string) (Former, error)
}

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
	// KeepsSynced says that the engine is to keep the condition Synced in the status of the parents.
	KeepsSynced bool

	informer *cache.Informer
	// noGeneration says that the API server refused status.observedGeneration, which this kind does not have.
	noGeneration atomic.Bool
	// noSynced stands for the definition of the kind as of which parents cannot have the condition Synced; zero for none.
	noSynced atomic.Int64
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
