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
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
)

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

func TestListsOfBuiltInKindsHaveTheirMergeKeys(t *testing.T) {
	_, c := run(t)
	pod := []string{"spec", "template", "spec"}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	service := schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	for name, tc := range map[string]struct {
		kind schema.GroupVersionKind
		path []string
		want string
	}{
		"Containers":  {deployment, append(pod, "containers"), "map by name"},
		"Env":         {deployment, append(pod, "containers", "*", "env"), "map by name"},
		"Ports":       {deployment, append(pod, "containers", "*", "ports"), "map by containerPort,protocol"},
		"Mounts":      {deployment, append(pod, "containers", "*", "volumeMounts"), "map by mountPath"},
		"Args":        {deployment, append(pod, "containers", "*", "args"), "atomic by "},
		"Tolerations": {deployment, append(pod, "tolerations"), "atomic by "},
		"ServicePort": {service, []string{"spec", "ports"}, "map by port,protocol"},
		"Finalizers":  {service, []string{"metadata", "finalizers"}, "set by "},
		"Owners":      {service, []string{"metadata", "ownerReferences"}, "map by uid"},
		"NoList":      {service, []string{"spec", "type"}, " by "},
		"Unknown":     {service, []string{"spec", "nothing", "below"}, " by "},
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
			kind, keys := s.ListType()
			if got := kind + " by " + strings.Join(keys, ","); got != tc.want {
				t.Errorf("%s is %q, want %q", strings.Join(tc.path, "."), got, tc.want)
			}
		})
	}
	unknown := schema.GroupVersionKind{Group: "none.example.com", Version: "v1", Kind: "None"}
	if s, err := c.Discovery.Schema(t.Context(), unknown); s != nil || err != nil {
		t.Errorf("schema of an unknown kind: %v, %v", s, err)
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
