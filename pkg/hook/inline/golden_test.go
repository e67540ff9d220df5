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
	"flag"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// example is a controller of testdata.
type example struct {
	Name      string `json:"name"`
	Decorator bool   `json:"decorator"`
	// Webhook says that the customize hook is a webhook.
	Webhook   bool                 `json:"webhook"`
	Sync      *v1alpha1.InlineHook `json:"sync"`
	Finalize  *v1alpha1.InlineHook `json:"finalize"`
	Customize *v1alpha1.InlineHook `json:"customize"`
}

func examples(t testing.TB, file string) []example {
	t.Helper()
	var all []example
	if err := yaml.UnmarshalStrict(read(file), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func hookOf(h *v1alpha1.InlineHook) *v1alpha1.Hook {
	if h == nil {
		return nil
	}
	return &v1alpha1.Hook{Inline: h}
}

func (e *example) definition() inline.Definition {
	d := inline.Definition{
		Decorator: e.Decorator,
		Parents:   []v1alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "things"}},
		Sync:      hookOf(e.Sync), Finalize: hookOf(e.Finalize), Customize: hookOf(e.Customize),
	}
	if e.Webhook {
		d.Customize = &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{}}
	}
	for _, rule := range []string{"apps/v1 deployments", "v1 pods", "v1 services", "v1 configmaps", "example.com/v1 widgets", "example.com/v2 gadgets"} {
		apiVersion, resource, _ := strings.Cut(rule, " ")
		d.Children = append(d.Children, v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource})
	}
	return d
}

// thing is the parent of all examples.
const thing = `
apiVersion: example.com/v1
kind: Thing
metadata: {name: web, namespace: default, generation: 3}
spec:
  image: nginx
  replicas: 3
  enabled: true
  ratio: 2
  since: "2026-02-01T10:00:00Z"
  storage: 512Mi
  maxSurge: 8080
  labels: {zeta: z, alpha: a, mid: m, beta: b, omega: o}
  zones: [b, a]
  ports: [{name: http, port: 80}, {name: https, port: 443}]
  groups: [{name: red, members: [x, w]}, {name: blue, members: [z]}]
  config: {deep: {list: [first]}}
  dash-ed: dashed
`

func request(finalizing bool) wire.Request {
	pods := []wire.Object{
		observed("{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: default}, status: {phase: Pending}}"),
		observed("{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: default}, status: {phase: Running}}"),
		observed("{apiVersion: v1, kind: Pod, metadata: {name: web-2, namespace: default}, status: {}}"),
	}
	return wire.Request{
		Controller: []byte(`{"metadata": {"name": "things"}}`),
		Parent:     observed(thing),
		Children: []wire.Group{
			{Key: "Pod.v1", Objects: pods},
			{Key: "ConfigMap.v1"},
			{Key: "Deployment.apps/v1"},
			{Key: "Widget.example.com/v1", Objects: []wire.Object{
				observed("{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: default}, spec: {size: 2}}"),
			}},
		},
		Related: []wire.Group{{Key: "Secret.v1", Objects: []wire.Object{
			observed("{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: other}, data: {token: aGVsbG8=}}"),
		}}},
		Finalizing: finalizing,
	}
}

func TestWrong(t *testing.T) {
	var b strings.Builder
	for _, e := range examples(t, "testdata/wrong.yaml") {
		_, _, errs := inline.Compile(e.definition(), schemas())
		if len(errs) != 1 {
			t.Errorf("%s: %d errors, want the one of the one mistake: %v", e.Name, len(errs), errs)
		}
		fmt.Fprintf(&b, "# %s\n", e.Name)
		for _, err := range errs {
			fmt.Fprintln(&b, err)
		}
		b.WriteString("\n")
	}
	golden(t, "testdata/wrong.txt", b.String())
}

func TestRight(t *testing.T) {
	var b strings.Builder
	for _, e := range examples(t, "testdata/right.yaml") {
		programs, _, errs := inline.Compile(e.definition(), schemas())
		if len(errs) > 0 {
			t.Errorf("%s: %v", e.Name, errs)
			continue
		}
		fmt.Fprintf(&b, "# %s\n", e.Name)
		for _, name := range []hook.Name{hook.Customize, hook.Sync, hook.Finalize} {
			if program := programs[name]; program != nil {
				b.WriteString(respond(t, e, name, program))
			}
		}
		b.WriteString("\n")
	}
	golden(t, "testdata/right.txt", b.String())
}

