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

package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/composite"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/decorator"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	typedv1alpha1 "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
)

// builder implements Builder for both kinds.
type builder struct {
	shared    *reconciler.Shared
	resources reconciler.Served
}

// Build implements Builder.
func (b builder) Build(ctx context.Context, d reconciler.Definition) (Instance, []string, error) {
	b.resources = &built{served: b.resources, found: map[v1alpha1.ResourceRule]discovered{}}
	c, err := b.build(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	return c, b.Fingerprint(ctx, d), nil
}

func (b builder) build(ctx context.Context, d reconciler.Definition) (*reconciler.Controller, error) {
	shared, err := b.shared.For(d)
	if err != nil {
		return nil, err
	}
	shared.Served = b.resources
	if d.Kind == v1alpha1.KindDecorator {
		return decorator.New(ctx, shared, d)
	}
	return composite.New(ctx, shared, d)
}

// built is what a controller is built with: what the cluster said of each kind when it was asked first. It is used by one goroutine.
type built struct {
	served reconciler.Served
	found  map[v1alpha1.ResourceRule]discovered
}

type discovered struct {
	resource discovery.Resource
	err      error
}

// Resource implements reconciler.Served. What the cluster did not say is asked for again.
func (b *built) Resource(ctx context.Context, apiVersion, resource string) (discovery.Resource, error) {
	key := v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}
	if known, ok := b.found[key]; ok {
		return known.resource, known.err
	}
	r, err := b.served.Resource(ctx, apiVersion, resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing || err == nil {
		b.found[key] = discovered{r, err}
	}
	return r, err
}

// Fingerprint implements Builder: what discovery says about every resource that the definition names.
func (b builder) Fingerprint(ctx context.Context, d reconciler.Definition) []string {
	rules := slices.Concat(d.Parents, d.Children)
	texts := make([]string, len(rules))
	for i, rule := range rules {
		r, err := b.resources.Resource(ctx, rule.APIVersion, rule.Resource)
		if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
			texts[i] = "missing"
		} else if err == nil {
			texts[i] = fmt.Sprintln(r.GroupVersionResource, r.Kind, r.Namespaced, r.HasStatus)
		}
	}
	return texts
}

// parents implements Parents.
type parents struct {
	cluster *cluster.Cluster
}

// Finalized implements Parents. The resource may be served in another version than the definition named. Objects are listed by
// the server, since no hook is shown them, and released by the controller's service account.
func (p parents) Finalized(ctx context.Context, resource schema.GroupResource, d reconciler.Definition) ([]FinalizedParent, error) {
	served, err := p.cluster.Discovery.Serving(ctx, resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		// Of an aggregated API that comes back this is untrue: see docs/design/0014-finalizers-level-triggered.md.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A version that is served no more is an error: until discovery knows, it cannot be told which other one is.
	all, err := p.cluster.Cache.ListMetadata(ctx, served.GroupVersionResource)
	if err != nil {
		return nil, err
	}
	f, api := parent.Finalizer{Name: d.Finalizer}, p.cluster.Client
	if d.Account != nil {
		api = api.As(client.Identity{User: d.Account.User()})
	}
	var list []FinalizedParent
	for _, o := range all {
		if !f.On(o) {
			continue
		}
		target := client.Target{Resource: served.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()}
		var finalizing *corev1.ObjectReference
		if o.Deleting() {
			finalizing = &corev1.ObjectReference{
				APIVersion: served.GroupVersion().String(), Kind: served.Kind, Namespace: o.Namespace(), Name: o.Name(), UID: o.UID(),
			}
		}
		list = append(list, FinalizedParent{
			Key:        parent.NewKey(resource, o.Namespace(), o.Name()),
			UID:        o.UID(),
			Finalizing: finalizing,
			Release: func(ctx context.Context) error {
				if _, _, err := f.Remove(ctx, api, target, o); !client.IsGone(err) {
					return err
				}
				return nil
			},
		})
	}
	return list, nil
}

// fieldManager owns the status of controller objects.
const fieldManager = "metacontroller-apiserver"

// objects writes controller objects. It implements Objects.
type objects struct {
	client typedv1alpha1.MetacontrollerV1alpha1Interface
}

// written are the parts of a controller object that the server writes.
type written struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        writtenMeta                `json:"metadata"`
	Status          *v1alpha1.ControllerStatus `json:"status,omitempty"`
}

type writtenMeta struct {
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Finalizers      []string  `json:"finalizers,omitzero"`
}

// PublishStatus implements Objects by server-side apply, which needs no read before and writes nothing when
// nothing changed.
func (o objects) PublishStatus(ctx context.Context, d reconciler.Definition, status *v1alpha1.ControllerStatus) error {
	return o.applyStatus(ctx, d, "", status)
}

// applyStatus applies a status if the object is in a version still, in any if it is empty.
func (o objects) applyStatus(ctx context.Context, d reconciler.Definition, version string, status *v1alpha1.ControllerStatus) error {
	meta := writtenMeta{Name: d.Meta.Name, UID: d.Meta.UID, ResourceVersion: version}
	force := true
	return o.patch(ctx, d, types.ApplyPatchType, written{Metadata: meta, Status: status}, metav1.PatchOptions{Force: &force}, "status")
}

// SetFinalizers implements Objects.
func (o objects) SetFinalizers(ctx context.Context, d reconciler.Definition, finalizers []string) error {
	if finalizers == nil {
		finalizers = []string{}
	}
	meta := writtenMeta{Name: d.Meta.Name, UID: d.Meta.UID, ResourceVersion: d.Meta.ResourceVersion, Finalizers: finalizers}
	return o.patch(ctx, d, types.MergePatchType, written{Metadata: meta}, metav1.PatchOptions{})
}

func (o objects) patch(
	ctx context.Context, d reconciler.Definition, patchType types.PatchType, w written, options metav1.PatchOptions, subresources ...string,
) error {
	w.APIVersion, w.Kind = v1alpha1.SchemeGroupVersion.String(), d.Kind
	body, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", d.Kind, d.Meta.Name, err)
	}
	options.FieldManager = fieldManager
	if d.Kind == v1alpha1.KindDecorator {
		_, err = o.client.DecoratorControllers().Patch(ctx, d.Meta.Name, patchType, body, options, subresources...)
	} else {
		_, err = o.client.CompositeControllers().Patch(ctx, d.Meta.Name, patchType, body, options, subresources...)
	}
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", d.Kind, d.Meta.Name, err)
	}
	return nil
}
