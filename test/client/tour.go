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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	apply "github.com/metacontroller/metacontroller-apiserver/pkg/generated/applyconfiguration/metacontroller/v1alpha1"
	typed "github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned/typed/metacontroller/v1alpha1"
)

const (
	name = "client-tour"
	// manager owns the fields that are applied.
	manager = "client-tour-apply"
)

// tour makes one round through the verbs. Whatever is not as it should be is an error.
func tour(ctx context.Context, client typed.CompositeControllerInterface, out io.Writer) (err error) {
	selectIt := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	list, err := client.List(ctx, selectIt)
	if err != nil {
		return fmt.Errorf("listing before anything was created: %w", err)
	}
	if len(list.Items) != 0 {
		return fmt.Errorf("%s exists already", name)
	}
	selectIt.ResourceVersion = list.ResourceVersion
	watcher, err := client.Watch(ctx, selectIt)
	if err != nil {
		return fmt.Errorf("watching from resource version %s: %w", list.ResourceVersion, err)
	}
	defer watcher.Stop()

	created, err := client.Create(ctx, definition(), metav1.CreateOptions{FieldManager: "client-tour"})
	if err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	fmt.Fprintln(out, "created", created.Name)
	defer func() {
		err = errors.Join(err, remove(ctx, client, watcher, out, created))
	}()
	if err := await(ctx, watcher, watch.Added, func(*v1alpha1.CompositeController) bool { return true }); err != nil {
		return err
	}
	fmt.Fprintln(out, "watch saw it added")

	list, err = client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	if !slices.ContainsFunc(list.Items, func(c v1alpha1.CompositeController) bool { return c.UID == created.UID }) {
		return fmt.Errorf("the list of %d does not hold what was created", len(list.Items))
	}
	fmt.Fprintln(out, "list holds it")
	return applyTwice(ctx, client, watcher, out)
}

// applyTwice applies a field, and then applies without it, which removes it: nobody else owns it.
func applyTwice(ctx context.Context, client typed.CompositeControllerInterface, watcher watch.Interface, out io.Writer) error {
	options := metav1.ApplyOptions{FieldManager: manager}
	with := apply.CompositeController(name).WithSpec(apply.CompositeControllerSpec().WithResyncPeriodSeconds(30))
	applied, err := client.Apply(ctx, with, options)
	if err != nil {
		return fmt.Errorf("applying resyncPeriodSeconds: %w", err)
	}
	if got := applied.Spec.ResyncPeriodSeconds; got == nil || *got != 30 {
		return fmt.Errorf("applying resyncPeriodSeconds 30 gave %v", got)
	}
	if !equality.Semantic.DeepEqual(applied.Spec.ParentResource, definition().Spec.ParentResource) {
		return fmt.Errorf("applying one field changed another: parentResource is %v", applied.Spec.ParentResource)
	}
	err = await(ctx, watcher, watch.Modified, func(c *v1alpha1.CompositeController) bool { return c.Spec.ResyncPeriodSeconds != nil })
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "applied a field, watch saw it modified")

	without := apply.CompositeController(name).WithSpec(apply.CompositeControllerSpec().WithGenerateSelector(true))
	if applied, err = client.Apply(ctx, without, options); err != nil {
		return fmt.Errorf("applying without resyncPeriodSeconds: %w", err)
	}
	if applied.Spec.ResyncPeriodSeconds != nil {
		return fmt.Errorf("resyncPeriodSeconds is %d after its owner applied without it", *applied.Spec.ResyncPeriodSeconds)
	}
	fmt.Fprintln(out, "applied without it, the field is gone")
	return nil
}

// remove deletes the object, and waits until the watch has seen it go.
func remove(ctx context.Context, client typed.CompositeControllerInterface, watcher watch.Interface, out io.Writer,
	created *v1alpha1.CompositeController,
) error {
	precondition := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(created.UID))}
	if err := client.Delete(ctx, name, precondition); err != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	if err := await(ctx, watcher, watch.Deleted, func(*v1alpha1.CompositeController) bool { return true }); err != nil {
		return err
	}
	fmt.Fprintln(out, "deleted, watch saw it go")
	return nil
}

// await reads events until one is of the type and satisfies the condition.
func await(ctx context.Context, watcher watch.Interface, wanted watch.EventType, satisfied func(*v1alpha1.CompositeController) bool) error {
	for {
		select {
		case event, open := <-watcher.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended before an event %s came", wanted)
			}
			object, ok := event.Object.(*v1alpha1.CompositeController)
			if !ok {
				return fmt.Errorf("the watch sent %s with a %T", event.Type, event.Object)
			}
			if event.Type == wanted && satisfied(object) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("waiting for an event %s: %w", wanted, context.Cause(ctx))
		}
	}
}

// definition is a controller for a kind that need not exist: the server keeps it until the kind appears.
func definition() *v1alpha1.CompositeController {
	address := "http://localhost:1/sync"
	return &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.CompositeControllerSpec{
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{
				ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "nothings"},
			},
			Hooks: &v1alpha1.CompositeControllerHooks{
				Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: &address}},
			},
		},
	}
}
