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

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Namespace makes a namespace for a test. It goes with the control plane: a deletion has the controller manager list and delete the objects
// of each kind that is served, which takes more than most tests do.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config(t))
	if err != nil {
		t.Fatalf("making the client of Kubernetes: %v", err)
	}
	// Many tests make one at the same time, and the program kubectl would take its time for so many.
	namespaces := client.CoreV1().Namespaces()
	name := "test-" + rand.String(8)
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	return name
}

// Objects reads and writes the objects of a namespace for one test, which fails as soon as the API server refuses that.
type Objects struct {
	// Namespace is theirs. It is empty for objects that are cluster-scoped.
	Namespace string

	t       testing.TB
	clients *Clients
	limit   time.Duration
}

// Objects returns the objects of a namespace for a test, which waits for them no longer than limit.
func (c *Clients) Objects(t testing.TB, namespace string, limit time.Duration) *Objects {
	return &Objects{Namespace: namespace, t: t, clients: c, limit: limit}
}

// In returns the objects of another namespace, or with an empty one those that are cluster-scoped, for the same test.
func (o *Objects) In(namespace string) *Objects {
	return o.clients.Objects(o.t, namespace, o.limit)
}

// Resource returns the client of a resource, for requests that need not succeed.
func (o *Objects) Resource(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return o.clients.Dynamic.Resource(r).Namespace(o.Namespace)
}

// Create creates an object, which says its apiVersion and kind. What is cluster-scoped is deleted after the test, and must be
// there until then.
func (o *Objects) Create(r schema.GroupVersionResource, object *unstructured.Unstructured) *unstructured.Unstructured {
	o.t.Helper()
	created, err := o.Resource(r).Create(o.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		o.t.Fatalf("creating %s %s: %v", r.Resource, object.GetName(), err)
	}
	if o.Namespace == "" {
		o.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(o.t.Context()), o.limit)
			defer cancel()
			if err := o.Resource(r).Delete(ctx, created.GetName(), metav1.DeleteOptions{}); err != nil {
				o.t.Errorf("deleting %s %s: %v", r.Resource, created.GetName(), err)
			}
		})
	}
	return created
}

// Get returns an object, or nil if there is none of that name.
func (o *Objects) Get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	o.t.Helper()
	found, err := o.get(o.t.Context(), r, name)
	if err != nil {
		o.t.Fatalf("reading %s %s: %v", r.Resource, name, err)
	}
	return found
}

func (o *Objects) get(ctx context.Context, r schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	found, err := o.Resource(r).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// Patch merges a JSON text into an object or its subresource.
func (o *Objects) Patch(r schema.GroupVersionResource, name, text string, subresources ...string) *unstructured.Unstructured {
	o.t.Helper()
	patched, err := o.Resource(r).Patch(o.t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
	if err != nil {
		o.t.Fatalf("patching %s %s: %v", r.Resource, name, err)
	}
	return patched
}

// Delete deletes an object, without waiting until it is gone.
func (o *Objects) Delete(r schema.GroupVersionResource, name string) {
	o.t.Helper()
	if err := o.Resource(r).Delete(o.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		o.t.Fatalf("deleting %s %s: %v", r.Resource, name, err)
	}
}

// Await waits until an object is as wanted, and returns it. The condition is asked with nil while there is no such object.
func (o *Objects) Await(r schema.GroupVersionResource, name, what string, want func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	o.t.Helper()
	var found *unstructured.Unstructured
	var err error
	EventuallySeen(o.t, o.limit, fmt.Sprintf("%s %s %s", r.Resource, name, what), func(ctx context.Context) bool {
		found, err = o.get(ctx, r, name)
		return err == nil && want(found)
	}, func() string { return seen(found, err) })
	return found
}

// seen says what was found of an object.
func seen(found *unstructured.Unstructured, err error) string {
	if err != nil {
		return err.Error()
	}
	if found == nil {
		return "it is not there"
	}
	shown, err := json.Marshal(found.Object)
	if err != nil {
		return err.Error()
	}
	return string(shown)
}

// Exists is a condition for Await.
func Exists(o *unstructured.Unstructured) bool { return o != nil }

// Gone is a condition for Await.
func Gone(o *unstructured.Unstructured) bool { return o == nil }

// Events returns the events about the objects of a name.
func (o *Objects) Events(name string) []corev1.Event {
	o.t.Helper()
	events, err := o.events(o.t.Context(), name)
	if err != nil {
		o.t.Fatalf("listing the events of %s: %v", name, err)
	}
	return events
}

func (o *Objects) events(ctx context.Context, name string) ([]corev1.Event, error) {
	list, err := o.clients.Kube.CoreV1().Events(o.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// AwaitEvent waits for an event about an object whose message contains a text.
func (o *Objects) AwaitEvent(name, eventType, reason, text string) {
	o.t.Helper()
	o.AwaitEventAs(name, describe(eventType, reason, text), isEvent(eventType, reason, text))
}

// AwaitEventOf does something until there is such an event: something that may come to nothing when the server does not see yet what
// was done before.
func (o *Objects) AwaitEventOf(do func(), name, eventType, reason, text string) {
	o.t.Helper()
	o.awaitEvent(do, name, describe(eventType, reason, text), isEvent(eventType, reason, text))
}

func describe(eventType, reason, text string) string {
	return fmt.Sprintf("%s %s %q", eventType, reason, text)
}

func isEvent(eventType, reason, text string) func(*corev1.Event) bool {
	return func(e *corev1.Event) bool {
		return e.Type == eventType && e.Reason == reason && strings.Contains(e.Message, text)
	}
}

// AwaitEventAs waits for an event about an object that is as wanted, and returns it.
func (o *Objects) AwaitEventAs(name, what string, want func(*corev1.Event) bool) *corev1.Event {
	o.t.Helper()
	return o.awaitEvent(func() {}, name, what, want)
}

// awaitEvent calls do before each look.
func (o *Objects) awaitEvent(do func(), name, what string, want func(*corev1.Event) bool) *corev1.Event {
	o.t.Helper()
	var found *corev1.Event
	Eventually(o.t, o.limit, fmt.Sprintf("the event of %s %s", name, what), func(ctx context.Context) (bool, string) {
		do()
		events, err := o.events(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		var others []string
		for _, e := range events {
			if want(&e) {
				found = &e
				return true, ""
			}
			others = append(others, e.Type+" "+e.Reason+" "+e.Message)
		}
		return false, "\n" + strings.Join(others, "\n")
	})
	return found
}
