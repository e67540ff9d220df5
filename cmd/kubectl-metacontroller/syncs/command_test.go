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
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/subresource"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// cluster has a controller that synced a parent.
var cluster = connectiontest.Documents{
	"/api":  `{"kind":"APIVersions","versions":[]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/website": `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"website"},` +
		`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"websites"}}}`,
	"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/website/syncs": `{"kind":"ControllerSyncList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[` +
		`{"group":"example.com","resource":"websites","namespace":"shop","name":"a"}]}`,
}

func TestFormats(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		want string
		err  string
	}{
		"no format":                  {nil, "TIME ", ""},
		"wide":                       {[]string{"-o", "wide"}, "TIME ", ""},
		"a path":                     {[]string{"-o", "jsonpath={.items[*].name}"}, "a", ""},
		"a template alone":           {[]string{"--template", "{{.kind}} {{len .items}}"}, "ControllerSyncList 1", ""},
		"names, which syncs lack":    {[]string{"-o", "name"}, "", `--output: "name" is not known: use one of wide, json, `},
		"a format that is not known": {[]string{"-o", "xml"}, "", `--output: "xml" is not known: use one of wide, json, `},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, cluster, append(tc.args, "cc/website")...)
			if !strings.HasPrefix(printed, tc.want) || tc.want == "" && printed != "" || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("printed %q, error %v; want %q, %q", printed, err, tc.want, tc.err)
			}
		})
	}
}

func TestTriggersFit(t *testing.T) {
	const long = "ChildChanged Deployment/a-name-that-is-long"
	for want, parts := range map[string][]string{
		"": nil, "OwnWrite, Timer": {"OwnWrite", "Timer"}, "ChildChanged Service/a, 2 more": {"ChildChanged Service/a", "SpecChanged", "OwnWrite"},
		"ChildChanged, 1 more": {long, "OwnWrite"}, "…t/a-name-that-is-long": {long},
	} {
		if got := fitted(parts, 0); got != want {
			t.Errorf("%q: got %q, want %q", parts, got, want)
		}
	}
}

// What is not printed, and what cannot be there, is said.
func TestSyncsThatAreNotPrinted(t *testing.T) {
	const controller = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/website"
	with := func(syncs, parents string) connectiontest.Documents {
		other := maps.Clone(cluster)
		other[controller+"/syncs"] = `{"kind":"ControllerSyncList","apiVersion":"metacontroller.k8s.io/v1alpha1",` + syncs + `}`
		other[controller+"/parents"] = `{"kind":"ControllerParentList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[` + parents + `]}`
		return other
	}
	for what, tc := range map[string]struct {
		cluster connectiontest.Documents
		want    string
		err     string
	}{
		"older ones":                    {with(`"metadata":{"remainingItemCount":3},"items":[{"name":"a"}]`, ""), "3 older ones are not printed: --limit takes up to 500", ""},
		"those of a parent without":     {with(`"items":[]`, `{"name":"a"}`), "No sync is remembered, since there was none, or its parent is gone: see", ""},
		"those of what is not a parent": {with(`"items":[]`, ""), "", "a"},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, tc.cluster, "cc/website", "shop/a")
			if !strings.Contains(printed, tc.want) || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("printed %q, error %v; want %q, %q", printed, err, tc.want, tc.err)
			}
		})
	}
}

// recorder notes what is asked of the subresource.
type recorder struct{ asked []string }

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if strings.HasSuffix(request.URL.Path, "/syncs") || strings.HasSuffix(request.URL.Path, "/parents") {
		r.asked = append(r.asked, path.Base(request.URL.Path)+"?"+request.URL.Query().Encode())
	}
	cluster.ServeHTTP(w, request)
}

