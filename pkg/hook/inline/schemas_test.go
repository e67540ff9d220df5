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

package inline_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// served are the kinds of the tests: those of Kubernetes as it publishes them, things, and widgets, which have no schema.
type served map[string]*inline.Kind

func (s served) Resource(apiVersion, resource string) (*inline.Kind, bool) {
	kind, ok := s[apiVersion+"/"+resource]
	return kind, ok
}

var schemas = sync.OnceValue(func() served {
	s := served{
		"example.com/v1/widgets": {APIVersion: "example.com/v1", Name: "Widget"},
		"example.com/v1/things":  {APIVersion: "example.com/v1", Name: "Thing", Schema: schemaOf("testdata/things.yaml")},
	}
	kinds := map[string]string{
		"v1/pods": "Pod", "v1/services": "Service", "v1/configmaps": "ConfigMap", "v1/secrets": "Secret", "apps/v1/deployments": "Deployment",
	}
	published := inline.Published{
		Kind: func(apiVersion, resource string) (string, error) { return kinds[apiVersion+"/"+resource], nil },
		Document: func(version schema.GroupVersion) ([]byte, error) {
			apiVersion := version.String()
			paths, err := openapitest.NewEmbeddedFileClient().Paths()
			if err != nil {
				return nil, err
			}
			if apiVersion == "v1" {
				return paths["api/v1"].Schema("application/json")
			}
			return paths["apis/"+apiVersion].Schema("application/json")
		},
	}
	for name := range kinds {
		last := strings.LastIndex(name, "/")
		kind, ok := published.Resource(name[:last], name[last+1:])
		if !ok || kind.Schema == nil || published.Err() != nil {
			panic(published.Err())
		}
		s[name] = kind
	}
	return s
})

func schemaOf(file string) *spec.Schema {
	var s spec.Schema
	if err := yaml.Unmarshal(read(file), &s); err != nil {
		panic(err)
	}
	return &s
}

func read(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return data
}

// object is an observed object.
type object struct {
	json            string
	namespace, name string
}

func (o object) JSON() []byte      { return []byte(o.json) }
func (o object) Namespace() string { return o.namespace }
func (o object) Name() string      { return o.name }

func observed(text string) object {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &o); err != nil {
		panic(err)
	}
	return object{json: string(data), namespace: o.Namespace, name: o.Name}
}

// golden compares a text with a file, or writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := string(read(file))
	wanted, found := strings.Split(want, "\n\n"), strings.Split(got, "\n\n")
	for i := range max(len(wanted), len(found)) {
		var w, g string
		if i < len(wanted) {
			w = wanted[i]
		}
		if i < len(found) {
			g = found[i]
		}
		if w != g {
			t.Errorf("%s: want\n%s\ngot\n%s", file, w, g)
		}
	}
}

