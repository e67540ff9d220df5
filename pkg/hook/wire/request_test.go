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

package wire_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

var update = flag.Bool("update", false, "write testdata/requests anew")

// observed is an object as the cluster cache would hold it.
type observed struct{ namespace, name, json string }

func (o observed) JSON() []byte      { return []byte(o.json) }
func (o observed) Namespace() string { return o.namespace }
func (o observed) Name() string      { return o.name }

// object returns an object whose keys are not sorted, as the API server sends them.
func object(apiVersion, kind, namespace, name string) observed {
	metadata := map[string]any{"name": name, "uid": "uid-of-" + name, "resourceVersion": "7"}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	encoded, _ := json.Marshal(metadata)
	return observed{namespace: namespace, name: name, json: `{"kind":"` + kind + `","apiVersion":"` + apiVersion + `","metadata":` + string(encoded) + `}`}
}

func composite(t *testing.T) []byte {
	t.Helper()
	c := &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fleet", UID: "uid-of-fleet", Generation: 2, ResourceVersion: "40",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: v1alpha1.CompositeControllerSpec{
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{
				ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "fleets"},
			},
			ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}},
			},
		},
		Status: v1alpha1.CompositeControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{ObservedGeneration: 1}},
	}
	encoded, err := wire.EncodeComposite(c, wire.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ManagedFields) == 0 || c.Status.ObservedGeneration == 0 {
		t.Fatal("encoding changed the controller")
	}
	return encoded
}

