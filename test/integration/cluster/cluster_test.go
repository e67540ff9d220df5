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

// Package cluster tests the access to the cluster, packages below pkg/cluster, against a real control plane.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	engine "github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/credentials"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

const limit = cluster.Limit

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// run starts the engine's view of the shared control plane.
func run(t *testing.T) (*cluster.Cluster, *engine.Cluster) {
	t.Helper()
	plane := cluster.Shared(t)
	c, err := engine.New(engine.Options{Config: plane.Config(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return plane, c
}

// await waits for a channel to be closed or to yield, and returns what it yields.
func await[T any](t *testing.T, what string, c <-chan T) (got T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	select {
	case got = <-c:
	case <-ctx.Done():
		t.Fatalf("waiting for %s: %v", what, ctx.Err())
	}
	return got
}

// deleteAfterwards deletes an object when the test's context has ended.
func deleteAfterwards(t *testing.T, plane *cluster.Cluster, kind, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
		defer cancel()
		if output, err := plane.TryKubectl(ctx, "", "delete", kind, name); err != nil {
			t.Errorf("deleting %s %s: %v\n%s", kind, name, err, output)
		}
	})
}

func TestCachedObjectsAreWhatTheServerHas(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	plane.Kubectl(t, "-n", ns, "create", "configmap", "plain", "--from-literal=a=<&>\u2028é")
	plane.KubectlInput(t, "", "-n", ns, "label", "configmap", "plain", "app=x")
	plane.Kubectl(t, "-n", ns, "create", "serviceaccount", "account")
	plane.Kubectl(t, "create", "clusterrole", "odd:<"+ns+">", "--verb=get", "--resource=pods")
	deleteAfterwards(t, plane, "clusterrole", "odd:<"+ns+">")

	reader := cluster.NewClients(t, plane.Config(t)).Dynamic
	for _, resource := range []schema.GroupVersionResource{
		configMaps, namespaces,
		{Version: "v1", Resource: "serviceaccounts"},
		{Version: "v1", Resource: "services"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
	} {
		t.Run(resource.Resource, func(t *testing.T) {
			i := c.Cache.Acquire(cache.Query{Resource: resource})
			defer i.Release()
			await(t, "the informer", i.Synced())
			list, err := reader.Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			for _, want := range list.Items {
				o, ok := i.Get(want.GetNamespace(), want.GetName())
				if !ok || o.ResourceVersion() != want.GetResourceVersion() {
					continue // It changes just now.
				}
				compared++
				unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
				got, err := o.Decode()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.Object, got); diff != "" {
					t.Errorf("%s (-want +got)\n%s", o, diff)
				}
				if o.UID() != want.GetUID() || !maps.Equal(o.Labels(), want.GetLabels()) || !maps.Equal(o.Annotations(), want.GetAnnotations()) ||
					!slices.EqualFunc(o.OwnerReferences(), want.GetOwnerReferences(), sameOwner) || !o.CreationTime().Equal(want.GetCreationTimestamp().Time) {
					t.Errorf("metadata of %s differ", o)
				}
			}
			if compared == 0 {
				t.Error("nothing could be compared")
			}
		})
	}
}

func sameOwner(got object.OwnerReference, want metav1.OwnerReference) bool {
	return got == object.OwnerReference{
		APIVersion: want.APIVersion, Kind: want.Kind, Name: want.Name, UID: want.UID,
		Controller: ptr.Deref(want.Controller, false), BlockOwnerDeletion: ptr.Deref(want.BlockOwnerDeletion, false),
	}
}

func TestCredentialsFollowTheirObjects(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	changes := make(chan credentials.Reference, 100)
	defer c.Credentials.Subscribe(func(r credentials.Reference) { changes <- r })()
	read := c.Credentials.Secret
	if _, _, err := read(t.Context(), ns, "token"); !apierrors.IsNotFound(err) {
		t.Fatalf("reading a Secret that is not there: %v, want not found", err)
	}
	plane.Kubectl(t, "-n", ns, "create", "secret", "generic", "other", "--from-literal=k=v")
	plane.Kubectl(t, "-n", ns, "create", "secret", "generic", "token", "--from-literal=k=one")
	want := credentials.Reference{Kind: "Secret", Namespace: ns, Name: "token"}
	if got := await(t, "the first change", changes); got != want {
		t.Errorf("told of %s, want %s and no other", got, want)
	}
	first, data, err := read(t.Context(), ns, "token")
	if err != nil || string(data["k"]) != "one" {
		t.Fatalf("read %q, %v", data, err)
	}
	if again, _, err := read(t.Context(), ns, "token"); err != nil || again != first {
		t.Errorf("version %s became %s, %v without a change", first, again, err)
	}
	plane.Kubectl(t, "-n", ns, "patch", "secret", "token", "--type=merge", "-p", `{"stringData":{"k":"two"}}`)
	await(t, "the change", changes)
	second, data, err := read(t.Context(), ns, "token")
	if err != nil || string(data["k"]) != "two" || second == first {
		t.Errorf("read %q in version %s after %s, %v", data, second, first, err)
	}
	plane.Kubectl(t, "-n", ns, "delete", "secret", "token")
	await(t, "the deletion", changes)
	if _, _, err := read(t.Context(), ns, "token"); !apierrors.IsNotFound(err) {
		t.Errorf("reading a Secret that was deleted: %v, want not found", err)
	}
}

func TestConfigMapsGiveTextAndBytes(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	plane.KubectlInput(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ca"},"data":{"text":"a"},"binaryData":{"bytes":"/w=="}}`,
		"-n", ns, "create", "-f", "-")
	_, data, err := c.Credentials.ConfigMap(t.Context(), ns, "ca")
	if err != nil || string(data["text"]) != "a" || string(data["bytes"]) != "\xff" {
		t.Errorf("read %q, %v", data, err)
	}
}

// TestCredentialsNeedAccessToOneNameOnly runs as a user that may see one Secret.
func TestCredentialsNeedAccessToOneNameOnly(t *testing.T) {
	plane := cluster.Shared(t)
	ns := plane.Namespace(t)
	plane.Kubectl(t, "-n", ns, "create", "secret", "generic", "token", "--from-literal=k=v")
	plane.Kubectl(t, "-n", ns, "create", "role", "one", "--verb=get,list,watch", "--resource=secrets", "--resource-name=token")
	plane.Kubectl(t, "-n", ns, "create", "rolebinding", "one", "--role=one", "--user=reader")
	plane.AwaitAccess(t, "reader", authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Resource: "secrets", Name: "token"}, true)
	config := plane.Config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: "reader"}
	store, err := credentials.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	if _, data, err := store.Secret(ctx, ns, "token"); err != nil || string(data["k"]) != "v" {
		t.Errorf("read %q, %v", data, err)
	}
	if _, _, err := store.Secret(ctx, ns, "hidden"); !apierrors.IsForbidden(err) {
		t.Errorf("reading a Secret without permission: %v, want forbidden at once", err)
	}
	short, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	if _, _, err := store.ConfigMap(short, ns, "late"); !errors.Is(err, context.DeadlineExceeded) && !apierrors.IsForbidden(err) {
		t.Errorf("reading without time: %v", err)
	}
}

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.%[1]s"},
"spec":{"group":"%[1]s","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"%[2]s],"items":{"type":"object","required":["id"],
"properties":{"id":{"type":"string"},"kind":{"type":"string","default":"d"}}}},
"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"any":{"type":"array","items":{"type":"string"}}}}}}}}]}}`

