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
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/dependencies"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
)

const (
	// releases is the number of parents that are released at the same time.
	releases = 16
	// releaseInterval is how often parents that could not be released are tried again.
	releaseInterval = 500 * time.Millisecond
)

// keeper implements supervisor.Keeper.
type keeper struct {
	shared *dependencies.Shared
}

// Hold implements supervisor.Keeper.
func (k keeper) Hold(ctx context.Context, d supervisor.Definition) error {
	return k.write(ctx, d, append(slices.Clone(d.Meta().Finalizers), supervisor.HoldFinalizer))
}

// Let implements supervisor.Keeper.
func (k keeper) Let(ctx context.Context, d supervisor.Definition) error {
	rest := slices.DeleteFunc(slices.Clone(d.Meta().Finalizers), func(name string) bool { return name == supervisor.HoldFinalizer })
	err := k.write(ctx, d, rest)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k keeper) write(ctx context.Context, d supervisor.Definition, finalizers []string) error {
	if finalizers == nil {
		finalizers = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.Meta().UID, "resourceVersion": d.Meta().ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers: %w", err)
	}
	own, options := k.shared.Own.Client.MetacontrollerV1alpha1(), metav1.PatchOptions{FieldManager: fieldManager}
	if d.Kind() == supervisor.KindDecorator {
		_, err = own.DecoratorControllers().Patch(ctx, d.Meta().Name, types.MergePatchType, patch, options)
	} else {
		_, err = own.CompositeControllers().Patch(ctx, d.Meta().Name, types.MergePatchType, patch, options)
	}
	if err != nil {
		return fmt.Errorf("writing the finalizers of %s %s: %w", d.Kind(), d.Meta().Name, err)
	}
	return nil
}

// Release implements supervisor.Keeper. A kind that is not served any more has no parents.
func (k keeper) Release(ctx context.Context, d supervisor.Definition, left func(int)) error {
	finalizer := parent.Finalizer{Name: d.Finalizer()}
	for _, rule := range d.Parents() {
		if err := k.releaseAll(ctx, rule, finalizer, left); err != nil {
			return fmt.Errorf("taking the finalizer off %s: %w", rule.Resource, err)
		}
	}
	return nil
}

func (k keeper) releaseAll(ctx context.Context, rule v1alpha1.ResourceRule, finalizer parent.Finalizer, left func(int)) error {
	resource, err := k.shared.Cluster.Discovery.Resource(ctx, rule.APIVersion, rule.Resource)
	if _, missing := errors.AsType[*discovery.NotFoundError](err); missing {
		return nil
	}
	if err != nil {
		return err
	}
	informer := k.shared.Cluster.Cache.Acquire(cache.Query{Resource: resource.GroupVersionResource, MetadataOnly: true})
	defer informer.Release()
	select {
	case <-informer.Synced():
	case <-ctx.Done():
		return ctx.Err()
	}
	ticker := time.NewTicker(releaseInterval)
	defer ticker.Stop()
	for {
		var finalized []*object.Object
		for o := range informer.All("") {
			if finalizer.On(o) {
				finalized = append(finalized, o)
			}
		}
		if len(finalized) == 0 {
			return nil
		}
		left(len(finalized))
		err := k.releaseEach(ctx, resource, finalizer, finalized)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// releaseEach tries every parent once. One that was changed meanwhile is tried again when the informer shows it.
func (k keeper) releaseEach(ctx context.Context, r discovery.Resource, finalizer parent.Finalizer, list []*object.Object) error {
	var running sync.WaitGroup
	slots := make(chan struct{}, releases)
	errs := make([]error, len(list))
	for i, o := range list {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			target := client.Target{Resource: r.GroupVersionResource, Namespace: o.Namespace(), Name: o.Name()}
			_, _, errs[i] = finalizer.Remove(ctx, k.shared.Cluster.Client, target, o)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
