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

package composite

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// TestChecklist runs the checklist of docs/reference/contract.md#s22 for CompositeControllers.
func TestChecklist(t *testing.T) {
	s := fixture.SetUp(t, fixture.Options{Limit: limit})
	// Normal events of the whole process have one budget, which the others spend.
	t.Run("18_NormalEvents", func(t *testing.T) { testNormalEvents(t, s) })
	t.Run("11_NamespacesBeforeWhatIsInThem", func(t *testing.T) { testNamespaceChild(t, s) })
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		{"01_02_RequestBodies", testRequests},
		{"03_CreateWritesLastAppliedAndOwner", testCreate},
		{"04_MergeRemovesKeepsAndReplaces", testMerge},
		{"05_UpdateMethods", testMethods},
		{"06_AdoptReleaseAndStrangers", testClaims},
		{"06_AStrangerOfTheSameNameIsNeverTaken", testConflict},
		{"07_SelectorMismatchIsRefused", testSelector},
		{"07_LabelsOfTheParentAreNotThoseOfChildren", testCopiedLabels},
		{"08_StatusIsReplacedOnce", testStatus},
		{"08_StatusOfKubernetesStays", testStatusOfKubernetes},
		{"08_StatusThatIsNotTakenIsSentOnce", testStatusNotTaken},
		{"10_ResyncAfterAndPeriod", testResync},
		{"10_IgnoreStatusChanges", testIgnoreStatus},
		{"10_RetryAfterOf429", testRetryAfter},
		{"11_StrictAndLoose", testStrictness},
		{"11_Etag", testEtag},
		{"11_StatusCodes", testStatusCode},
		{"12_EndpointConfigsWithReloadedCredentials", testTLS},
		{"13_MetricsAndProbes", testOperations},
		{"13_RefusedResponsesAreEvents", testRefusals},
		{"15_FinalizeOnDeletion", testFinalize},
		{"15_FinalizeOnOptOut", testOptOut},
		{"15_DeletingTheControllerReleasesParents", testControllerDeletion},
		{"16_RelatedObjects", testRelated},
		{"18_HostileHooksHarmNobodyElse", testHostile},
		{"ClusterScopedParents", testClusterParent},
		{"ChildrenThatChangeFasterThanTheHookResponds", testFastChild},
		{"ParentsThatChangeFasterThanTheHookResponds", testFastParent},
		{"ResyncAfterARefusedResponseOfARollout", testResyncOfRollout},
		{"KindsThatAreMissing", testMissingKind},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, s)
		})
	}
}

func testCreate(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	st.script.Want(fixture.ConfigMap("child", map[string]any{"a": "1"}))
	st.run(nil)
	p := st.Parent("p", map[string]any{})
	child := st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)

	owners := child.GetOwnerReferences()
	if len(owners) != 1 || owners[0].UID != p.GetUID() || owners[0].Kind != "Thing" || owners[0].APIVersion != p.GetAPIVersion() ||
		owners[0].Controller == nil || !*owners[0].Controller || owners[0].BlockOwnerDeletion == nil || !*owners[0].BlockOwnerDeletion {
		t.Errorf("owner references: %+v", owners)
	}
	var last map[string]any
	text := child.GetAnnotations()["metacontroller.k8s.io/last-applied-configuration"]
	if err := json.Unmarshal([]byte(text), &last); err != nil {
		t.Fatalf("last-applied configuration %q: %v", text, err)
	}
	metadata, _ := last["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	if metadata["namespace"] != st.Namespace || labels["controller-uid"] != string(p.GetUID()) || metadata["ownerReferences"] != nil {
		t.Errorf("last-applied configuration holds %v", metadata)
	}
	if got := child.GetLabels()["controller-uid"]; got != string(p.GetUID()) {
		t.Errorf("label controller-uid is %q, want the parent's UID", got)
	}
}

