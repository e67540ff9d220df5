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
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	if st.Server.ServesAPI() {
		refusedInline(st, names)
	}
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

// testChangedKind has the definition of a kind changed so that a stored hook does not fit to it any more. The hook goes on as it was, and the
// condition says where it is wrong, until the kind is as it was.
func testChangedKind(t *testing.T, s *shared, kind fixture.Kind) {
	const manifest = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.gauge.example.com}
spec:
  group: gauge.example.com
  names: {kind: Gauge, plural: gauges}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {size: {type: %s}}}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`
	gauges := schema.GroupVersionResource{Group: "gauge.example.com", Version: "v1", Resource: "gauges"}
	s.DefineManifests(t, fmt.Sprintf(manifest, "integer"))
	st := newStage(t, s, kind)
	st.run(definition{resource: gauges, sync: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{Status: &runtime.RawExtension{
		Raw: []byte(`{"twice": "${string(object.spec.size * 2)}", "seen": "${object.metadata.labels[?'seen'].orValue('nothing')}"}`),
	}}}})
	gauge := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gauge.example.com/v1", "kind": "Gauge", "spec": map[string]any{"size": int64(2)}}}
	gauge.SetName("p")
	gauge.SetLabels(map[string]string{fixture.Label: st.Name})
	st.Create(gauges, gauge)
	st.awaitStatusOf(gauges, st.Namespace, "p", "twice", "4")

	s.DefineManifests(t, fmt.Sprintf(manifest, "string"))
	st.running.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to say where the hook does not fit", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "spec.hooks.sync.inline.status.twice: ") &&
			strings.Contains(c.Message, "goes on as it was compiled before")
	})
	st.Patch(gauges, "p", `{"metadata":{"labels":{"seen":"it"}}}`)
	st.awaitStatusOf(gauges, st.Namespace, "p", "seen", "it")

	s.DefineManifests(t, fmt.Sprintf(manifest, "integer"))
	st.running.AwaitCondition(v1alpha1.ConditionHooksHealthy, "to heal", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
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
