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

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

func TestDiscovery(t *testing.T) {
	c, err := discovery.NewDiscoveryClientForConfig(shared)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		got[r.Name] = fmt.Sprintf("%s %s %t %v %v %v", r.Kind, r.SingularName, r.Namespaced, r.ShortNames, r.Categories, r.Verbs)
	}
	const verbs = "[create delete deletecollection get list patch update watch]"
	want := map[string]string{
		"compositecontrollers":          "CompositeController compositecontroller false [cc cctl] [metacontroller] " + verbs,
		"compositecontrollers/parents":  "ControllerParentList  false [] [] [get]",
		"compositecontrollers/plan":     "ControllerPlan  false [] [] [create]",
		"compositecontrollers/request":  "HookRequestList  false [] [] [get]",
		"compositecontrollers/resync":   "ControllerResync  false [] [] [create]",
		"compositecontrollers/rollback": "ControllerRollback  false [] [] [create]",
		"compositecontrollers/syncs":    "ControllerSyncList  false [] [] [get]",
		"compositecontrollers/status":   "CompositeController  false [] [] [get patch update]",
		"decoratorcontrollers":          "DecoratorController decoratorcontroller false [dc dec decorators] [metacontroller] " + verbs,
		"decoratorcontrollers/parents":  "ControllerParentList  false [] [] [get]",
		"decoratorcontrollers/plan":     "ControllerPlan  false [] [] [create]",
		"decoratorcontrollers/request":  "HookRequestList  false [] [] [get]",
		"decoratorcontrollers/resync":   "ControllerResync  false [] [] [create]",
		"decoratorcontrollers/syncs":    "ControllerSyncList  false [] [] [get]",
		"decoratorcontrollers/status":   "DecoratorController  false [] [] [get patch update]",
		"controllerrevisions":           "ControllerRevision controllerrevision true [] [metacontroller] " + verbs,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources differ (-want +got):\n%s", diff)
	}
	// Clients of the aggregation layer would call the group stale without this.
	aggregated := ask(t, http.MethodGet, "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if !strings.Contains(aggregated.media, "APIGroupDiscoveryList") {
		t.Errorf("aggregated discovery is not served, but %s", aggregated.media)
	}
}