func testMerge(t *testing.T, s *fixture.Environment) {
	st := newStage(t, s)
	deployment := func(env string, data ...any) *hook.Object {
		return &hook.Object{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d"},
			"spec": map[string]any{
				"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": "d"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "d"}},
					"spec": map[string]any{
						"containers":  []any{map[string]any{"name": "main", "image": "x", "env": []any{map[string]any{"name": "E", "value": env}}}},
						"tolerations": data,
					},
				},
			},
		}}
	}
	toleration := func(key string) map[string]any { return map[string]any{"key": key, "operator": "Exists"} }
	st.script.Want(deployment("1", toleration("a"), toleration("b")), fixture.ConfigMap("c", map[string]any{"keep": "1", "drop": "1"}))
	st.run(func(spec *v1alpha1.CompositeControllerSpec) {
		spec.ChildResources = append(spec.ChildResources, fixture.Child{Resource: fixture.Deployments, Method: v1alpha1.ChildUpdateInPlace}.OfComposite())
	})
	st.Parent("p", map[string]any{})
	st.Await(fixture.Deployments, "d", "to be created", cluster.Exists)
	st.Await(fixture.ConfigMaps, "c", "to be created", cluster.Exists)

	st.Patch(fixture.ConfigMaps, "c", `{"data":{"foreign":"1"}}`)
	d := st.Get(fixture.Deployments, "d")
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	containers = append(containers, map[string]any{"name": "sidecar", "image": "y"})
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
	if err != nil {
		t.Fatal(err)
	}
	st.Patch(fixture.Deployments, "d", string(patch))
	st.script.Want(deployment("2", toleration("c")), fixture.ConfigMap("c", map[string]any{"keep": "2"}))
	st.Patch(fixture.Things, "p", `{"spec":{"again":true}}`)

	c := st.Await(fixture.ConfigMaps, "c", "to be updated", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "keep") == "2" })
	if fixture.Value(c, "data", "drop") != "" || fixture.Value(c, "data", "foreign") != "1" {
		t.Errorf("data is %v; drop must be gone, foreign must stay", c.Object["data"])
	}
	d = st.Await(fixture.Deployments, "d", "to be updated", func(o *unstructured.Unstructured) bool {
		list, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "tolerations")
		return len(list) == 1
	})
	containers, _, _ = unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if len(containers) != 2 {
		t.Errorf("containers are %v; the sidecar that somebody added must stay", containers)
	}
	// Somebody else's change of a field of ours is put back.
	st.Patch(fixture.ConfigMaps, "c", `{"data":{"keep":"foreign"}}`)
	st.Await(fixture.ConfigMaps, "c", "to be put right", func(o *unstructured.Unstructured) bool { return fixture.Value(o, "data", "keep") == "2" })
}

func testMethods(t *testing.T, s *fixture.Environment) {
	for _, tc := range []struct {
		method           v1alpha1.ChildUpdateMethod
		changes, sameUID bool
	}{
		{v1alpha1.ChildUpdateOnDelete, false, true},
		{v1alpha1.ChildUpdateRecreate, true, false},
		{v1alpha1.ChildUpdateInPlace, true, true},
	} {
		t.Run(string(tc.method), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s)
			st.script.Want(fixture.ConfigMap("child", map[string]any{"a": "1"}), fixture.ConfigMap("extra", nil))
			st.run(func(spec *v1alpha1.CompositeControllerSpec) { spec.ChildResources[0].UpdateStrategy.Method = tc.method })
			st.Parent("p", map[string]any{})
			before := st.Await(fixture.ConfigMaps, "child", "to be created", cluster.Exists)
			st.Await(fixture.ConfigMaps, "extra", "to be created", cluster.Exists)
			st.script.Want(fixture.ConfigMap("child", map[string]any{"a": "2"}))
			st.Patch(fixture.Things, "p", `{"spec":{"again":true}}`)
			st.Await(fixture.ConfigMaps, "extra", "to be deleted", cluster.Gone)
			if !tc.changes {
				st.settled()
			}
			after := st.Await(fixture.ConfigMaps, "child", "to follow its method", func(o *unstructured.Unstructured) bool {
				return o != nil && (fixture.Value(o, "data", "a") == "2") == tc.changes
			})
			if same := before.GetUID() == after.GetUID(); same != tc.sameUID {
				t.Errorf("the child keeps its UID: %v, want %v", same, tc.sameUID)
			}
		})
	}
}
