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
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
			body:   wire.Customize(wire.Request{Controller: composite(t), Parent: namespaced}),
		},
		"composite-customize-cluster": {
			reason: "The same for a cluster-scoped parent.",
			body:   wire.Customize(wire.Request{Controller: composite(t), Parent: cluster}),
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
			body:   wire.Customize(wire.Request{Controller: decorator(t), Parent: pod}),
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
		"CustomizeRequest": {wire.Customize(wire.Request{Controller: composite(t), Parent: request.Parent}), &hook.CustomizeRequest{}},
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

func TestDecodeComposite(t *testing.T) {
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod"}
	cases := map[string]struct {
		reason string
		body   string
		strict bool
		want   wire.Response
		// children are the decoded ones.
		children []map[string]any
	}{
		"EmptyObject": {
			reason: "Everything may be missing; that means no children and no status.",
			body:   `{}`,
		},
		"NullFields": {
			reason: "Null means the same as missing in all fields.",
			body:   `{"status":null,"children":null,"resyncAfterSeconds":null,"finalized":null}`, strict: true,
		},
		"WhiteSpaceAround": {
			reason: "Many encoders end with a newline.",
			body:   "\n\t {} \r\n", strict: true,
		},
		"Everything": {
			reason: "All fields are read; integers are int64, other numbers float64.",
			body:   `{"status":{"replicas":3,"ratio":0.5,"whole":2.0},"children":[{"apiVersion":"v1","kind":"Pod"}],"resyncAfterSeconds":1.5,"finalized":true}`, strict: true,
			want: wire.Response{
				Status:      map[string]any{"replicas": int64(3), "ratio": 0.5, "whole": 2.0},
				RawChildren: []byte(`[{"apiVersion":"v1","kind":"Pod"}]`),
				ResyncAfter: 1500 * time.Millisecond,
				Finalized:   true,
			},
			children: []map[string]any{pod},
		},
		"EmptyStatus": {
			reason: "An empty status is not the same as none.",
			body:   `{"status":{}}`, strict: true,
			want: wire.Response{Status: map[string]any{}},
		},
		"IntegersBeyondInt64": {
			reason: "An integer that int64 cannot hold becomes a float64, as in the API server.",
			body:   `{"status":{"a":9223372036854775807,"b":9223372036854775808}}`,
			want:   wire.Response{Status: map[string]any{"a": int64(math.MaxInt64), "b": float64(1 << 63)}},
		},
		"NegativeResync": {
			reason: "Zero and negative numbers mean no resync.",
			body:   `{"resyncAfterSeconds":-3}`, strict: true,
		},
		"HugeResync": {
			reason: "A number that no duration holds is as long as a delay can be.",
			body:   `{"resyncAfterSeconds":1e400}`, strict: true,
			want: wire.Response{ResyncAfter: hook.MaxDelay},
		},
		"ResyncInCenturies": {
			reason: "A number that a duration holds, but the sum of the present time and it does not, is as long as a delay can be.",
			body:   `{"resyncAfterSeconds":9223372036}`, strict: true,
			want: wire.Response{ResyncAfter: 365 * 24 * time.Hour},
		},
		"TinyResync": {
			reason: "A positive number never turns into none.",
			body:   `{"resyncAfterSeconds":1e-300}`, strict: true,
			want: wire.Response{ResyncAfter: time.Nanosecond},
		},
		"UnknownFieldLoose": {
			reason: "v1 ignores unknown and duplicate fields; of duplicates the last wins.",
			body:   `{"extra":1,"finalized":false,"finalized":true,"status":{"a":1,"a":2}}`,
			want: wire.Response{
				Status: map[string]any{"a": int64(2)}, Finalized: true,
				Ignored: []string{`unknown field "extra"`, `duplicate field "finalized"`, `duplicate field "status.a"`},
			},
		},
		"OtherCaseLoose": {
			reason: "Keys are case-sensitive: Children is not children.",
			body:   `{"Children":[{"kind":"Pod"}]}`,
			want:   wire.Response{Ignored: []string{`unknown field "Children"`}},
		},
		"StrictInsideChildren": {
			reason: "Strictness ends at the children; what is in them is for the API server to validate.",
			body:   `{"children":[{"kind":"Pod","unheard":1,"unheard":2}]}`, strict: true,
			want:     wire.Response{RawChildren: []byte(`[{"kind":"Pod","unheard":1,"unheard":2}]`)},
			children: []map[string]any{{"kind": "Pod", "unheard": int64(2)}},
		},
		"ManyUnknownFields": {
			reason: "Only a few unknown fields are remembered.",
			body:   `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`,
			want: wire.Response{Ignored: []string{
				`unknown field "a"`, `unknown field "b"`, `unknown field "c"`, `unknown field "d"`, `unknown field "e"`,
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeComposite([]byte(tc.body), wire.ResponseOptions{Strict: tc.strict})
			if err != nil {
				t.Fatalf("%s\nunexpected error: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(wire.Response{})); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.reason, diff)
			}
			children, err := got.Children()
			if diff := cmp.Diff(tc.children, children); diff != "" || err != nil {
				t.Errorf("%s\nchildren, error %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

// TestChildrenAreDecodedOnDemand holds that reading a response looks at no child, and that what is wrong with one is found
// when the children are decoded.
func TestChildrenAreDecodedOnDemand(t *testing.T) {
	const good, bad = `{"apiVersion":"v1","kind":"Pod"}`, `{"no":"kind"}`
	decoders := map[string]func([]byte, wire.ResponseOptions) (wire.Response, error){
		"children": wire.DecodeComposite, "attachments": wire.DecodeDecorator,
	}
	for name, tc := range map[string]struct {
		list string
		raw  string
		// decoded is the number of children; violation is what is wrong with one, after the name of the list.
		decoded   int
		violation string
	}{
		"Several":    {list: "[" + good + ", " + good + "]", raw: "[" + good + ", " + good + "]", decoded: 2},
		"OneBad":     {list: "[" + good + "," + bad + "]", raw: "[" + good + "," + bad + "]", violation: "[1]: has no kind; each child needs apiVersion, kind and metadata.name"},
		"Empty":      {list: "[]"},
		"EmptyLines": {list: "[ \n]"},
		"Null":       {list: "null"},
	} {
		for field, decode := range decoders {
			t.Run(name+"/"+field, func(t *testing.T) {
				response, err := decode([]byte(`{"status":{"a":1},"`+field+`":`+tc.list+`}`), wire.ResponseOptions{Strict: true})
				if err != nil || string(response.RawChildren) != tc.raw || response.Status == nil {
					t.Fatalf("raw children %q, error %v; want %q", response.RawChildren, err, tc.raw)
				}
				decoded, err := response.Children()
				if tc.violation != "" {
					if !hook.IsRejected(err) || err.Error() != field+tc.violation {
						t.Errorf("got %v, want %s%s", err, field, tc.violation)
					}
				} else if err != nil || len(decoded) != tc.decoded {
					t.Errorf("got %v, %v, want %d children", decoded, err, tc.decoded)
				}
			})
		}
	}
}

func TestDecodeDecorator(t *testing.T) {
	cases := map[string]struct {
		reason string
		body   string
		want   wire.Response
		// children are the decoded ones.
		children []map[string]any
	}{
		"Nothing": {
			reason: "All missing: nothing of the target changes, and no attachments are wanted.",
			body:   `{}`,
		},
		"NullStatus": {
			reason: "A null status leaves the target's alone.",
			body:   `{"status":null,"labels":null,"annotations":null,"attachments":null}`,
		},
		"EmptyMaps": {
			reason: "An empty status is a status; empty labels change nothing.",
			body:   `{"status":{},"labels":{},"annotations":{},"attachments":[]}`,
			want:   wire.Response{Status: map[string]any{}, Labels: map[string]*string{}, Annotations: map[string]*string{}},
		},
		"NullAndEmptyValues": {
			reason: "Null removes, the empty string sets.",
			body:   `{"labels":{"a":null,"b":"","c":"x"},"annotations":{"d":null,"e":"\u00e9\""}}`,
			want: wire.Response{
				Labels:      map[string]*string{"a": nil, "b": new(""), "c": new("x")},
				Annotations: map[string]*string{"d": nil, "e": new(`é"`)},
			},
		},
		"Everything": {
			reason: "The remaining fields are as for composites.",
			body:   `{"attachments":[{"kind":"Service"}],"resyncAfterSeconds":2,"finalized":true,"delete":true}`,
			want: wire.Response{
				RawChildren: []byte(`[{"kind":"Service"}]`),
				ResyncAfter: 2 * time.Second, Finalized: true, Delete: true,
			},
			children: []map[string]any{{"kind": "Service"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeDecorator([]byte(tc.body), wire.ResponseOptions{Strict: true})
			if err != nil {
				t.Fatalf("%s\nunexpected error: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(wire.Response{})); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.reason, diff)
			}
			children, err := got.Children()
			if diff := cmp.Diff(tc.children, children); diff != "" || err != nil {
				t.Errorf("%s\nchildren, error %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestDecodeCustomize(t *testing.T) {
	body := `{"relatedResources":[
		{"apiVersion":"v1","resource":"configmaps","namespace":"shop","names":["a","b"]},
		{"apiVersion":"v1","resource":"secrets","namespaceSelector":{"matchLabels":{"team":"x"}},"labelSelector":{}}
	]}`
	got, err := wire.DecodeCustomize([]byte(body), wire.ResponseOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &wire.CustomizeResponse{Rules: []hook.RelatedResourceRule{
		{APIVersion: "v1", Resource: "configmaps", Namespace: "shop", Names: []string{"a", "b"}},
		{APIVersion: "v1", Resource: "secrets", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}, LabelSelector: &metav1.LabelSelector{}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, none := range []string{`{}`, `{"relatedResources":null}`, `{"relatedResources":[]}`} {
		got, err := wire.DecodeCustomize([]byte(none), wire.ResponseOptions{Strict: true})
		if err != nil || len(got.Rules) != 0 {
			t.Errorf("%s: got %v, %v, want no rules", none, got, err)
		}
	}
}

func TestResponsesThatAreRejected(t *testing.T) {
	const htmlType = "text/html"
	whole := func(response wire.Response, err error) error {
		if err == nil {
			_, err = response.Children()
		}
		return err
	}
	composite := func(b []byte, o wire.ResponseOptions) error { return whole(wire.DecodeComposite(b, o)) }
	decorator := func(b []byte, o wire.ResponseOptions) error { return whole(wire.DecodeDecorator(b, o)) }
	customize := func(b []byte, o wire.ResponseOptions) error { _, err := wire.DecodeCustomize(b, o); return err }
	cases := map[string]struct {
		decode      func([]byte, wire.ResponseOptions) error
		contentType string
		body        string
		want        string
	}{
		"Empty":        {composite, "", "", `the response must be a JSON object, is empty (no Content-Type); to want no children, return {}`},
		"WhiteSpace":   {composite, "", " \n", `the response must be a JSON object, is empty (no Content-Type); to want no children, return {}`},
		"Null":         {composite, "application/json", "null", `the response must be a JSON object, is null (Content-Type "application/json")`},
		"List":         {composite, "application/json", "[]", `the response must be a JSON object, is a list (Content-Type "application/json")`},
		"String":       {composite, "application/json", `"no"`, `the response must be a JSON object, is a string (Content-Type "application/json")`},
		"Number":       {composite, "application/json", `12`, `the response must be a JSON object, is a number (Content-Type "application/json")`},
		"Boolean":      {composite, "application/json", `true`, `the response must be a JSON object, is a boolean (Content-Type "application/json")`},
		"HTML":         {composite, htmlType, "<!DOCTYPE html>\n<html>\n<head><title>Sign in</title></head><body>…", `the response must be a JSON object, is not JSON (Content-Type "text/html"): it begins with "<!DOCTYPE html> <html> <head><title>Sign in</title></head><b"`},
		"CutCharacter": {composite, htmlType, strings.Repeat("é", 80), `the response must be a JSON object, is not JSON (Content-Type "text/html"): it begins with "` + strings.Repeat("é", 30) + `"`},
		"ByteOrderMark": {composite, "application/json; charset=utf-8", "\ufeff{}", `the response must be a JSON object, begins with a byte order mark ` +
			`(Content-Type "application/json; charset=utf-8"); write it as UTF-8 without one`},
		"Binary":        {composite, "application/octet-stream", "\x1f\x8b\x08\x00", `the response must be a JSON object, is not JSON and not text (Content-Type "application/octet-stream")`},
		"Truncated":     {composite, "application/json", `{"children":[{"kind":"Pod"`, `the response is not valid JSON (Content-Type "application/json"): unexpected end of JSON input, at byte 26`},
		"TwoObjects":    {composite, "", `{}{}`, `the response is not valid JSON (no Content-Type): invalid character '{' after top-level value, at byte 3`},
		"SingleQuotes":  {composite, "", `{'children':[]}`, `the response is not valid JSON (no Content-Type): invalid character '\'' looking for beginning of object key string, at byte 2`},
		"DeepNesting":   {composite, "", `{"status":` + strings.Repeat(`[`, 1_000_000), `the response is not valid JSON (no Content-Type): invalid character '[' exceeded max depth, at byte 10010`},
		"ManyValues":    {composite, "", `{"status":{"a":[` + strings.Repeat("{},", 3_000_000) + `{}]}}`, `the response holds more than 1000000 values; let the hook return less`},
		"ChildrenType":  {composite, "", `{"children":{"kind":"Pod"}}`, `children: must be a list, is an object`},
		"ChildrenText":  {composite, "", `{"children":"none"}`, `children: must be a list, is a string`},
		"NullChild":     {composite, "", `{"children":[{"kind":"Pod"},null]}`, `children[1]: must be an object, is null`},
		"TextChild":     {composite, "", `{"children":["Pod"]}`, `children[0]: must be an object, is a string`},
		"NestedList":    {composite, "", `{"children":[[{"kind":"Pod"}]]}`, `children[0]: must be an object, is a list`},
		"NoKind":        {composite, "", `{"children":[{"apiVersion":"v1"}]}`, `children[0]: has no kind; each child needs apiVersion, kind and metadata.name`},
		"NumberKind":    {composite, "", `{"children":[{"kind":1}]}`, `children[0]: has no kind; each child needs apiVersion, kind and metadata.name`},
		"HugeNumber":    {composite, "", `{"children":[{"kind":"Pod","spec":{"x":1e999}}]}`, `children[0]: holds the number 1e999, which is out of range`},
		"StatusType":    {composite, "", `{"status":"Ready"}`, `status: must be an object, is a string`},
		"ResyncType":    {composite, "", `{"resyncAfterSeconds":"10s"}`, `resyncAfterSeconds: must be a number, is a string`},
		"ResyncBoolean": {composite, "", `{"resyncAfterSeconds":true}`, `resyncAfterSeconds: must be a number, is a boolean`},
		"FinalizedType": {composite, "", `{"finalized":"true"}`, `finalized: must be true or false, is a string`},
		"UnknownStrict": {composite, "", `{"statuz":{}}`, `the response is read strictly and has unknown field "statuz" and no children; correct the hook, or set responseUnMarshallMode: loose`},
		"DuplicateStrict": {
			composite, "", `{"children":[],"children":[],"status":{"a":1,"a":1}}`,
			`the response is read strictly and has duplicate field "children", duplicate field "status.a"; correct the hook, or set responseUnMarshallMode: loose`,
		},
		"LabelsType":      {decorator, "", `{"labels":["a"]}`, `labels: must be an object, is a list`},
		"LabelValueType":  {decorator, "", `{"labels":{"ok":"x","replicas":3}}`, `labels["replicas"]: must be a string or null, is a number`},
		"AnnotationValue": {decorator, "", `{"annotations":{"on":true}}`, `annotations["on"]: must be a string or null, is a boolean`},
		"DuplicateLabel":  {decorator, "", `{"labels":{"a":"x","a":"y"}}`, `the response is read strictly and has duplicate field "labels.a"; correct the hook, or set responseUnMarshallMode: loose`},
		"NullAttachment":  {decorator, "", `{"attachments":[null]}`, `attachments[0]: must be an object, is null`},
		"CompositeResponseToDecorator": {
			decorator, "", `{"children":[]}`, `the response is read strictly and has unknown field "children" and no attachments; correct the hook, or set responseUnMarshallMode: loose`,
		},
		"BareList":      {customize, "application/json", `[{"apiVersion":"v1","resource":"pods"}]`, `the response must be a JSON object, is a list (Content-Type "application/json")`},
		"NullRule":      {customize, "", `{"relatedResources":[null]}`, `relatedResources[0]: must be an object, is null`},
		"NoResource":    {customize, "", `{"relatedResources":[{"apiVersion":"v1"}]}`, `relatedResources[0]: resource is missing`},
		"NamesType":     {customize, "", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","names":"a"}]}`, `relatedResources[0].names: must be a list, is a string`},
		"UnknownInRule": {customize, "", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","nmaes":[]}]}`, `the response is read strictly and has unknown field "relatedResources[0].nmaes"; correct the hook, or set responseUnMarshallMode: loose`},
		"NamesAndLabels": {
			customize, "", `{"relatedResources":[{"apiVersion":"v1","resource":"pods"},{"apiVersion":"v1","resource":"pods","names":["a"],"labelSelector":{}}]}`,
			`relatedResources[1]: names and labelSelector exclude each other; remove one of them`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.decode([]byte(tc.body), wire.ResponseOptions{Strict: true, ContentType: tc.contentType})
			if err == nil {
				t.Fatalf("accepted %.200q", tc.body)
			}
			if !hook.IsRejected(err) {
				t.Errorf("the error is a %T, want a RejectedError", err)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeepButValidResponsesAreRead(t *testing.T) {
	depth := 9000
	body := `{"children":[{"kind":"Pod","spec":` + strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth) + `}]}`
	got, err := wire.DecodeComposite([]byte(body), wire.ResponseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if children, err := got.Children(); err != nil || len(children) != 1 {
		t.Errorf("got %v, %v, want one child", children, err)
	}
}

func TestLongTextsAreNotManyValues(t *testing.T) {
	text := strings.Repeat(`,[{\"\\`, 1_000_000)
	got, err := wire.DecodeComposite([]byte(`{"status":{"text":"`+text+`"}}`), wire.ResponseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if decoded, _ := got.Status["text"].(string); len(decoded) != 5_000_000 {
		t.Errorf("the text has %d bytes, want 5000000", len(decoded))
	}
}

func TestStrictDefaultsFollowTheVersion(t *testing.T) {
	cases := []struct {
		version v1alpha1.HookVersion
		mode    *v1alpha1.ResponseUnmarshallMode
		want    bool
	}{
		{"", nil, false},
		{v1alpha1.HookVersionV1, nil, false},
		{v1alpha1.HookVersionV2, nil, true},
		{v1alpha1.HookVersionV2, new(v1alpha1.ResponseUnmarshallMode("")), true},
		{v1alpha1.HookVersionV1, new(v1alpha1.ResponseUnmarshallModeStrict), true},
		{v1alpha1.HookVersionV2, new(v1alpha1.ResponseUnmarshallModeLoose), false},
	}
	for _, tc := range cases {
		if got := wire.Strict(tc.version, tc.mode); got != tc.want {
			t.Errorf("Strict(%q, %q) = %v, want %v", tc.version, ptr.Deref(tc.mode, "nil"), got, tc.want)
		}
	}
}

// FuzzDecodeResponse holds that no response panics, that every refusal is a RejectedError with a sentence, that what strict
// reading accepts loose reading accepts with the same meaning, and that reading leaves the body alone.
func FuzzDecodeResponse(f *testing.F) {
	f.Add([]byte(`{"status":{"a":1},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}],"resyncAfterSeconds":0.5,"finalized":true}`))
	f.Add([]byte(`{"labels":{"a":null,"b":"c"},"annotations":null,"attachments":[],"status":{}}`))
	f.Add([]byte(`{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		check := func(name string, decode func(o wire.ResponseOptions) (any, []string, error)) {
			loose, ignored, looseErr := decode(wire.ResponseOptions{ContentType: "application/json"})
			strict, _, strictErr := decode(wire.ResponseOptions{Strict: true})
			for _, err := range []error{looseErr, strictErr} {
				if err != nil && (!hook.IsRejected(err) || err.Error() == "") {
					t.Errorf("%s: %T %q is no RejectedError with a message", name, err, err)
				}
			}
			if strictErr == nil && (looseErr != nil || !cmp.Equal(strict, loose, cmpopts.IgnoreUnexported(wire.Response{}))) {
				t.Errorf("%s: strict reading accepts what loose reading reads otherwise: %v", name, looseErr)
			}
			if looseErr == nil && strictErr != nil && len(ignored) == 0 {
				t.Errorf("%s: strict reading rejects (%v), but loose reading ignored nothing", name, strictErr)
			}
		}
		both := func(response wire.Response, err error) (any, []string, error) {
			if err != nil {
				return nil, nil, err
			}
			children, err := response.Children()
			if err != nil {
				return nil, nil, err
			}
			for i, c := range children {
				if kind, _ := c["kind"].(string); kind == "" {
					t.Errorf("child %d has no kind: %v", i, c)
				}
			}
			return []any{response, children}, response.Ignored, nil
		}
		check("composite", func(o wire.ResponseOptions) (any, []string, error) { return both(wire.DecodeComposite(body, o)) })
		check("decorator", func(o wire.ResponseOptions) (any, []string, error) { return both(wire.DecodeDecorator(body, o)) })
		check("customize", func(o wire.ResponseOptions) (any, []string, error) {
			a, err := wire.DecodeCustomize(body, o)
			if err != nil {
				return nil, nil, err
			}
			return a, a.Ignored, nil
		})
		if !bytes.Equal(before, body) {
			t.Error("decoding changed the body")
		}
	})
}

// responseOf prepares the decoding of a response with so many children.
func responseOf(tb testing.TB, n int) func() {
	tb.Helper()
	child := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","labels":{"app":"shop","tier":"web"}},"data":{"text":"` + strings.Repeat("0123456789", 70) + `"}}`
	body := []byte(`{"status":{"replicas":3},"children":[` + strings.Repeat(child+",", n-1) + child + `]}`)
	return func() {
		response, err := wire.DecodeComposite(body, wire.ResponseOptions{Strict: true})
		if err != nil {
			tb.Fatal(err)
		}
		if children, err := response.Children(); err != nil || len(children) != n {
			tb.Fatal(children, err)
		}
	}
}

func TestAResponseCostsTheChildrenAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, responseOf)
}

func BenchmarkDecodeComposite(b *testing.B) { slope.Benchmark(b, responseOf) }
