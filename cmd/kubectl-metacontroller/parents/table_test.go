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

func parent(namespace, name string, state v1alpha1.ParentState) v1alpha1.ControllerParent {
	return v1alpha1.ControllerParent{
		ParentReference: v1alpha1.ParentReference{Group: "example.com", Resource: "websites", Namespace: namespace, Name: name}, State: state,
	}
}

func TestTable(t *testing.T) {
	synced := parent("shop", "a", v1alpha1.ParentSynced)
	synced.LastSyncTime, synced.LastSyncMilliseconds = &metav1.Time{Time: now.Add(-5 * time.Second)}, 12
	synced.Children = &v1alpha1.ChildCounts{Total: 3, Ready: new(int32(2)), Outdated: new(int32(1))}
	failing := parent("shop", "b", v1alpha1.ParentFailing)
	failing.NextSyncTime, failing.Retries, failing.LastError = &metav1.Time{Time: now.Add(time.Minute)}, 2, "no\nluck "+strings.Repeat("x", 200)+": the reason"
	failing.Children = &v1alpha1.ChildCounts{Total: 1}
	pending := parent("", "c", v1alpha1.ParentPending)
	pending.Message = "it waits"
	list := []v1alpha1.ControllerParent{synced, failing, pending}
	for what, tc := range map[string]struct {
		t    subresource.Table
		want string
	}{
		"one namespace": {subresource.Table{}, `
NAME   STATE     CHILDREN           LAST SYNC   NEXT     MESSAGE
a      Synced    2/3 (1 outdated)   5s ago      -        -
b      Failing   1                  -           in 60s   no luck ` + strings.Repeat("x", 13) + `…` + strings.Repeat("x", 29) + `: the reason
c      Pending   -                  -           -        it waits
`},
		"all namespaces, wide": {subresource.Table{Namespace: true, Resource: true, Wide: true}, `
NAMESPACE   RESOURCE               NAME   STATE     CHILDREN           LAST SYNC   TOOK   RETRIES   NEXT     MESSAGE
shop        websites.example.com   a      Synced    2/3 (1 outdated)   5s ago      12ms   0         -        -
shop        websites.example.com   b      Failing   1                  -           -      2         in 60s   no luck ` + strings.Repeat("x", 200) + `: the reason
-           websites.example.com   c      Pending   -                  -           -      0         -        it waits
`},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			if err := newTable(tc.t, &out).print(now, list, true); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAWatchShowsParentsThatChanged(t *testing.T) {
	a, b, c := parent("shop", "a", v1alpha1.ParentSynced), parent("shop", "b", v1alpha1.ParentSynced), parent("shop", "c", v1alpha1.ParentPending)
	changed := b
	changed.State = v1alpha1.ParentFailing
	got := changes([]v1alpha1.ControllerParent{a, b}, []v1alpha1.ControllerParent{a, changed, c})
	if diff := cmp.Diff([]v1alpha1.ControllerParent{changed, c}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := changes([]v1alpha1.ControllerParent{a, b}, []v1alpha1.ControllerParent{a, b}); len(got) > 0 {
		t.Errorf("nothing changed: %v", got)
	}
}

// The clock of the server may be ahead of ours.
func TestTimesThatAreAheadAreNow(t *testing.T) {
	synced := parent("shop", "a", v1alpha1.ParentSynced)
	synced.LastSyncTime = &metav1.Time{Time: now.Add(time.Minute)}
	var out bytes.Buffer
	if err := newTable(subresource.Table{}, &out).print(now, []v1alpha1.ControllerParent{synced}, false); err != nil || !strings.Contains(out.String(), " 0s ago ") {
		t.Errorf("error %v, printed %q", err, out.String())
	}
}