// respond returns the response of a program as YAML. The response is one that the protocol takes.
func respond(t *testing.T, e example, name hook.Name, program *inline.Program) string {
	t.Helper()
	body, err := program.Call(t.Context(), request(name == hook.Finalize))
	if err != nil {
		t.Errorf("%s: %v", e.Name, err)
		return ""
	}
	again, err := program.Call(t.Context(), request(name == hook.Finalize))
	if err != nil || !bytes.Equal(again, body) {
		t.Errorf("%s: the second response to the same request is %s, %v, the first was %s", e.Name, again, err, body)
	}
	for _, version := range []v1alpha1.HookVersion{v1alpha1.HookVersionV1, v1alpha1.HookVersionV2} {
		parsed, err := inline.ParseRequest(encoded(e.Decorator, name, version))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := program.Call(t.Context(), parsed); version == v1alpha1.HookVersionV2 && (err != nil || !bytes.Equal(again, body)) {
			t.Errorf("%s: the response to the encoded request is %s, %v, want %s", e.Name, again, err, body)
		}
	}
	switch {
	case name == hook.Customize:
		_, err = wire.DecodeCustomize(body, wire.ResponseOptions{Strict: true})
	case e.Decorator:
		_, err = wire.DecodeDecorator(body, wire.ResponseOptions{Strict: true})
	default:
		_, err = wire.DecodeComposite(body, wire.ResponseOptions{Strict: true})
	}
	if err != nil {
		t.Errorf("%s: the response is rejected: %v: %s", e.Name, err, body)
	}
	text, err := yaml.JSONToYAML(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// encoded is the body of the request. In v1 it has no objects of other namespaces.
func encoded(decorator bool, name hook.Name, version v1alpha1.HookVersion) []byte {
	r := request(name == hook.Finalize)
	r.Version = version
	switch {
	case name == hook.Customize:
		return wire.Customize(r)
	case decorator:
		return wire.Decorator(r)
	}
	return wire.Composite(r)
}

func TestFailing(t *testing.T) {
	var b strings.Builder
	for _, e := range examples(t, "testdata/failing.yaml") {
		programs, _, errs := inline.Compile(e.definition(), schemas())
		if len(errs) > 0 {
			t.Errorf("%s: %v", e.Name, errs)
			continue
		}
		body, err := programs[hook.Sync].Call(t.Context(), request(false))
		if err == nil {
			t.Errorf("%s: no error, but %.200s", e.Name, body)
		}
		fmt.Fprintf(&b, "# %s\n%v\n\n", e.Name, err)
	}
	golden(t, "testdata/failing.txt", b.String())
}

func TestKindsOfWhichNothingIsKnownAreWarnings(t *testing.T) {
	e := example{Sync: &v1alpha1.InlineHook{}}
	_, warnings, errs := inline.Compile(e.definition(), schemas())
	want := []string{
		"widgets of example.com/v1 has no schema: what inline hooks do with its objects is not checked",
		"gadgets of example.com/v2 is not served: what inline hooks do with its objects is checked once it is",
	}
	if len(errs) > 0 || fmt.Sprint(warnings) != fmt.Sprint(want) {
		t.Errorf("want %q, got %q, %v", want, warnings, errs)
	}
}

// The kind of gadgets was not served when the hook was compiled, and the engine shows some, which it has seen before or since.
func TestObjectsOfAKindThatWasNotServedAreAnErrorWhereTheyCount(t *testing.T) {
	for name, test := range map[string]struct {
		shown, message, want string
	}{
		"nothing is shown":          {"", "${string(children.gadgets.size())}", `{"children":[],"status":{"message":"0"}}`},
		"of another kind":           {"Pod.v1", "${string(children.gadgets.size())}", `{"children":[],"status":{"message":"0"}}`},
		"an expression has them":    {"Gadget.example.com/v2", "${string(children.gadgets.size())}", ""},
		"an expression has others":  {"Gadget.example.com/v2", "${string(children.widgets.size())}", `{"children":[],"status":{"message":"0"}}`},
		"one asks whether there is": {"Gadget.example.com/v2", "${string(children.gadgets.exists(g, true))}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := example{Sync: &v1alpha1.InlineHook{}}
			if err := yaml.Unmarshal(fmt.Appendf(nil, "{message: %q}", test.message), &e.Sync.Status); err != nil {
				t.Fatal(err)
			}
			programs, _, errs := inline.Compile(e.definition(), schemas())
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			r := request(false)
			r.Children = nil
			if test.shown != "" {
				r.Children = []wire.Group{{Key: test.shown, Objects: []wire.Object{observed("{apiVersion: example.com/v2, kind: Gadget, metadata: {name: a}}")}}}
			}
			body, err := programs[hook.Sync].Call(t.Context(), r)
			if test.want == "" && (err == nil || !strings.Contains(err.Error(), test.shown+" was not served when the hook was compiled")) ||
				test.want != "" && (err != nil || string(body) != test.want) {
				t.Errorf("got %s, %v, want %s", body, err, test.want)
			}
		})
	}
}

func TestObjectsOfOtherNamespacesHaveTheirNamespaceInTheKey(t *testing.T) {
	e := example{Sync: &v1alpha1.InlineHook{Variables: []v1alpha1.InlineVariable{{Name: "pod", Expression: "children.pods['default/web-0']"}}}}
	if err := yaml.Unmarshal([]byte(`{message: "${variables.pod.metadata.name}"}`), &e.Sync.Status); err != nil {
		t.Fatal(err)
	}
	programs, _, errs := inline.Compile(e.definition(), schemas())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	r := request(false)
	r.Parent = observed("{apiVersion: example.com/v1, kind: Thing, metadata: {name: web}}")
	body, err := programs[hook.Sync].Call(t.Context(), r)
	if want := `{"children":[],"status":{"message":"web-0"}}`; err != nil || string(body) != want {
		t.Errorf("want the Pod of namespace default, got %s, %v", body, err)
	}
}
