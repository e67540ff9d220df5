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

package hooks

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testInline runs a controller whose hooks are written in it: no process but the server's makes its children.
func testInline(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	names := strings.NewReplacer("PARENT", "parent", "CHILDREN", "children")
	if kind == fixture.Decorator {
		names = strings.NewReplacer("PARENT", "object", "CHILDREN", "attachments")
	}
	refusedInline(st, names)
	st.secret("greeting", map[string]string{"text": "hello"})
	raw := func(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(names.Replace(text))} }
	templates := []v1alpha1.InlineTemplate{{
		When: new(names.Replace("PARENT.spec.?who.hasValue()")),
		Template: raw(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${PARENT.metadata.name}-greeting"},
			"data": {"text": "${string(base64.decode(related.secrets['greeting'].data.text))}, ${PARENT.spec.who}"}}`),
	}}
	sync := &v1alpha1.InlineHook{Status: new(raw(
		`{"greeted": "${CHILDREN.configmaps.map(c, c.data.text).join(' ')}", "children": "${CHILDREN.configmaps.size()} of 1", "who": "${PARENT.spec.who}"}`,
	))}
	finalize := &v1alpha1.InlineHook{Finalized: new(names.Replace("CHILDREN.configmaps.size() == 0"))}
	if kind == fixture.Decorator {
		sync.Attachments = templates
	} else {
		sync.Children = templates
	}
	st.run(definition{
		sync: &v1alpha1.Hook{Inline: sync}, finalize: &v1alpha1.Hook{Inline: finalize},
		customize: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{RelatedResources: []v1alpha1.InlineTemplate{{
			Template: raw(`{"apiVersion": "v1", "resource": "secrets", "namespace": "${PARENT.metadata.namespace}", "names": ["greeting"]}`),
		}}}},
		children: true,
	})
	st.Parent("p", map[string]any{"who": "world"})
	st.Await(fixture.ConfigMaps, "p-greeting", "to greet", func(o *unstructured.Unstructured) bool {
		return fixture.Value(o, "data", "text") == "hello, world"
	})
	st.awaitStatus("p", "greeted", "hello, world")
	st.awaitStatus("p", "children", "1 of 1")
	st.Patch(fixture.Things, "p", `{"spec":{"who":"reader"}}`)
	st.awaitStatus("p", "who", "reader")
	st.Delete(fixture.Things, "p")
	st.Await(fixture.ConfigMaps, "p-greeting", "to be deleted by the finalize hook", cluster.Gone)
	st.Await(fixture.Things, "p", "to be finalized", cluster.Gone)
}

// refusedInline has a controller refused whose expression does not fit to the schema of a Deployment.
func refusedInline(st *stage, names *strings.Replacer) {
	st.T.Helper()
	spec := `  parentResource: {apiVersion: ` + fixture.Group + `/v1, resource: things}
  generateSelector: true
  childResources: [{apiVersion: apps/v1, resource: deployments}]
`
	if st.kind == fixture.Decorator {
		spec = `  resources: [{apiVersion: ` + fixture.Group + `/v1, resource: things}]
  attachments: [{apiVersion: apps/v1, resource: deployments}]
`
	}
	field := names.Replace("CHILDREN")
	manifest := `apiVersion: metacontroller.k8s.io/v1alpha1
kind: ` + string(st.kind) + `
metadata: {name: ` + st.Name + `-wrong}
spec:
` + spec + `  hooks:
    sync:
      inline:
        ` + field + `:
        - template:
            apiVersion: apps/v1
            kind: Deployment
            metadata: {name: "${` + names.Replace("PARENT") + `.metadata.name}"}
            spec:
              replicas: "${` + names.Replace("PARENT") + `.metadata.name}"
              selector: {matchLabels: {app: a}}
              template: {metadata: {labels: {app: a}}, spec: {containers: [{name: main, image: a}]}}
`
	told, err := st.TryKubectl(st.T.Context(), manifest, "create", "-f", "-")
	want := "spec.hooks.sync.inline." + field + "[0].template.spec.replicas: "
	if err == nil || !strings.Contains(told, want) || !strings.Contains(told, "yields string, Deployment wants integer") {
		st.T.Errorf("the wrong controller: got %v and %q, want %q", err, told, want)
	}
}