func TestTables(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1()
	hook := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://x")}}
	created, err := c.CompositeControllers().Create(ctx, &v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: "table", Labels: map[string]string{"test": "table"}},
		Spec: v1alpha1.CompositeControllerSpec{
			ParentResource: v1alpha1.CompositeControllerParentResourceRule{ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "foos"}},
			ChildResources: []v1alpha1.CompositeControllerChildResourceRule{
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "v1", Resource: "pods"}},
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "deployments"}},
			},
			Hooks: &v1alpha1.CompositeControllerHooks{Sync: hook, Customize: hook, Finalize: hook},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStarting, LastTransitionTime: metav1.Now()}}
	created.Status.Counters = &v1alpha1.ControllerCounters{Parents: 3, Syncs: 20, FailedSyncs: 1, Synced: 2, Failing: 1}
	if _, err := c.CompositeControllers().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DecoratorControllers().Create(ctx, &v1alpha1.DecoratorController{
		ObjectMeta: metav1.ObjectMeta{Name: "table", Labels: map[string]string{"test": "table"}},
		Spec: v1alpha1.DecoratorControllerSpec{
			Resources: []v1alpha1.DecoratorControllerResourceRule{
				{ResourceRule: v1alpha1.ResourceRule{APIVersion: "apps/v1", Resource: "statefulsets"}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ControllerRevisions("table").Create(ctx, &v1alpha1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "table", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Foo", Name: "parent", UID: "1", Controller: new(true)},
		}},
		ParentPatch: runtime.RawExtension{Raw: []byte("{}")},
		Children:    []v1alpha1.ControllerRevisionChildren{{Kind: "Pod", Names: []string{"a", "b"}}, {APIGroup: "apps", Kind: "Deployment", Names: []string{"c"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		composites + "?labelSelector=test%3Dtable": "Name Parent Children Ready Reason Synced Failing Age Hooks! Address! Strategy! Service Account! Parents! Syncs! Failed! Last Error!\n" +
			"table foos.example.com pods,deployments.apps False Starting 2/3 1 AGE sync,finalize,customize http://x OnDelete <none> 3 20 1 <none>\n",
		composites + "/table": "Name Parent Children Ready Reason Synced Failing Age Hooks! Address! Strategy! Service Account! Parents! Syncs! Failed! Last Error!\n" +
			"table foos.example.com pods,deployments.apps False Starting 2/3 1 AGE sync,finalize,customize http://x OnDelete <none> 3 20 1 <none>\n",
		composites + "/table/status": "Name Parent Children Ready Reason Synced Failing Age Hooks! Address! Strategy! Service Account! Parents! Syncs! Failed! Last Error!\n" +
			"table foos.example.com pods,deployments.apps False Starting 2/3 1 AGE sync,finalize,customize http://x OnDelete <none> 3 20 1 <none>\n",
		decorators + "?labelSelector=test%3Dtable": "Name Resources Attachments Ready Reason Synced Failing Age Hooks! Address! Strategy! Service Account! Targets! Syncs! Failed! Last Error!\n" +
			"table statefulsets.apps <none> <unknown>  <unknown> <unknown> AGE <none> <none> <none> <none> <unknown> <unknown> <unknown> <none>\n",
		groupPath + "/namespaces/table/controllerrevisions": "Name Parent Latest Children Age\ntable Foo.example.com/parent true 3 AGE\n",
	} {
		t.Run(path, func(t *testing.T) {
			a := ask(t, http.MethodGet, path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").must(t, http.StatusOK)
			var table metav1.Table
			if err := json.Unmarshal([]byte(a.body), &table); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, printed(table)); diff != "" {
				t.Errorf("the table differs (-want +got):\n%s", diff)
			}
			if table.ResourceVersion == "" {
				t.Error("the table has no resourceVersion, so kubectl get -w cannot go on from it")
			}
		})
	}
}

// printed writes a table with one space between columns and a mark at wide ones.
func printed(table metav1.Table) string {
	var b strings.Builder
	for i, c := range table.ColumnDefinitions {
		mark := map[bool]string{true: "!"}[c.Priority > 0]
		fmt.Fprint(&b, strings.Repeat(" ", min(i, 1)), c.Name, mark)
	}
	b.WriteByte('\n')
	for _, row := range table.Rows {
		for i, cell := range row.Cells {
			if table.ColumnDefinitions[i].Name == "Age" {
				cell = "AGE"
			}
			fmt.Fprint(&b, strings.Repeat(" ", min(i, 1)), cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestWatch(t *testing.T) {
	ctx := t.Context()
	c := client(t).MetacontrollerV1alpha1().CompositeControllers()
	w, err := c.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	o := &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}
	o.Spec.ParentResource.ResourceRule = v1alpha1.ResourceRule{APIVersion: "v1", Resource: "configmaps"}
	if o, err = c.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o.Labels = map[string]string{"a": "b"}
	if _, err := c.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) < 3 {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatal("the watch ended")
		}
		o, ok := event.Object.(*v1alpha1.CompositeController)
		if !ok {
			t.Fatalf("the watch sent %T", event.Object)
		}
		got = append(got, fmt.Sprint(event.Type, " ", o.Labels["a"]))
	}
	if diff := cmp.Diff([]string{"ADDED ", "MODIFIED b", "DELETED b"}, got); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
}

func TestHealth(t *testing.T) {
	for path, checks := range map[string][]string{
		"/livez":  {"ping", "etcd"},
		"/readyz": {"ping", "etcd", "etcd-readiness", "poststarthook/storage-readiness", "shutdown", "watch-caches"},
	} {
		a := ask(t, http.MethodGet, path+"?verbose", "").must(t, http.StatusOK)
		for _, check := range checks {
			if !strings.Contains(a.body, "[+]"+check+" ok") {
				t.Errorf("%s does not check %s:\n%s", path, check, a.body)
			}
		}
	}
}

func TestMetricsHaveThoseOfTheProcessAndOfEtcd(t *testing.T) {
	body := ask(t, http.MethodGet, "/metrics", "").must(t, http.StatusOK).body
	for _, metric := range []string{"apiserver_request_total", "etcd_mvcc_db_total_size_in_bytes", "go_goroutines", "process_open_fds"} {
		if strings.Count(body, "\n# TYPE "+metric+" ") != 1 {
			t.Errorf("%s is not there exactly once", metric)
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	body := ask(t, http.MethodGet, "/openapi/v3/apis/metacontroller.k8s.io/v1alpha1", "").must(t, http.StatusOK).body
	var document spec3.OpenAPI
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name, schema := range document.Components.Schemas {
		if !strings.HasPrefix(name, "io.k8s.metacontroller.") {
			continue
		}
		for field, property := range schema.Properties {
			checked++
			if len(property.Description) < 20 {
				t.Errorf("%s: %s is described by %q", name, field, property.Description)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d fields were found", checked)
	}
	ask(t, http.MethodGet, "/openapi/v2", "").must(t, http.StatusOK)
}
