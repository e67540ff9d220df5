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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// A Controller is one that a test runs, of either kind.
type Controller struct {
	t       testing.TB
	limit   time.Duration
	get     func(context.Context) (metav1.Object, *v1alpha1.ControllerStatus, error)
	remove  func(context.Context) error
	deleted bool
}

// Composite creates a CompositeController and returns when it runs. Nothing that the test waits for takes longer than limit.
func Composite(t testing.TB, clients *cluster.Clients, limit time.Duration, name string, spec v1alpha1.CompositeControllerSpec) *Controller {
	t.Helper()
	controller := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return run(t, limit, clients.Versioned.MetacontrollerV1alpha1().CompositeControllers(), controller,
		func(c *v1alpha1.CompositeController) *v1alpha1.ControllerStatus { return &c.Status.ControllerStatus })
}

// Decorator is Composite for a DecoratorController.
func Decorator(t testing.TB, clients *cluster.Clients, limit time.Duration, name string, spec v1alpha1.DecoratorControllerSpec) *Controller {
	t.Helper()
	controller := &v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return run(t, limit, clients.Versioned.MetacontrollerV1alpha1().DecoratorControllers(), controller,
		func(c *v1alpha1.DecoratorController) *v1alpha1.ControllerStatus { return &c.Status.ControllerStatus })
}

// client is what the clients of both kinds can do.
type client[T metav1.Object] interface {
	Create(ctx context.Context, controller T, options metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

func run[T metav1.Object](
	t testing.TB, limit time.Duration, client client[T], controller T, statusOf func(T) *v1alpha1.ControllerStatus,
) *Controller {
	t.Helper()
	if _, err := client.Create(t.Context(), controller, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the controller: %v", err)
	}
	c := &Controller{
		t: t, limit: limit,
		get: func(ctx context.Context) (metav1.Object, *v1alpha1.ControllerStatus, error) {
			found, err := client.Get(ctx, controller.GetName(), metav1.GetOptions{})
			return found, statusOf(found), err
		},
		remove: func(ctx context.Context) error {
			return client.Delete(ctx, controller.GetName(), metav1.DeleteOptions{})
		},
	}
	t.Cleanup(c.end)
	c.AwaitReady()
	return c
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
	cluster.Eventually(c.t, c.limit, "the controller to run", func(ctx context.Context) (bool, string) {
		meta, status, err := c.get(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && condition.Status == metav1.ConditionTrue &&
				condition.ObservedGeneration == meta.GetGeneration() {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", status)
	})
}

// AwaitCounters waits until the controller publishes counters as wanted. Numbers alone are published at most every 30 s.
func (c *Controller) AwaitCounters(what string, want func(*v1alpha1.ControllerCounters) bool) {
	c.t.Helper()
	cluster.Eventually(c.t, c.limit+30*time.Second, "the counters of "+what, func(ctx context.Context) (bool, string) {
		_, status, err := c.get(ctx)
		if err != nil {
			return false, err.Error()
		}
		return status.Counters != nil && want(status.Counters), fmt.Sprintf("%+v", status.Counters)
	})
}

// Delete deletes the controller. It may take its time to go, as its finalizer says.
func (c *Controller) Delete() {
	c.t.Helper()
	if err := c.remove(c.t.Context()); err != nil {
		c.t.Fatalf("deleting the controller: %v", err)
	}
	c.deleted = true
}

// AwaitGone waits until the controller, which the test has deleted, is gone.
func (c *Controller) AwaitGone() {
	c.t.Helper()
	cluster.Eventually(c.t, c.limit, "the controller to be gone", func(ctx context.Context) (bool, string) {
		meta, status, err := c.get(ctx)
		return apierrors.IsNotFound(err), fmt.Sprintf("%v %+v %v", meta.GetFinalizers(), status, err)
	})
}