func decorator(t *testing.T) []byte {
	t.Helper()
	encoded, err := wire.EncodeDecorator(&v1alpha1.DecoratorController{
		ObjectMeta: metav1.ObjectMeta{Name: "labeler", UID: "uid-of-labeler", Generation: 1, ResourceVersion: "41"},
		Spec: v1alpha1.DecoratorControllerSpec{
			Resources: []v1alpha1.DecoratorControllerResourceRule{
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
			},
		},
		Status: v1alpha1.DecoratorControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{ObservedGeneration: 1}},
	}, wire.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// children are of two types, in no order, with one type that nothing was observed of.
func children(namespaces ...string) []wire.Group {
	var pods, deployments []observed
	for _, namespace := range namespaces {
		pods = append(pods, object("v1", "Pod", namespace, "web-1"), object("v1", "Pod", namespace, "web-0"))
		deployments = append(deployments, object("apps/v1", "Deployment", namespace, "db"))
	}
	return []wire.Group{
		wire.GroupOf("Service.v1", []observed{}),
		wire.GroupOf("Pod.v1", pods),
		wire.GroupOf("Deployment.apps/v1", deployments),
	}
}

// related has objects of the parent's namespace, of another one, cluster-scoped ones, two rules for one type, and a name
// with characters that JSON escapes.
func related() []wire.Group {
	return []wire.Group{
		wire.GroupOf("ConfigMap.v1", []observed{
			object("v1", "ConfigMap", "shop", "settings"), object("v1", "ConfigMap", "shop-2", "settings"), object("v1", "ConfigMap", "base", "settings"),
		}),
		wire.GroupOf("ClusterRole.rbac.authorization.k8s.io/v1", []observed{
			object("rbac.authorization.k8s.io/v1", "ClusterRole", "", `odd"<name>`), object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:node"),
		}),
		wire.GroupOf("ConfigMap.v1", []observed{
			object("v1", "ConfigMap", "shop", "settings"), object("v1", "ConfigMap", "shop", "names"),
		}),
		wire.GroupOf("Secret.v1", []observed{}),
	}
}

// TestRequestBodies compares request bodies with files, byte for byte but for indentation. Run with -update to write them.
func TestRequestBodies(t *testing.T) {
	namespaced := object("example.com/v1", "Fleet", "shop", "main")
	cluster := object("example.com/v1", "Region", "", "eu")
	pod := object("v1", "Pod", "shop", "web-0")
	node := object("v1", "Node", "", "node-1")

	cases := map[string]struct {
		reason string
		body   []byte
	}{
		"composite-sync-v1-namespaced": {
			reason: "v1 keys are names, and only the parent's namespace is shown.",
			body:   wire.Composite(wire.Request{Version: "v1", Controller: composite(t), Parent: namespaced, Children: children("shop"), Related: related()}),
		},
		"composite-sync-v2-namespaced": {
			reason: "v2 keys are namespace/name, and all related objects are shown.",
			body:   wire.Composite(wire.Request{Version: "v2", Controller: composite(t), Parent: namespaced, Children: children("shop"), Related: related()}),
		},
		"composite-sync-v1-cluster": {
			reason: "A cluster-scoped parent sees all namespaces in v1 too.",
			body:   wire.Composite(wire.Request{Version: "v1", Controller: composite(t), Parent: cluster, Children: children("shop", "base"), Related: related()}),
		},
		"composite-sync-v2-cluster": {
			reason: "For a cluster-scoped parent the versions do not differ.",
			body:   wire.Composite(wire.Request{Version: "v2", Controller: composite(t), Parent: cluster, Children: children("shop", "base"), Related: related()}),
		},
		"composite-finalize-v1-namespaced": {
			reason: "Finalize differs in the field finalizing. Without related objects the map is empty, not null.",
			body:   wire.Composite(wire.Request{Version: "v1", Controller: composite(t), Parent: namespaced, Children: children("shop"), Finalizing: true}),
		},
		"composite-finalize-v2-cluster": {
			reason: "Finalize in v2.",
			body:   wire.Composite(wire.Request{Version: "v2", Controller: composite(t), Parent: cluster, Children: children("shop"), Finalizing: true}),
		},
		"composite-customize-namespaced": {
			reason: "Customize has two fields, and no version.",
			body:   wire.Customize(composite(t), namespaced),
		},
		"composite-customize-cluster": {
			reason: "The same for a cluster-scoped parent.",
			body:   wire.Customize(composite(t), cluster),
		},
		"decorator-sync-v1-namespaced": {
			reason: "A decorator's fields are object and attachments.",
			body:   wire.Decorator(wire.Request{Version: "v1", Controller: decorator(t), Parent: pod, Children: children("shop"), Related: related()}),
		},
		"decorator-sync-v2-namespaced": {
			reason: "v2 keys are namespace/name, and all related objects are shown.",
			body:   wire.Decorator(wire.Request{Version: "v2", Controller: decorator(t), Parent: pod, Children: children("shop"), Related: related()}),
		},
		"decorator-sync-v1-cluster": {
			reason: "Attachments of a cluster-scoped target have namespace/name keys in v1 too.",
			body:   wire.Decorator(wire.Request{Version: "v1", Controller: decorator(t), Parent: node, Children: children("shop", "base"), Related: related()}),
		},
		"decorator-sync-v2-cluster": {
			reason: "For a cluster-scoped target the versions do not differ.",
			body:   wire.Decorator(wire.Request{Version: "v2", Controller: decorator(t), Parent: node, Children: children("shop", "base"), Related: related()}),
		},
		"decorator-finalize-v1-cluster": {
			reason: "Finalize in v1.",
			body:   wire.Decorator(wire.Request{Version: "v1", Controller: decorator(t), Parent: node, Children: children(), Finalizing: true}),
		},
		"decorator-finalize-v2-namespaced": {
			reason: "Finalize in v2.",
			body:   wire.Decorator(wire.Request{Version: "v2", Controller: decorator(t), Parent: pod, Children: children("shop"), Finalizing: true}),
		},
		"decorator-customize-namespaced": {
			reason: "The field is called parent for decorators too.",
			body:   wire.Customize(decorator(t), pod),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var compact, indented bytes.Buffer
			if err := json.Compact(&compact, tc.body); err != nil {
				t.Fatalf("%s\nThe body is not JSON: %v\n%s", tc.reason, err, tc.body)
			}
			if diff := cmp.Diff(compact.String(), string(tc.body)); diff != "" {
				t.Errorf("%s\nThe body holds white space:\n%s", tc.reason, diff)
			}
			if err := json.Indent(&indented, tc.body, "", "  "); err != nil {
				t.Fatal(err)
			}
			indented.WriteByte('\n')
			file := filepath.Join("testdata", "requests", name+".json")
			if *update {
				if err := os.WriteFile(file, indented.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), indented.String()); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBodiesDoNotDependOnTheOrderOfInput(t *testing.T) {
	request := wire.Request{Version: "v2", Controller: composite(t), Parent: object("example.com/v1", "Fleet", "shop", "main"), Children: children("shop", "base"), Related: related()}
	want := wire.Composite(request)
	reversed := func(groups []wire.Group) []wire.Group {
		var turned []wire.Group
		for _, g := range groups {
			turned = append([]wire.Group{{Key: g.Key}}, turned...)
			for _, o := range g.Objects {
				turned[0].Objects = append([]wire.Object{o}, turned[0].Objects...)
			}
		}
		return turned
	}
	request.Children, request.Related = reversed(request.Children), reversed(request.Related)
	if diff := cmp.Diff(string(want), string(wire.Composite(request))); diff != "" {
		t.Errorf("the body changed with the order of groups and objects (-before +after):\n%s", diff)
	}
}

// TestBodiesAreWhatTheTypesSay decodes spliced bodies into the published types and back: nothing may be lost or added.
func TestBodiesAreWhatTheTypesSay(t *testing.T) {
	request := wire.Request{Version: "v2", Parent: object("example.com/v1", "Fleet", "shop", "main"), Children: children("shop"), Related: related(), Finalizing: true}
	asComposite, asDecorator := request, request
	asComposite.Controller, asDecorator.Controller = composite(t), decorator(t)
	cases := map[string]struct {
		body   []byte
		target any
	}{
		"CompositeRequest": {wire.Composite(asComposite), &hook.CompositeRequest{}},
		"DecoratorRequest": {wire.Decorator(asDecorator), &hook.DecoratorRequest{}},
		"CustomizeRequest": {wire.Customize(composite(t), request.Parent), &hook.CustomizeRequest{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			decoder := json.NewDecoder(bytes.NewReader(tc.body))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(tc.target); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(tc.target)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := json.Unmarshal(tc.body, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(again, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-spliced +encoded from the type):\n%s", diff)
			}
		})
	}
}

func TestManagedFieldsOfTheControllerAreKeptOnRequest(t *testing.T) {
	c := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	encoded, err := wire.EncodeComposite(c, wire.EncodeOptions{ManagedFields: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"managedFields":[{"manager":"kubectl"}]`, `"apiVersion":"metacontroller.k8s.io/v1alpha1"`, `"kind":"CompositeController"`, `"status":{}`} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("no %s in %s", want, encoded)
		}
	}
}

// TestRequestBuildingAllocatesLittle guards the point of splicing: objects are copied once, and not one by one.
func TestRequestBuildingAllocatesLittle(t *testing.T) {
	request := benchmarkRequest("v1", 1000)
	if n := testing.AllocsPerRun(10, func() { wire.Composite(request) }); n > 12 {
		t.Errorf("building a v1 request with 1000 children allocates %.0f times", n)
	}
}

func benchmarkRequest(version v1alpha1.HookVersion, count int) wire.Request {
	objects := make([]observed, count)
	for i := range objects {
		objects[i] = object("v1", "ConfigMap", "shop", fmt.Sprintf("settings-%d", i*7919%count))
		objects[i].json = objects[i].json[:len(objects[i].json)-1] + `,"data":{"text":"` + strings.Repeat("0123456789", 70) + `"}}`
	}
	return wire.Request{
		Version: version, Controller: []byte(`{}`), Parent: object("example.com/v1", "Fleet", "shop", "main"),
		Children: []wire.Group{wire.GroupOf("ConfigMap.v1", preEncoded(objects))},
	}
}

// encoded is an observed object whose bytes are at hand, so that a benchmark does not measure their conversion.
type encoded struct {
	observed
	bytes []byte
}

func (e *encoded) JSON() []byte { return e.bytes }

func preEncoded(objects []observed) []*encoded {
	all := make([]*encoded, len(objects))
	for i, o := range objects {
		all[i] = &encoded{observed: o, bytes: []byte(o.json)}
	}
	return all
}

// requestOf prepares a request with so many children.
func requestOf(version v1alpha1.HookVersion) slope.Prepare {
	return func(_ testing.TB, n int) func() {
		request := benchmarkRequest(version, n)
		return func() { wire.Composite(request) }
	}
}

func TestARequestCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, requestOf("v1"))
	slope.Check(t, 500, slope.Linear, requestOf("v2"))
}

func BenchmarkComposite(b *testing.B) {
	for _, version := range []v1alpha1.HookVersion{"v1", "v2"} {
		b.Run(string(version), func(b *testing.B) { slope.Benchmark(b, requestOf(version)) })
	}
}