// BenchmarkCall evaluates a sync hook for a parent with three ConfigMaps of 0.9 KB.
func BenchmarkCall(b *testing.B) {
	rules := func(apiVersion, resource string) []v1alpha1.ResourceRule {
		return []v1alpha1.ResourceRule{{APIVersion: apiVersion, Resource: resource}}
	}
	raw := func(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(text)} }
	payload := strings.Repeat("x", 560)
	programs, _, errs := inline.Compile(inline.Definition{
		Parents: rules("example.com/v1", "things"), Children: rules("v1", "configmaps"), Sync: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{
			Children: []v1alpha1.InlineTemplate{{
				ForEach: []v1alpha1.InlineIterator{{Name: "i", In: "lists.range(parent.spec.replicas)"}},
				Template: raw(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${parent.metadata.name}-${i}"},
					"data": {"image": "${parent.spec.image}", "payload": "` + payload + `"}}`),
			}},
			Status: new(raw(`{"ready": "${children.configmaps.filter(c, c.data.image == parent.spec.image).size()}", "message": "${parent.spec.image}"}`)),
		}},
	}, schemas())
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	metadata := func(name string) string {
		return `metadata: {name: ` + name + `, namespace: ns, uid: 0f8fad5b-d9cb-469f-a165-70867728950e, resourceVersion: "123456", generation: 1,
  creationTimestamp: "2026-11-29T12:00:00Z", labels: {controller-uid: 7c9e6679-7425-40de-944b-e07fc1f90ae7},
  ownerReferences: [{apiVersion: example.com/v1, kind: Thing, name: p, uid: 7c9e6679-7425-40de-944b-e07fc1f90ae7, controller: true, blockOwnerDeletion: true}]}
`
	}
	group := wire.Group{Key: "ConfigMap.v1"}
	for _, name := range []string{"p-0", "p-1", "p-2"} {
		group.Objects = append(group.Objects, observed("apiVersion: v1\nkind: ConfigMap\n"+metadata(name)+"data: {image: a, payload: "+payload+"}"))
	}
	request := wire.Request{
		Controller: []byte("{}"), Children: []wire.Group{group},
		Parent: observed("apiVersion: example.com/v1\nkind: Thing\n" + metadata("p") + "spec: {replicas: 3, image: a}\nstatus: {ready: 3, message: a}"),
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := programs[hook.Sync].Call(b.Context(), request); err != nil {
			b.Fatal(err)
		}
	}
}

// TestResponsesAreEncodedAsEverywhere compares the body of a response with that of encoding/json.
func TestResponsesAreEncodedAsEverywhere(t *testing.T) {
	const expression = `{'text': 'a"\\\n<é\u0000>', 'numbers': [0, -7, 1.5, 1e30, 18446744073709551615u], 'map': {'b<': 1, 'a': true}, 'null': null,
		'lists': [[], {}]}`
	programs, _, errs := inline.Compile(inline.Definition{
		Parents: []v1alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "widgets"}},
		Sync: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: []byte(
			`{"all": "${` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ", "\t", " ").Replace(expression) + `}"}`)}}},
	}, schemas())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	got, err := programs[hook.Sync].Call(t.Context(), wire.Request{Controller: []byte("{}"), Parent: observed("metadata: {name: a}")})
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(map[string]any{"children": []any{}, "status": map[string]any{"all": map[string]any{
		"text": "a\"\\\n<é\x00>", "numbers": []any{0, -7, 1.5, 1e30, uint64(18446744073709551615)}, "map": map[string]any{"b<": 1, "a": true}, "null": nil,
		"lists": []any{[]any{}, map[string]any{}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAFieldWithADotInItsNameHasATypeOfItsOwn has a field a.b beside a field b of a field a.
func TestAFieldWithADotInItsNameHasATypeOfItsOwn(t *testing.T) {
	var s spec.Schema
	if err := yaml.Unmarshal([]byte(`
type: object
properties:
  a.b: {type: object, properties: {x: {type: string}}}
  a: {type: object, properties: {b: {type: object, properties: {z: {type: string}}}}}
  status: {type: object, properties: {text: {type: string}}}
`), &s); err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"parent.`a.b`.x + parent.a.b.z": "",
		"parent.a.b.z + parent.`a.b`.x": "",
		"parent.`a.b`.z":                `Dotted."a.b" has no field z`,
	} {
		_, _, errs := inline.Compile(inline.Definition{
			Parents: []v1alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "dotteds"}},
			Sync: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{Status: &runtime.RawExtension{
				Raw: []byte(`{"text": "${` + expression + `}"}`),
			}}},
		}, served{"example.com/v1/dotteds": {APIVersion: "example.com/v1", Name: "Dotted", Schema: &s}})
		if len(errs) > 0 != (want != "") || want != "" && !strings.Contains(errs[0].Detail, want) {
			t.Errorf("%s: want %q, got %v", expression, want, errs)
		}
	}
}

// What a CustomResourceDefinition says counts as what its API server publishes of it.
func TestDefinedKinds(t *testing.T) {
	const definition = `{"kind": "CustomResourceDefinition", "metadata": {}, "spec": {"group": "example.com",
		"names": {"kind": "Thing", "plural": "things"}, "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`
	hook := &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: []byte(
		`{"a": "${parent.metadata.generation + 1}", "b": "${parent.metadata.labels.a}", "c": "${parent.kind}", "d": "${parent.spec.image}"}`)}}}
	for name, tc := range map[string]struct {
		old, changed string
		// warned and wrong are parts of what is said of the definition, empty for nothing.
		warned, wrong string
	}{
		"NoFields":       {wrong: "Thing has no status"},
		"AllFields":      {`{"type": "object"}`, `{"type": "object", "x-kubernetes-preserve-unknown-fields": true}`, "", ""},
		"NoSchema":       {`{"openAPIV3Schema": {"type": "object"}}`, `{}`, "has no schema", ""},
		"AnotherVersion": {`"v1"`, `"v2"`, "is not served", ""},
		"NotServed":      {"true", "false", "is not served", ""},
		"Deleted":        {`"metadata": {}`, `"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}`, "is not served", ""},
		"AnotherKind":    {"CustomResourceDefinition", "ConfigMap", "is not served", ""},
		"AllUnknown":     {`"spec": {`, `"spec": {"preserveUnknownFields": true, `, "is not served", ""},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := &inline.Published{
				Kind: func(string, string) (string, error) { return "", nil },
				Definition: func(schema.GroupResource) ([]byte, error) {
					return []byte(strings.Replace(definition, tc.old, tc.changed, 1)), nil
				},
			}
			_, warnings, errs := inline.Compile(inline.Definition{
				Parents: []v1alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "things"}}, Sync: hook,
			}, kinds)
			if got := strings.Join(warnings, "\n"); !strings.Contains(got, tc.warned) || tc.warned == "" && got != "" {
				t.Errorf("warned %q, want %q", got, tc.warned)
			}
			var got string
			for _, err := range errs {
				got += err.Error()
			}
			if !strings.Contains(got, tc.wrong) || tc.wrong == "" && got != "" {
				t.Errorf("wrong is %q, want %q", got, tc.wrong)
			}
		})
	}
}
