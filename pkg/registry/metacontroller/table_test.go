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

package metacontroller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/controllerrevision"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller/table"
)

// row prints an object as kubectl get -o wide does: its cells by the headings of their columns.
func row(t *testing.T, columns table.Convertor, object runtime.Object) map[string]string {
	t.Helper()
	columns.Clock = testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC))
	converted, err := columns.ConvertToTable(t.Context(), object, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(converted.Rows); n != 1 || len(converted.Rows[0].Cells) != len(converted.ColumnDefinitions) {
		t.Fatalf("%d rows, the first with %d cells for %d columns", n, len(converted.Rows[0].Cells), len(converted.ColumnDefinitions))
	}
	cells := map[string]string{}
	for i, column := range converted.ColumnDefinitions {
		heading := column.Name
		if column.Priority > 0 {
			heading += " (wide)"
		}
		cells[heading] = fmt.Sprint(converted.Rows[0].Cells[i])
	}
	return cells
}

func TestColumnsSayWhatAControllerIsAndHowItDoes(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	rule := func(apiVersion, resource string) v1alpha1.ResourceRule {
		return v1alpha1.ResourceRule{APIVersion: apiVersion, Resource: resource}
	}
	at := func(url string) *v1alpha1.Hook {
		return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: &url}}
	}
	status := v1alpha1.ControllerStatus{
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running", Message: "fine"},
			{Type: "ResourcesServed", Status: metav1.ConditionFalse, Reason: "ResourceNotFound", Message: "no kind\n" + strings.Repeat("x", 200)},
		},
		Counters: &v1alpha1.ControllerCounters{Parents: 3, Syncs: 20, FailedSyncs: 1, Synced: 2, Failing: 1},
	}
	for name, test := range map[string]struct {
		columns table.Convertor
		object  runtime.Object
		want    map[string]string
	}{
		"a composite with all there is to say": {
			controller.Composites().Table,
			&metacontroller.CompositeController{
				ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: created},
				Spec: v1alpha1.CompositeControllerSpec{
					ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: rule("example.com/v1", "things")},
					ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
						{ResourceRule: rule("v1", "pods")},
						{
							ResourceRule:   rule("apps/v1", "deployments"),
							UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{Method: v1alpha1.ChildUpdateInPlace},
						},
						{ResourceRule: rule("v1", "services"), UpdateStrategy: &v1alpha1.CompositeControllerChildUpdateStrategy{}},
						{ResourceRule: rule("v1", "secrets")},
						{ResourceRule: rule("v1", "configmaps")},
					},
					ServiceAccountRef: &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "things"},
					Hooks: &v1alpha1.CompositeControllerHooks{
						Sync: at("https://user:hunter2@hook.hooks/sync?token=hunter2"), Finalize: at("https://hook.hooks/finalize"),
						Customize: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
							Service: &v1alpha1.ServiceReference{Name: "other", Namespace: "hooks"},
						}},
					},
				},
				Status: v1alpha1.CompositeControllerStatus{ControllerStatus: status},
			},
			map[string]string{
				"Name": "a", "Parent": "things.example.com", "Children": "pods,deployments.apps,services + 2 more", "Ready": "True",
				"Reason": "Running", "Synced": "2/3", "Failing": "1", "Age": "60m", "Hooks (wide)": "sync,finalize,customize",
				"Address (wide)": "https://hook.hooks,http://other.hooks:80", "Strategy (wide)": "OnDelete,InPlace", "Service Account (wide)": "team/things",
				"Parents (wide)": "3", "Syncs (wide)": "20", "Failed (wide)": "1",
				"Last Error (wide)": "no kind " + strings.Repeat("x", 92) + "…",
			},
		},
		"a composite with nothing to say": {
			controller.Composites().Table, &metacontroller.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
			map[string]string{
				"Name": "b", "Parent": "", "Children": "<none>", "Ready": "<unknown>", "Reason": "", "Synced": "<unknown>", "Failing": "<unknown>", "Age": "<unknown>",
				"Hooks (wide)": "<none>", "Address (wide)": "<none>", "Strategy (wide)": "<none>", "Service Account (wide)": "<none>", "Parents (wide)": "<unknown>",
				"Syncs (wide)": "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "<none>",
			},
		},
		"a decorator with a hook that cannot be called": {
			controller.Decorators().Table,
			&metacontroller.DecoratorController{
				ObjectMeta: metav1.ObjectMeta{Name: "c", CreationTimestamp: created},
				Spec: v1alpha1.DecoratorControllerSpec{
					Resources: []v1alpha1.DecoratorControllerResourceRule{{ResourceRule: rule("v1", "pods")}},
					Attachments: []v1alpha1.DecoratorControllerAttachmentRule{{
						ResourceRule:   rule("v1", "services"),
						UpdateStrategy: &v1alpha1.DecoratorControllerAttachmentUpdateStrategy{Method: v1alpha1.ChildUpdateRecreate},
					}},
					ServiceAccountRef: &v1alpha1.ServiceAccountReference{Namespace: "team", Name: "c"},
					Hooks:             &v1alpha1.DecoratorControllerHooks{Sync: at("not a URL"), Finalize: &v1alpha1.Hook{}},
				},
			},
			map[string]string{
				"Name": "c", "Resources": "pods", "Attachments": "services", "Ready": "<unknown>", "Reason": "", "Synced": "<unknown>", "Failing": "<unknown>", "Age": "60m",
				"Hooks (wide)": "sync", "Address (wide)": "<unknown>", "Strategy (wide)": "Recreate", "Service Account (wide)": "team/c", "Targets (wide)": "<unknown>",
				"Syncs (wide)": "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "<none>",
			},
		},
		"a controller that is paused": {
			controller.Composites().Table,
			&metacontroller.CompositeController{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Status: v1alpha1.CompositeControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{
					Conditions: []metav1.Condition{
						{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Paused", Message: "spec.paused is true"},
						{Type: "HooksHealthy", Status: metav1.ConditionUnknown, Reason: "NotCalled", Message: "No hook was called yet."},
						{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "Settled", Message: "Nothing is under way."},
						{Type: "Paused", Status: metav1.ConditionFalse, Reason: "Pausing", Message: "1 left"},
						{Type: "DeletionsHeld", Status: metav1.ConditionFalse, Reason: "NoneHeld", Message: "No deletion is held."},
					},
					LastErrors: []v1alpha1.ParentError{{Name: "t", Message: "the hook\nis dead"}, {Name: "u", Message: "an older one"}},
				}},
			},
			map[string]string{
				"Name": "p", "Parent": "", "Children": "<none>", "Ready": "False", "Reason": "Paused", "Synced": "<unknown>", "Failing": "<unknown>",
				"Age": "<unknown>", "Hooks (wide)": "<none>", "Address (wide)": "<none>", "Strategy (wide)": "<none>", "Service Account (wide)": "<none>",
				"Parents (wide)": "<unknown>",
				"Syncs (wide)":   "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "the hook is dead",
			},
		},
		"a decorator whose deletions are held": {
			controller.Decorators().Table,
			&metacontroller.DecoratorController{
				ObjectMeta: metav1.ObjectMeta{Name: "h"},
				Status: v1alpha1.DecoratorControllerStatus{ControllerStatus: v1alpha1.ControllerStatus{Conditions: []metav1.Condition{
					{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running", Message: "fine"},
					{Type: "DeletionsHeld", Status: metav1.ConditionTrue, Reason: "LimitPassed", Message: "5 deletions"},
				}}},
			},
			map[string]string{
				"Name": "h", "Resources": "<none>", "Attachments": "<none>", "Ready": "True", "Reason": "Running", "Synced": "<unknown>",
				"Failing": "<unknown>", "Age": "<unknown>", "Hooks (wide)": "<none>", "Address (wide)": "<none>", "Strategy (wide)": "<none>",
				"Service Account (wide)": "<none>", "Targets (wide)": "<unknown>", "Syncs (wide)": "<unknown>", "Failed (wide)": "<unknown>", "Last Error (wide)": "5 deletions",
			},
		},
		"a revision that is not the latest": {
			controllerrevision.Table(),
			&metacontroller.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{"metacontroller.k8s.io/superseded": "true"}},
			},
			map[string]string{"Name": "d", "Parent": "<none>", "Latest": "false", "Children": "0", "Age": "<unknown>"},
		},
		"a revision": {
			controllerrevision.Table(),
			&metacontroller.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{
					Name: "d", CreationTimestamp: created,
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "t", Controller: new(true)}},
				},
				Children: []v1alpha1.ControllerRevisionChildren{{Kind: "Pod", Names: []string{"a", "b"}}, {Kind: "Service", Names: []string{"a"}}},
			},
			map[string]string{"Name": "d", "Parent": "Thing.example.com/t", "Latest": "true", "Children": "3", "Age": "60m"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, row(t, test.columns, test.object)); diff != "" {
				t.Errorf("cells differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompositesAreSelectedByTheirParents(t *testing.T) {
	o := &metacontroller.CompositeController{}
	o.Name, o.Labels = "a", map[string]string{"team": "x"}
	o.Spec.ParentResource.APIVersion, o.Spec.ParentResource.Resource = "example.com/v1", "things"
	for selector, want := range map[string]bool{
		"spec.parentResource.resource=things":                                                    true,
		"spec.parentResource.resource==things,spec.parentResource.apiVersion=example.com/v1":     true,
		"spec.parentResource.resource!=things":                                                   false,
		"spec.parentResource.resource=pods":                                                      false,
		"spec.parentResource.resource=things,spec.parentResource.apiVersion=example.com/v1beta1": false,
		"metadata.name=a,spec.parentResource.resource=things":                                    true,
		"metadata.name=b,spec.parentResource.resource=things":                                    false,
	} {
		parsed, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		field, err := parsed.Transform(func(label, value string) (string, string, error) {
			return newServer().scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("CompositeController"), label, value)
		})
		if err != nil {
			t.Fatalf("%s: %v", selector, err)
		}
		predicate := controller.Composites().Predicate(labels.SelectorFromSet(labels.Set{"team": "x"}), field)
		if got, err := predicate.Matches(o); err != nil || got != want {
			t.Errorf("%s selects: %v, want %v (%v)", selector, got, want, err)
		}
	}
	if _, _, err := newServer().scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("CompositeController"), "spec.workers", "5"); err == nil {
		t.Error("a field is accepted that nothing is selected by")
	}
}