// The server selects by labels: whoever selects among the latest 500 syncs misses those before them.
func TestSyncsAreSelectedByTheServer(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		want string
	}{
		"the namespace":      {nil, "syncs?namespace=shop"},
		"a parent":           {[]string{"ns/a", "--resource=websites.example.com", "--limit=7"}, "syncs?limit=7&name=a&namespace=ns&resource=websites.example.com"},
		"labels":             {[]string{"-l", "app=web,tier!=cache"}, "syncs?labelSelector=app%3Dweb%2Ctier%21%3Dcache&namespace=shop"},
		"labels and a limit": {[]string{"-l", "app", "--all", "--limit=7"}, "syncs?labelSelector=app&limit=7"},
	} {
		t.Run(what, func(t *testing.T) {
			r := &recorder{}
			_, err := connectiontest.Run(t, NewCommand, r, append([]string{"cc/website"}, tc.args...)...)
			if diff := cmp.Diff([]string{tc.want}, r.asked); diff != "" || err != nil {
				t.Errorf("asked (-want +got):\n%s, error %v", diff, err)
			}
		})
	}
}

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)

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
			Triggers: []v1alpha1.SyncTrigger{{Reason: v1alpha1.SyncRelatedChanged, Hidden: true}}, Error: "no\nluck " + strings.Repeat("x", 200) + ": the reason",
		},
	}
	idle := func(name string, reason v1alpha1.SyncReason, seconds int) v1alpha1.ControllerSync {
		return v1alpha1.ControllerSync{
			ParentReference: parent(name), Time: metav1.NewMicroTime(now.Add(-time.Duration(seconds) * time.Second)), Triggers: []v1alpha1.SyncTrigger{{Reason: reason}},
		}
	}
	list = append(list, idle("b", v1alpha1.SyncOwnWrite, 4000), idle("a", v1alpha1.SyncTimer, 4001), idle("b", v1alpha1.SyncOwnWrite, 4002))
	list[0].Fields, list[0].Dropped = []string{"status.ready"}, []string{"status.phase"}
	for what, tc := range map[string]struct {
		t    subresource.Table
		want string
	}{
		"one namespace": {subresource.Table{}, `
TIME           PARENT   TRIGGER               HOOK   RESULT
03:04:00.000   a        SpecChanged, 3 more   12ms   Update Service/a … the API server dropped status.phase
02:04:05.000   n        RelatedChanged        0s     no luck xxxxxxxxxxxxxx…` + strings.Repeat("x", 32) + `: the reason
01:57:23.000   -        OwnWrite, Timer       -      3 syncs did nothing since then
`},
		"all namespaces, wide": {subresource.Table{Namespace: true, Resource: true, Wide: true}, `
TIME           NAMESPACE   RESOURCE               PARENT   TRIGGER                                       WAIT   HOOK   RESULT
03:04:00.000   shop        websites.example.com   a        SpecChanged, ChildChanged Service/a, 2 more   3ms    12ms   Update Service/a changed back by kubectl-edit, Refuse Service/a (Conflict); wrote status.ready; the API server dropped status.phase
02:04:05.000   -           nodes                  n        RelatedChanged                                0s     0s     9 more; no luck ` + strings.Repeat("x", 200) + `: the reason
01:57:25.000   shop        websites.example.com   b        OwnWrite                                      0s     0s     -
01:57:24.000   shop        websites.example.com   a        Timer                                         0s     0s     -
01:57:23.000   shop        websites.example.com   b        OwnWrite                                      0s     0s     -
`},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			if err := (table{tc.t}).print(&out, list, true); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A hook that does not answer makes twenty equal rows a minute of each parent, which are one row.
func TestSyncsThatFailAlikeAreOneRow(t *testing.T) {
	failed := func(name string, reason v1alpha1.SyncReason, seconds int, text string) v1alpha1.ControllerSync {
		return v1alpha1.ControllerSync{
			ParentReference: parent(name), Time: metav1.NewMicroTime(now.Add(-time.Duration(seconds) * time.Second)),
			Triggers: []v1alpha1.SyncTrigger{{Reason: reason}}, HookMilliseconds: 7, Error: text,
		}
	}
	const retry = v1alpha1.SyncRetry
	list := []v1alpha1.ControllerSync{
		failed("a", retry, 1, "refused"), failed("b", retry, 2, "refused"), failed("a", retry, 3, "refused"), failed("a", retry, 4, "no such host"),
		failed("b", retry, 5, "refused"), failed("a", v1alpha1.SyncSpecChanged, 6, "refused"),
		{ParentReference: parent("b"), Time: metav1.NewMicroTime(now.Add(-7 * time.Second)), Fields: []string{"status"}},
		failed("a", retry, 8, "refused"),
	}
	var out bytes.Buffer
	if err := (table{}).print(&out, list, false); err != nil {
		t.Fatal(err)
	}
	want := `
03:04:02.000   a   Retry         -     2 times since then: refused
03:04:00.000   b   Retry         -     2 times since then: refused
03:04:01.000   a   Retry         7ms   no such host
03:03:59.000   a   SpecChanged   7ms   refused
03:03:58.000   b   -             0s    wrote status
03:03:57.000   a   Retry         7ms   refused
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSyncsAreFiltered(t *testing.T) {
	list := []v1alpha1.ControllerSync{
		{ParentReference: parent("idle")}, {ParentReference: parent("changed"), Fields: []string{"status"}}, {ParentReference: parent("failed"), Error: "no luck"},
	}
	for want, o := range map[string]options{"idle changed failed": {}, "changed failed": {changed: true}, "failed": {failed: true}} {
		var got []string
		for _, s := range o.filter(slices.Clone(list)) {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
