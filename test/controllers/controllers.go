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

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// Controller is a controller object of either kind that a test made.
type Controller struct {
	// Kind is CompositeController or DecoratorController.
	Kind string
	// Name is the object's.
	Name string

	t       testing.TB
	limit   time.Duration
	get     func(context.Context) (metav1.Object, *v1alpha1.ControllerStatus, error)
	patch   func(ctx context.Context, kind types.PatchType, patch []byte) error
	remove  func(context.Context) error
	deleted bool
}

// Composite creates a CompositeController and waits until it runs. It is deleted with the test, unless the test does so.
func Composite(t testing.TB, clients *cluster.Clients, limit time.Duration, name string, spec v1alpha1.CompositeControllerSpec) *Controller {
	t.Helper()
	c := CreateComposite(t, clients, limit, name, spec)
	c.AwaitReady()
	return c
}

// Decorator is [Composite] for a DecoratorController.
func Decorator(t testing.TB, clients *cluster.Clients, limit time.Duration, name string, spec v1alpha1.DecoratorControllerSpec) *Controller {
	t.Helper()
	c := CreateDecorator(t, clients, limit, name, spec)
	c.AwaitReady()
	return c
}

// CreateComposite creates a CompositeController, which need not be able to run.
func CreateComposite(t testing.TB, clients *cluster.Clients, limit time.Duration, name string, spec v1alpha1.CompositeControllerSpec) *Controller {
	t.Helper()
	controller := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return create(t, limit, "CompositeController", clients.Versioned.MetacontrollerV1alpha1().CompositeControllers(), controller,
		func(c *v1alpha1.CompositeController) *v1alpha1.ControllerStatus { return &c.Status.ControllerStatus })
}

// CreateDecorator is [CreateComposite] for a DecoratorController.
func CreateDecorator(t testing.TB, clients *cluster.Clients, limit time.Duration, name string, spec v1alpha1.DecoratorControllerSpec) *Controller {
	t.Helper()
	controller := &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return create(t, limit, "DecoratorController", clients.Versioned.MetacontrollerV1alpha1().DecoratorControllers(), controller,
		func(c *v1alpha1.DecoratorController) *v1alpha1.ControllerStatus { return &c.Status.ControllerStatus })
}

