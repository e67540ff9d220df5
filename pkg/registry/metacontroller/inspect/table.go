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

package inspect

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// text is the type of most columns.
const text = "string"

// rowObject returns the object of a row: whole, which is a list of one, as lists are what the API has, if the options of the table ask for objects.
func rowObject(options runtime.Object, p v1alpha1.ParentReference, whole runtime.Object) runtime.RawExtension {
	if o, ok := options.(*metav1.TableOptions); ok && o.IncludeObject == metav1.IncludeObject {
		return runtime.RawExtension{Object: whole}
	}
	return runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}}
}

// tableOf prints parents.
func tableOf(list *v1alpha1.ControllerParentList, options runtime.Object) *metav1.Table {
	table := &metav1.Table{
		ListMeta: list.ListMeta,
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Namespace", Type: text, Description: "The namespace of the parent."},
			{Name: "Name", Type: text, Format: "name", Description: "The name of the parent."},
			{Name: "State", Type: text, Description: "How the controller is doing with the parent."},
			{Name: "Children", Type: text, Description: "How many children are ready, if that is known, and how many there are."},
			{Name: "Last Sync", Type: text, Description: "How long ago the last sync ended."},
			{Name: "Took", Type: text, Description: "How long the last sync took."},
			{Name: "Retries", Type: "integer", Description: "How many syncs have failed in a row."},
			{Name: "Next", Type: text, Description: "When the parent is synced even if nothing changes."},
			{Name: "Message", Type: text, Description: "What the parent waits for, why it is held, or the error of the last sync."},
			{Name: "Resource", Type: text, Priority: 1, Description: "The resource of the parent."},
		},
		Rows: []metav1.TableRow{},
	}
	now := time.Now()
	for i := range list.Items {
		p := &list.Items[i]
		lastSync, took, next := "<none>", "<none>", "<none>"
		if p.LastSyncTime != nil {
			lastSync = duration.HumanDuration(now.Sub(p.LastSyncTime.Time))
			took = (time.Duration(p.LastSyncMilliseconds) * time.Millisecond).String()
		}
		if p.NextSyncTime != nil {
			next = duration.HumanDuration(max(0, p.NextSyncTime.Sub(now)))
		}
		message := p.Message
		if message == "" {
			message = p.LastError
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells: []any{
				p.Namespace, p.Name, string(p.State), children(p.Children), lastSync, took, int64(p.Retries), next, message,
				schema.GroupResource{Group: p.Group, Resource: p.Resource}.String(),
			},
			Object: rowObject(options, p.ParentReference, &v1alpha1.ControllerParentList{Items: list.Items[i : i+1]}),
		})
	}
	return table
}

func children(c *v1alpha1.ChildCounts) string {
	if c == nil {
		return ""
	}
	counts := fmt.Sprint(c.Total)
	if c.Ready != nil {
		counts = fmt.Sprintf("%d/%d", *c.Ready, c.Total)
	}
	if c.Outdated != nil {
		counts += fmt.Sprintf(" (%d outdated)", *c.Outdated)
	}
	return counts
}
