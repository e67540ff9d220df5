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

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

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
				view := o.GetObjectMeta()
				if view.GetUID() != want.GetUID() || !cmp.Equal(view.GetLabels(), want.GetLabels()) ||
					!cmp.Equal(view.GetAnnotations(), want.GetAnnotations()) || !cmp.Equal(view.GetOwnerReferences(), want.GetOwnerReferences()) ||
					view.GetCreationTimestamp().UTC() != want.GetCreationTimestamp().UTC() {
					t.Errorf("metadata of %s differ", o)
				}
			}
			if compared == 0 {
				t.Error("nothing could be compared")
			}
		})
	}
}

func TestChangesAreSeenInTheOrderOfTheirVersions(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	i := c.Cache.Acquire(cache.Query{Resource: configMaps, Namespace: ns})
	defer i.Release()
	events := make(chan string, 100)
	defer i.Subscribe(func(e cache.Event) {
		if e.Old != nil && e.Old.Name() == "kube-root-ca.crt" || e.New != nil && e.New.Name() == "kube-root-ca.crt" {
			return
		}
		switch e.Type {
		case cache.Added:
			events <- "added"
		case cache.Updated:
			events <- "updated " + string(e.New.JSON()[:8])
		case cache.Deleted:
			events <- "deleted"
		}
	})()
	await(t, "the informer", i.Synced())
	target := client.Target{Resource: configMaps, Namespace: ns}
	created, err := c.Client.Create(t.Context(), target, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	target.Name = "a"
	updated, err := c.Client.Update(t.Context(), target, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Delete(t.Context(), target, "another", updated.ResourceVersion()); !apierrors.IsConflict(err) {
		t.Errorf("deleting with another UID: %v, want a conflict", err)
	}
	if err := c.Client.Delete(t.Context(), target, created.UID(), created.ResourceVersion()); !apierrors.IsConflict(err) {
		t.Errorf("deleting a former version: %v, want a conflict", err)
	}
	if err := c.Client.Delete(t.Context(), target, created.UID(), updated.ResourceVersion()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"added", `updated {"kind":`, "deleted"} {
		select {
		case got := <-events:
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
	if _, ok := i.Get(ns, "a"); ok {
		t.Error("the object is still there")
	}
}

func TestOrphansAndChildrenAreFound(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	// The garbage collector deletes what has an owner that does not exist.
	uid := types.UID(plane.Kubectl(t, "get", "namespace", ns, "-o", "jsonpath={.metadata.uid}"))
	for n := range 3 {
		owner := ""
		if n == 0 {
			owner = fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":%q,"uid":%q,"controller":true}]`, ns, uid)
		}
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","labels":{"n":"%d","app":"x"}%s}}`, n, n, owner)
		if _, err := c.Client.Create(t.Context(), client.Target{Resource: configMaps, Namespace: ns}, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	i := c.Cache.Acquire(cache.Query{Resource: configMaps, LabelSelector: "app=x", Namespace: ns})
	defer i.Release()
	await(t, "the informer", i.Synced())
	if i.Len() != 3 {
		t.Errorf("%d objects have the label, want 3", i.Len())
	}
	selector := labels.SelectorFromSet(labels.Set{"app": "x", "n": "2"})
	if found := i.Orphans(ns, selector); len(found) != 1 || found[0].Name() != "c2" {
		t.Errorf("orphans with n=2: %v", found)
	}
	if found := i.ControlledBy(uid); len(found) != 1 || found[0].Name() != "c0" {
		t.Errorf("controlled: %v", found)
	}
}

func TestMetadataOnlyInformersHaveNoContents(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	plane.Kubectl(t, "-n", ns, "create", "configmap", "a", "--from-literal=k=v")
	i := c.Cache.Acquire(cache.Query{Resource: configMaps, Namespace: ns, MetadataOnly: true})
	defer i.Release()
	await(t, "the informer", i.Synced())
	o, ok := i.Get(ns, "a")
	if !ok {
		t.Fatal("the object is not there")
	}
	if _, ok := o.Field("data"); ok || o.Kind() != "PartialObjectMetadata" {
		t.Errorf("got %s", o.JSON())
	}
}

// TestExpectationsAreMetByTheirWrites proves that versions of writes and of watch events are of one order.
func TestExpectationsAreMetByTheirWrites(t *testing.T) {
	plane, c := run(t)
	ns := plane.Namespace(t)
	i := c.Cache.Acquire(cache.Query{Resource: configMaps})
	defer i.Release()
	key := parent.Key{Name: "parent"}
	released := make(chan struct{}, 1)
	e := expectations.New(func(parent.Key) { released <- struct{}{} }, nil)
	defer e.Close()
	defer e.Observe(i)()
	await(t, "the informer", i.Synced())
	wait := func() {
		t.Helper()
		if !e.Satisfied(key) {
			await(t, "the expectations", released)
		}
	}
	for n := range 20 {
		target := client.Target{Resource: configMaps, Namespace: ns}
		name := fmt.Sprint("c", n)
		body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}})
		if err != nil {
			t.Fatal(err)
		}
		created, err := c.Client.Create(t.Context(), target, body)
		if err != nil {
			t.Fatal(err)
		}
		e.Wrote(key, i, created)
		wait()
		if _, ok := i.Get(ns, name); !ok {
			t.Fatalf("the cache does not show %s", name)
		}
		target.Name = name
		if err := c.Client.Delete(t.Context(), target, created.UID(), created.ResourceVersion()); err != nil {
			t.Fatal(err)
		}
		e.Deleted(key, i, created)
		wait()
		if _, ok := i.Get(ns, name); ok {
			t.Fatalf("the cache still shows %s", name)
		}
	}
}

// Its objects have the field all the time, under the same version: what they show depends on their definition.
func TestAFieldThatADefinitionTakesAwayAndGivesBackIsShownAsItIs(t *testing.T) {
	plane, c := run(t)
	ns, group := plane.Namespace(t), "g"+rand.String(6)+".example.com"
	with := fmt.Sprintf(definition, group, "")
	without := strings.Replace(with, `"tags":`, `"other":`, 1)
	plane.KubectlInput(t, with, "create", "-f", "-")
	deleteAfterwards(t, plane, "crd", "things."+group)
	plane.Kubectl(t, "wait", "--for=condition=Established", "crd", "things."+group)
	i := c.Cache.Acquire(cache.Query{Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}})
	defer i.Release()
	await(t, "the informer", i.Synced())
	plane.KubectlInput(t, `{"apiVersion":"`+group+`/v1","kind":"Thing","metadata":{"name":"a","namespace":"`+ns+`"},"spec":{"tags":["x"]}}`, "create", "-f", "-")
	version := ""
	shows := func(want bool) {
		t.Helper()
		cluster.Eventually(t, limit, fmt.Sprintf("an object that shows its tags, %t", want), func(context.Context) (bool, string) {
			o, ok := i.Get(ns, "a")
			if !ok {
				return false, "it is not there"
			}
			if version == "" {
				version = o.ResourceVersion()
			}
			_, has := o.Field("spec", "tags")
			return has == want && o.ResourceVersion() == version, string(o.JSON())
		})
	}
	shows(true)
	plane.KubectlInput(t, without, "replace", "-f", "-")
	shows(false)
	plane.KubectlInput(t, with, "replace", "-f", "-")
	shows(true)
}