type client[T metav1.Object] interface {
	Create(ctx context.Context, controller T, options metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

func create[T metav1.Object](
	t testing.TB, limit time.Duration, kind string, client client[T], controller T, statusOf func(T) *v1alpha1.ControllerStatus,
) *Controller {
	t.Helper()
	name := controller.GetName()
	if _, err := client.Create(t.Context(), controller, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating %s %s: %v", kind, name, err)
	}
	c := &Controller{
		Kind: kind, Name: name, t: t, limit: limit,
		get: func(ctx context.Context) (metav1.Object, *v1alpha1.ControllerStatus, error) {
			found, err := client.Get(ctx, name, metav1.GetOptions{})
			return found, statusOf(found), err
		},
		patch: func(ctx context.Context, kind types.PatchType, patch []byte) error {
			_, err := client.Patch(ctx, name, kind, patch, metav1.PatchOptions{})
			return err
		},
		remove: func(ctx context.Context) error {
			return client.Delete(ctx, name, metav1.DeleteOptions{})
		},
	}
	t.Cleanup(c.end)
	return c
}

// Patch merges a JSON text into the controller, without waiting for an effect.
func (c *Controller) Patch(text string) {
	c.t.Helper()
	if err := c.patch(c.t.Context(), types.MergePatchType, []byte(text)); err != nil {
		c.t.Fatalf("patching %s %s: %v", c.Kind, c.Name, err)
	}
}

// AwaitCondition waits until a condition of the controller is as wanted, and returns it. A condition that is absent is empty.
func (c *Controller) AwaitCondition(conditionType, what string, want func(metav1.Condition) bool) metav1.Condition {
	c.t.Helper()
	var found metav1.Condition
	c.await(c.limit, fmt.Sprintf("the condition %s %s", conditionType, what), func(_ metav1.Object, status *v1alpha1.ControllerStatus) bool {
		found = metav1.Condition{}
		if is := meta.FindStatusCondition(status.Conditions, conditionType); is != nil {
			found = *is
		}
		return want(found)
	})
	return found
}

// AwaitOne waits until a condition of one of several controllers, whichever it is, is as wanted.
func AwaitOne(all []*Controller, conditionType, what string, want func(metav1.Condition) bool) {
	first := all[0]
	first.t.Helper()
	cluster.Eventually(first.t, first.limit, fmt.Sprintf("the condition %s of one of them %s", conditionType, what), func(ctx context.Context) (bool, string) {
		seen := make(map[string][]metav1.Condition, len(all))
		for _, c := range all {
			_, status, err := c.get(ctx)
			if err != nil {
				return false, err.Error()
			}
			if is := meta.FindStatusCondition(status.Conditions, conditionType); is != nil && want(*is) {
				return true, ""
			}
			seen[c.Name] = status.Conditions
		}
		return false, fmt.Sprintf("%+v", seen)
	})
}

// await waits until the controller is as wanted.
func (c *Controller) await(limit time.Duration, what string, want func(metav1.Object, *v1alpha1.ControllerStatus) bool) {
	c.t.Helper()
	var status *v1alpha1.ControllerStatus
	var err error
	cluster.EventuallySeen(c.t, limit, what, func(ctx context.Context) bool {
		var object metav1.Object
		object, status, err = c.get(ctx)
		return err == nil && want(object, status)
	}, func() string {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%+v %+v", status, status.Counters)
	})
}

// end deletes the controller with the test.
func (c *Controller) end() {
	if c.deleted {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), c.limit)
	defer cancel()
	if err := c.remove(ctx); err != nil {
		c.t.Errorf("deleting the controller: %v", err)
	}
}

// AwaitReady waits until the controller runs as its spec says now.
func (c *Controller) AwaitReady() {
	c.t.Helper()
	c.await(c.limit, "the controller to run", func(object metav1.Object, status *v1alpha1.ControllerStatus) bool {
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == object.GetGeneration()
	})
}

// AwaitObserved waits until the server goes by the spec as it is now, which may say that the controller is paused.
func (c *Controller) AwaitObserved() {
	c.t.Helper()
	c.await(c.limit, "the spec to be observed", func(object metav1.Object, status *v1alpha1.ControllerStatus) bool {
		return status.ObservedGeneration == object.GetGeneration()
	})
}

// AwaitStatus waits until the status of the controller is as wanted. Numbers alone are published at most every 30 s.
func (c *Controller) AwaitStatus(what string, want func(*v1alpha1.ControllerStatus) bool) {
	c.t.Helper()
	c.await(c.limit+30*time.Second, "the status to have "+what, func(_ metav1.Object, status *v1alpha1.ControllerStatus) bool { return want(status) })
}

// AwaitCounters waits until the controller publishes counters as wanted. Numbers alone are published at most every 30 s.
func (c *Controller) AwaitCounters(what string, want func(*v1alpha1.ControllerCounters) bool) {
	c.t.Helper()
	c.AwaitStatus("the counters of "+what, func(status *v1alpha1.ControllerStatus) bool { return status.Counters != nil && want(status.Counters) })
}

// Delete deletes the controller. It may take its time to go, as its finalizer says.
func (c *Controller) Delete() {
	c.t.Helper()
	if err := c.remove(c.t.Context()); err != nil {
		c.t.Fatalf("deleting the controller: %v", err)
	}
	c.deleted = true
}

// Forget has the controller not be deleted with the test: it is lost with the store of its server.
func (c *Controller) Forget() { c.deleted = true }

// Deleted reports whether the test has deleted the controller.
func (c *Controller) Deleted() bool { return c.deleted }

// AwaitGone waits until the controller, which the test has deleted, is gone.
func (c *Controller) AwaitGone() {
	c.t.Helper()
	cluster.Eventually(c.t, c.limit, "the controller to be gone", func(ctx context.Context) (bool, string) {
		object, status, err := c.get(ctx)
		return apierrors.IsNotFound(err), fmt.Sprintf("%v %+v %v", object.GetFinalizers(), status, err)
	})
}
