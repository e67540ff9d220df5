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

package parents

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// table prints parents.
type table struct {
	subresource.Table

	out *outputformat.Table
}

func newTable(t subresource.Table, out io.Writer) *table {
	return &table{t, &outputformat.Table{Out: out, Wide: t.Wide}}
}

// print writes a row for each parent.
func (t *table) print(now time.Time, parents []v1alpha1.ControllerParent, headers bool) error {
	var rows [][]string
	if headers {
		rows = append(rows, t.row("NAMESPACE", "RESOURCE", "NAME", "STATE", "CHILDREN", "LAST SYNC", "TOOK", "RETRIES", "NEXT", "MESSAGE"))
	}
	for i := range parents {
		p := &parents[i]
		lastSync, took, next := subresource.None, subresource.None, subresource.None
		if p.LastSyncTime != nil {
			lastSync = outputformat.Duration(now.Sub(p.LastSyncTime.Time)) + " ago"
			took = (time.Duration(p.LastSyncMilliseconds) * time.Millisecond).String()
		}
		if p.NextSyncTime != nil {
			next = "in " + outputformat.Duration(p.NextSyncTime.Sub(now))
		}
		rows = append(rows, t.row(cmp.Or(p.Namespace, subresource.None), p.GroupResource().String(), p.Name, string(p.State), cmp.Or(p.Children.Text(), subresource.None), lastSync,
			took, fmt.Sprint(p.Retries), next, subresource.OneLine(cmp.Or(p.Message, p.LastError))))
	}
	return t.out.Print(rows...)
}

// row returns the cells that the table has: how long the last sync took and how often it was tried again are in a wide one.
func (t *table) row(cells ...string) []string {
	if !t.Wide {
		cells = slices.Delete(cells, 6, 8)
	}
	return t.Row(0, cells...)
}

// printNames writes a line for each parent, in the form in which kubectl takes the name of an object.
func printNames(out io.Writer, parents []v1alpha1.ControllerParent) error {
	for i := range parents {
		p := parents[i].ParentReference
		if _, err := fmt.Fprintf(out, "%s/%s\n", p.GroupResource().String(), p.Name); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the parents that are not as before, or were not there.
func changes(before, after []v1alpha1.ControllerParent) []v1alpha1.ControllerParent {
	known := make(map[v1alpha1.ParentReference]*v1alpha1.ControllerParent, len(before))
	for i := range before {
		known[before[i].ParentReference] = &before[i]
	}
	var changed []v1alpha1.ControllerParent
	for i := range after {
		if was, ok := known[after[i].ParentReference]; !ok || !reflect.DeepEqual(*was, after[i]) {
			changed = append(changed, after[i])
		}
	}
	return changed
}
