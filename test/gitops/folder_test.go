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

package gitops

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/utils/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

//go:embed testdata/folder.yaml
var folder string

// children are the kinds of children that the controllers of a folder create for each parent.
var children = []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "serviceaccounts"}}

// An application is a folder of manifests that a tool deploys.
type application struct {
	*cluster.Cluster
	*cluster.Clients

	name string
}

// objects are those of the folder in an order by chance, new ones each time.
func (a *application) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	all := parse(t, strings.ReplaceAll(folder, "FOLDER", a.name))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	all, err := kube.SplitYAML([]byte(text))
	if err != nil {
		t.Fatalf("reading manifests: %v", err)
	}
	return all
}

// without leaves out the object of that kind and name.
func without(all []*unstructured.Unstructured, kind, name string) []*unstructured.Unstructured {
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
}

// parents are the objects of the folder's kind.
func (a *application) parents() dynamic.ResourceInterface {
	return a.Dynamic.Resource(schema.GroupVersionResource{Group: a.name + ".example.com", Version: "v1", Resource: "websites"}).Namespace(a.name)
}

func (a *application) composites() dynamic.ResourceInterface {
	return a.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource("compositecontrollers"))
}

// state is what a tool could have changed of the controllers, the parents and the children, by kind and name: all but the status.
func (a *application) state(t *testing.T) map[string]string {
	t.Helper()
	found := a.childState(t)
	decorators := a.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource("decoratorcontrollers"))
	for _, client := range []dynamic.ResourceInterface{a.composites(), decorators, a.parents()} {
		maps.Copy(found, list(t, client, a.name))
	}
	return found
}

// childState is the state of the children alone.
func (a *application) childState(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, resource := range children {
		maps.Copy(found, list(t, a.Dynamic.Resource(resource).Namespace(a.name), ""))
	}
	for key := range found {
		// The cluster's own are in each namespace.
		if strings.HasSuffix(key, "/default") || strings.HasSuffix(key, "/kube-root-ca.crt") {
			delete(found, key)
		}
	}
	return found
}

// list has the objects of a resource whose names begin so, or that are in a namespace.
func list(t *testing.T, client dynamic.ResourceInterface, prefix string) map[string]string {
	t.Helper()
	all, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing objects: %v", err)
	}
	found := map[string]string{}
	for _, o := range all.Items {
		if o.GetNamespace() == "" && !strings.HasPrefix(o.GetName(), prefix) {
			continue
		}
		managed := slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "status" })
		for i := range managed {
			managed[i].Time = nil
		}
		o.SetManagedFields(managed)
		o.SetResourceVersion("")
		delete(o.Object, "status")
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatalf("writing %s: %v", o.GetName(), err)
		}
		found[o.GetKind()+"/"+o.GetName()] = string(text)
	}
	return found
}

// differences are the lines in which two states differ.
func differences(before, after map[string]string) []string {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(before)) {
		switch now, exists := after[key]; {
		case !exists:
			found = append(found, key+" is gone")
		case now != before[key]:
			found = append(found, fmt.Sprintf("%s was\n  %s\nand is\n  %s", key, before[key], now))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, existed := before[key]; !existed {
			found = append(found, key+" is new")
		}
	}
	return found
}
