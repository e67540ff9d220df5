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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/jsonpath"
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

// manager is who applies manifests.
const manager = "tests"

// Apply applies manifests as `kubectl apply --server-side` does, in a tenth of its time, and returns the objects. It is for kinds whose
// plural is an ordinary one.
func (c *Cluster) Apply(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	client := NewClients(t, c.Config(t)).Dynamic
	objects, err := decode(manifests)
	if err != nil {
		t.Fatalf("reading manifests: %v\n%s", err, manifests)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: manager, Force: &force, FieldValidation: metav1.FieldValidationStrict}
	for i, o := range objects {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatalf("writing %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if objects[i], err = resourceOf(client, o).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text, options); err != nil {
			t.Fatalf("applying %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	return objects
}

// ApplyForTest is [Cluster.Apply] for what goes with the test, if it is there until then.
func (c *Cluster) ApplyForTest(t testing.TB, manifests string) {
	t.Helper()
	objects := c.Apply(t, manifests)
	client := NewClients(t, c.Config(t)).Dynamic
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Limit)
		defer cancel()
		for _, o := range objects {
			if err := resourceOf(client, o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("deleting %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	})
}

// decode returns the objects of manifests in YAML.
func decode(manifests string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding the object after %d others: %w", len(objects), err)
		}
		// What is before the first separator may be a comment alone.
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// resourceOf returns the client of an object.
func resourceOf(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return client.Resource(resource).Namespace(o.GetNamespace())
}

// reader finds objects by the names that kinds have for kubectl.
type reader struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (c *Cluster) newReader() (*reader, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the dynamic client: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of discovery: %w", err)
	}
	return &reader{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}, nil
}

// Field returns what `kubectl get OBJECT -o jsonpath=PATH` prints, without the time that a program takes to start and to find out what there
// is. The object is of the form kind/name, or a kind alone for all of the namespace, which does not matter to kinds that are in none.
func (c *Cluster) Field(ctx context.Context, namespace, object, path string) (string, error) {
	r, err := c.reader()
	if err != nil {
		return "", err
	}
	kind, name, one := strings.Cut(object, "/")
	mapping, err := r.mapping(kind)
	if err != nil {
		return "", fmt.Errorf("finding the kind %s: %w", kind, err)
	}
	resource := dynamic.ResourceInterface(r.client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = r.client.Resource(mapping.Resource).Namespace(namespace)
	}
	var found interface{ UnstructuredContent() map[string]any }
	if one {
		found, err = resource.Get(ctx, name, metav1.GetOptions{})
	} else {
		found, err = resource.List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", object, err)
	}
	return printed(found.UnstructuredContent(), path)
}

// mapping finds a kind by its plural or singular name, which may be followed by a point and the group.
func (r *reader) mapping(name string) (*meta.RESTMapping, error) {
	resource := schema.ParseGroupResource(name).WithVersion("")
	kind, err := r.mapper.KindFor(resource)
	if meta.IsNoMatchError(err) {
		// It may have been defined since.
		r.mapper.Reset()
		kind, err = r.mapper.KindFor(resource)
	}
	if err != nil {
		return nil, err
	}
	return r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// printed prints what is at a path of an object.
func printed(object map[string]any, path string) (string, error) {
	parsed := jsonpath.New("path").AllowMissingKeys(true)
	if err := parsed.Parse(path); err != nil {
		return "", fmt.Errorf("reading the path %s: %w", path, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, object); err != nil {
		return "", fmt.Errorf("following the path %s: %w", path, err)
	}
	return out.String(), nil
}
