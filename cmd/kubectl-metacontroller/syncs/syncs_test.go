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

package syncs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func parent(name string) v1alpha1.ParentReference {
	return v1alpha1.ParentReference{Group: "example.com", Resource: "websites", Namespace: "shop", Name: name}
}

func TestTable(t *testing.T) {
	website := &v1alpha1.SyncObject{Group: "example.com", Resource: "websites", Kind: "Website", Namespace: "shop", Name: "a"}
	service := v1alpha1.SyncObject{Resource: "services", Kind: "Service", Namespace: "shop", Name: "a"}
	list := []v1alpha1.ControllerSync{
		{
			ParentReference: parent("a"), Time: metav1.NewMicroTime(now.Add(-5 * time.Second)), WaitMilliseconds: 3, HookMilliseconds: 12,
			Triggers: []v1alpha1.SyncTrigger{{Reason: v1alpha1.SyncSpecChanged, Object: website}, {Reason: v1alpha1.SyncChildChanged, Object: &service}}, MoreTriggers: 2,
			Children: []v1alpha1.SyncChild{
				{Action: v1alpha1.ChildUpdate, SyncObject: service, ChangedBackBy: []string{"kubectl-edit"}},
				{Action: v1alpha1.ChildRefuse, SyncObject: service, Reason: "Conflict"},
			},
		},
		{
			ParentReference: v1alpha1.ParentReference{Resource: "nodes", Name: "n"}, Time: metav1.NewMicroTime(now.Add(-time.Hour)), MoreChildren: 9,
			Triggers: []v1alpha1.SyncTrigger{{Reason: v1alpha1.SyncRelatedChanged, Hidden: true}}, Error: "no\nluck " + strings.Repeat("x", 200),
		},
	}
	for what, tc := range map[string]struct {
		t    table
		want string
	}{
		"one namespace": {table{}, `
TIME     PARENT   TRIGGER                                     WAIT   HOOK   CHILDREN                                                                           ERROR
5s ago   a        SpecChanged, ChildChanged Service/a, 2 more   3ms    12ms   Update Service/a changed back by kubectl-edit, Refuse Service/a (Conflict)   -
60m ago   n        RelatedChanged   0s     0s     9 more   no luck ` + strings.Repeat("x", 71) + `…
`},
		"all namespaces, wide": {table{subresource.Table{Namespace: true, Resource: true, Wide: true}}, `
TIME NAMESPACE RESOURCE PARENT TRIGGER WAIT HOOK CHILDREN ERROR
5s ago shop websites.example.com a SpecChanged, ChildChanged Service/a, 2 more 3ms 12ms Update Service/a changed back by kubectl-edit, Refuse Service/a (Conflict) -
60m ago - nodes n RelatedChanged 0s 0s 9 more no luck ` + strings.Repeat("x", 200) + `
`},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			if err := tc.t.print(&out, now, list, true); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rows(tc.want), rows(out.String())); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// rows returns the lines of a table without the widths of its columns.
func rows(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// The clock of the server may be ahead of ours.
func TestTimesThatAreAheadAreNow(t *testing.T) {
	list := []v1alpha1.ControllerSync{{ParentReference: parent("a"), Time: metav1.NewMicroTime(now.Add(time.Minute))}}
	var out bytes.Buffer
	if err := (table{}).print(&out, now, list, false); err != nil || !strings.HasPrefix(out.String(), "0s ago ") {
		t.Errorf("error %v, printed %q", err, out.String())
	}
}
