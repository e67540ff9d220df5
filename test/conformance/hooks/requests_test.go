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
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testRequests is about docs/reference/contract.md#s9: what is on the wire. That every body is right to the byte is tested with the golden
// bodies of package wire.
func testRequests(t *testing.T, s *shared, kind fixture.Kind) {
	for _, version := range []v1alpha1.HookVersion{v1, v2} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			parentKey := map[fixture.Kind]string{fixture.Composite: "parent", fixture.Decorator: "object"}[kind]
			childrenKey := map[fixture.Kind]string{fixture.Composite: "children", fixture.Decorator: "attachments"}[kind]
			child := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "child"}}
			st.Handle("/sync", answering(func(question) any { return map[string]any{childrenKey: []any{child}} }))
			st.Handle("/finalize", answering(func(q question) any {
				children, _, _ := unstructured.NestedMap(q, childrenKey, "ConfigMap.v1")
				return map[string]any{"finalized": len(children) == 0}
			}))
			st.Handle("/customize", answering(func(question) any {
				return rules(map[string]any{"apiVersion": "v1", "resource": "secrets", "names": []any{"login"}, "namespace": st.Namespace})
			}))
			st.secret("login", nil)
			st.run(definition{
				sync: st.at("/sync", version), finalize: st.at("/finalize", version), customize: st.at("/customize", version),
				children: true,
			})
			st.Parent("p", nil)
			inner := map[v1alpha1.HookVersion]string{v1: "%.0s%s", v2: "%s/%s"}[version]
			name := func(n string) string { return fmt.Sprintf(inner, st.Namespace, n) }
			shows := func(q question) bool {
				_, ok, _ := unstructured.NestedMap(q, childrenKey, "ConfigMap.v1", name("child"))
				return ok
			}
			synced := st.awaitRequest("/sync", shows)
			st.Delete(fixture.Things, "p")
			finalized := st.awaitRequest("/finalize", shows)
			st.awaitRequest("/finalize", func(q question) bool { return !shows(q) })
			customized := st.awaitRequest("/customize", func(question) bool { return true })

			st.checkEnvelope(synced, false, parentKey, childrenKey, "controller", "related", "finalizing")
			st.checkEnvelope(finalized, true, parentKey, childrenKey, "controller", "related", "finalizing")
			// The key is parent for decorators too.
			st.checkEnvelope(customized, false, "parent", "controller")
			for _, q := range []question{synced, finalized} {
				if got := q.related("Secret.v1"); got != name("login") {
					t.Errorf("the related Secret is shown as %q, want %q", got, name("login"))
				}
				if empty, ok, _ := unstructured.NestedMap(q, childrenKey, "Deployment.apps/v1"); !ok || len(empty) > 0 {
					t.Errorf("a declared kind without objects is shown as %v, want {}", q[childrenKey])
				}
			}
		})
	}
}

// awaitRequest waits for a request as wanted, and returns it.
func (s *stage) awaitRequest(path string, want func(question) bool) question {
	s.T.Helper()
	for n := 1; ; n++ {
		q := s.awaitCalls(path, "", n)
		if at := slices.IndexFunc(q, want); at >= 0 {
			return q[at]
		}
		n = len(q)
	}
}

// checkEnvelope checks the keys of a request, and what all requests have in common.
func (s *stage) checkEnvelope(q question, finalizing bool, keys ...string) {
	s.T.Helper()
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(q)); !slices.Equal(got, keys) {
		s.T.Errorf("the request has the keys %v, want %v", got, keys)
	}
	if got, ok := q["finalizing"]; ok && got != finalizing {
		s.T.Errorf("finalizing is %v, want %v", got, finalizing)
	}
	parent := q.parent()
	if parent.GetName() != "p" || parent.GetKind() != "Thing" || parent.GetUID() == "" {
		s.T.Errorf("the parent is shown as %v", parent.Object)
	}
	if _, there, _ := unstructured.NestedFieldNoCopy(parent.Object, "metadata", "managedFields"); there {
		s.T.Error("the parent is shown with managedFields (docs/reference/compatibility.md#d9)")
	}
	encoded, err := json.Marshal(q["controller"])
	if err != nil {
		s.T.Fatal(err)
	}
	var controller struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Status            map[string]any `json:"status"`
	}
	if err := json.Unmarshal(encoded, &controller); err != nil {
		s.T.Fatal(err)
	}
	if controller.Kind != string(s.kind) || controller.APIVersion != v1alpha1.SchemeGroupVersion.String() || controller.Name != s.Name ||
		controller.UID == "" || controller.Status == nil || len(controller.Status) > 0 {
		s.T.Errorf("the controller is shown as %s", encoded)
	}
}
