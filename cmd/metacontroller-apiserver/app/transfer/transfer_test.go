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

package transfer

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const stored = `
apiVersion: v1
kind: List
items:
- apiVersion: metacontroller.k8s.io/v1alpha1
  kind: CompositeController
  metadata:
    name: web
    uid: a
    resourceVersion: "1"
    generation: 2
    creationTimestamp: "2026-01-02T03:04:05Z"
    managedFields: [{manager: kubectl}]
    finalizers: [metacontroller.k8s.io/parents, example.com/other]
    labels: {team: web}
  spec:
    hooks: {finalize: {webhook: {url: "http://hook/"}}}
    parentResource: {apiVersion: example.com/v1, resource: websites}
  status:
    observedGeneration: 2
    finalizedResources: [{group: example.com, resource: websites}, {group: "", resource: configmaps}]
- apiVersion: metacontroller.k8s.io/v1alpha1
  kind: ControllerRevision
  metadata:
    name: websites.example.com-0
    namespace: team
    ownerReferences: [{apiVersion: example.com/v1, kind: Website, name: web, uid: b, controller: true}]
  parentPatch: {spec: {}}
`

func TestWhatIsExportedAndRead(t *testing.T) {
	objects, err := read(strings.NewReader(stored))
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects[0].GetKind() != "ControllerRevision" {
		t.Fatalf("read %v, want the revision first", objects)
	}
	if owners := clean(objects[0]).GetOwnerReferences(); len(owners) != 1 || owners[0].UID != "b" {
		t.Errorf("the owners of the revision are %v", owners)
	}
	controller := objects[1]
	got := clean(controller).Object
	want := map[string]any{
		"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
		"metadata": map[string]any{"name": "web", "finalizers": []any{"example.com/other"}, "labels": map[string]any{"team": "web"}},
		"spec":     controller.Object["spec"],
		"status": map[string]any{"finalizedResources": []any{
			map[string]any{"group": "example.com", "resource": "websites"}, map[string]any{"group": "", "resource": "configmaps"},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	k, _ := kindOf(controller)
	lines := leftovers(k, controller)
	if len(lines) != 1 || !strings.Contains(lines[0], "release-finalizers compositecontroller/web --resource configmaps --force --yes") {
		t.Errorf("of what is not finalized any more is said: %q", lines)
	}
}

func TestNamespacesOfControllersAreLeftOut(t *testing.T) {
	objects, err := read(strings.NewReader(strings.ReplaceAll(stored, "    name: web\n", "    name: web\n    namespace: default\n")))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		want := map[string]string{"ControllerRevision": "team", "CompositeController": ""}[o.GetKind()]
		if got := o.GetNamespace(); got != want {
			t.Errorf("the namespace of the %s is %q, want %q", o.GetKind(), got, want)
		}
	}
}

// A document that holds something else is named. What a script gave that had nothing to give is no success.
func TestOtherFilesAreRefused(t *testing.T) {
	const document, nothing = "document ", "it holds no controller and no ControllerRevision"
	for name, tc := range map[string]struct{ text, want string }{
		"AnotherKind":   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n", document},
		"OfKubernetes":  {"apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: web}\n", document},
		"NoObject":      {"- a\n- b\n", document},
		"NoYAML":        {"a: b: c\n", document},
		"TwoInOne":      {stored + strings.TrimPrefix(stored, "\n"), document},
		"WithinAList":   {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: web}}]\n", document},
		"SecondOfAFile": {stored + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", document},
		"Empty":         {"", nothing},
		"Comments":      {"---\n# nothing\n", nothing},
		"AnEmptyList":   {"apiVersion: v1\nkind: List\nitems: []\n", nothing},
	} {
		t.Run(name, func(t *testing.T) {
			if objects, err := read(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("read %v with error %v, want %q in it", objects, err, tc.want)
			}
		})
	}
}

func TestJSONObjectsThatFollowOneAnotherAreAllRead(t *testing.T) {
	object := func(name string) string {
		return `{"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": "` + name + `"}}`
	}
	if objects, err := read(strings.NewReader(object("a") + "\n" + object("b"))); err != nil || len(objects) != 2 {
		t.Errorf("read %v with error %v, want two objects", objects, err)
	}
}

func TestAnObjectThatIsBeingDeletedIsNotAsInTheFile(t *testing.T) {
	deleting := &unstructured.Unstructured{Object: map[string]any{}}
	deleting.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	for _, replace := range []bool{false, true} {
		done, err := importing{replace: replace}.compare(t.Context(), nil, deleting, &unstructured.Unstructured{Object: map[string]any{}})
		if err == nil || !strings.Contains(err.Error(), "is being deleted") {
			t.Errorf("got %q, %v", done, err)
		}
	}
}