func TestKindsAreKnownSoonAfterTheyAreServed(t *testing.T) {
	plane, c := run(t)
	group := "g" + rand.String(6) + ".example.com"
	changes := make(chan struct{}, 1000)
	defer c.Discovery.Subscribe(func() { changes <- struct{}{} })()
	ask := func() (discovery.Resource, error) { return c.Discovery.Resource(t.Context(), group+"/v1", "things") }
	_, err := ask()
	missing, ok := errors.AsType[*discovery.NotFoundError](err)
	if !ok || missing.APIVersion != group+"/v1" || missing.Resource != "things" {
		t.Fatalf("error %v, want not found", err)
	}
	plane.KubectlInput(t, fmt.Sprintf(definition, group, ""), "create", "-f", "-")
	var got discovery.Resource
	for got, err = ask(); err != nil; got, err = ask() {
		// Without a further call of the subscriber this would wait for ever: nobody polls.
		await(t, "a change", changes)
	}
	want := discovery.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"},
		Kind:                 "Thing", Namespaced: true, HasStatus: true, Verbs: got.Verbs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resource (-want +got)\n%s", diff)
	}
	if byKind, err := c.Discovery.Kind(t.Context(), group+"/v1", "Thing"); err != nil || !cmp.Equal(byKind, got) {
		t.Errorf("by kind: %v, %v", byKind, err)
	}
	thing := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"}
	parts := func() string {
		found, err := c.Discovery.Schema(t.Context(), thing)
		if err != nil {
			t.Fatal(err)
		}
		kind, keys := found.Field("spec").Field("parts").ListType()
		return kind + " by " + strings.Join(keys, ",")
	}
	for parts() != "map by id" {
		await(t, "the schema", changes)
	}
	plane.KubectlInput(t, fmt.Sprintf(definition, group, `,"kind"`), "apply", "--server-side", "--force-conflicts", "-f", "-")
	for parts() != "map by id,kind" {
		await(t, "the changed schema", changes)
	}
	plane.Kubectl(t, "delete", "crd", "things."+group)
	for {
		if _, err := ask(); err != nil {
			if _, ok := errors.AsType[*discovery.NotFoundError](err); !ok {
				t.Errorf("error %v, want not found", err)
			}
			return
		}
		await(t, "the end of the kind", changes)
	}
}

func TestBuiltInKindsAreDescribed(t *testing.T) {
	_, c := run(t)
	for name, tc := range map[string]struct {
		apiVersion, resource string
		kind                 string
		namespaced, status   bool
	}{
		"Pods":        {"v1", "pods", "Pod", true, true},
		"ConfigMaps":  {"v1", "configmaps", "ConfigMap", true, false},
		"Namespaces":  {"v1", "namespaces", "Namespace", false, true},
		"Deployments": {"apps/v1", "deployments", "Deployment", true, true},
		"APIServices": {"apiregistration.k8s.io/v1", "apiservices", "APIService", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.Discovery.Resource(t.Context(), tc.apiVersion, tc.resource)
			if err != nil {
				t.Fatal(err)
			}
			if r.Kind != tc.kind || r.Namespaced != tc.namespaced || r.HasStatus != tc.status || r.APIVersion() != tc.apiVersion {
				t.Errorf("got %+v", r)
			}
		})
	}
	for _, missing := range []string{"pods/log", "nothings", ""} {
		if r, err := c.Discovery.Resource(t.Context(), "v1", missing); err == nil {
			t.Errorf("%q is %+v", missing, r)
		}
	}
	if _, err := c.Discovery.Resource(t.Context(), "a/b/c", "things"); err == nil {
		t.Error("an apiVersion with two slashes was taken")
	}
}

// TestObjectsOfBuiltInKindsAreWrittenAsTheyAre is about which are written as a whole. The one of a claim says otherwise than the type to which it refers.
func TestObjectsOfBuiltInKindsAreWrittenAsTheyAre(t *testing.T) {
	_, c := run(t)
	core := func(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: kind} }
	for name, tc := range map[string]struct {
		kind schema.GroupVersionKind
		path []string
		want bool
	}{
		"Selector":     {core("Service"), []string{"spec", "selector"}, true},
		"PullSecret":   {core("Pod"), []string{"spec", "imagePullSecrets", "*"}, true},
		"Owner":        {core("Pod"), []string{"metadata", "ownerReferences", "*"}, true},
		"Labels":       {core("Pod"), []string{"metadata", "labels"}, false},
		"Claim":        {core("PersistentVolume"), []string{"spec", "claimRef"}, false},
		"NodeAffinity": {core("PersistentVolume"), []string{"spec", "nodeAffinity", "required"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := c.Discovery.Schema(t.Context(), tc.kind)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range tc.path {
				if field == "*" {
					s = s.Item()
					continue
				}
				s = s.Field(field)
			}
			if s == nil || s.Atomic() != tc.want {
				t.Errorf("%s is known: %t, and written as a whole: %t, want %t", strings.Join(tc.path, "."), s != nil, s.Atomic(), tc.want)
			}
		})
	}
}
