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
	"fmt"
	"maps"
	"net/http"
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

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster has a controller with parents of two kinds, as after an edit.
var cluster = connectiontest.Documents{
	"/api":  `{"kind":"APIVersions","versions":[]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers/labels": `{"kind":"DecoratorController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"labels"},` +
		`"spec":{"resources":[{"apiVersion":"v1","resource":"pods"}]}}`,
	"/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers/labels/parents": `{"kind":"ControllerParentList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[` +
		`{"resource":"pods","namespace":"shop","name":"a"},{"group":"example.com","resource":"websites","namespace":"shop","name":"b"}]}`,
}

func TestFormats(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		want string
		err  string
	}{
		"no format":                  {nil, "NAME   STATE   ", ""},
		"wide":                       {[]string{"-o", "wide"}, "RESOURCE               NAME   STATE   ", ""},
		"names, as kubectl takes":    {[]string{"-o", "name"}, "pods/a\nwebsites.example.com/b\n", ""},
		"a path":                     {[]string{"-o", "jsonpath={.items[*].name}"}, "a b", ""},
		"a template alone":           {[]string{"--template", "{{.kind}} {{len .items}}"}, "ControllerParentList 2", ""},
		"names again and again":      {[]string{"-o", "name", "--watch"}, "", "--watch prints tables only"},
		"a template again and again": {[]string{"--template", "{{.kind}}", "--watch"}, "", "--watch prints tables only"},
		"a format that is not known": {[]string{"-o", "xml"}, "", `--output: "xml" is not known: use one of wide, name, json, `},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, NewCommand, cluster, append(tc.args, "dc/labels")...)
			if !strings.HasPrefix(printed, tc.want) || tc.want == "" && printed != "" || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("printed %q, error %v; want %q, %q", printed, err, tc.want, tc.err)
			}
		})
	}
}

// Whoever asks for one parent by its name, as in a script, learns that it is not there in every format.
func TestAParentThatIsNotThereIsAnError(t *testing.T) {
	empty := maps.Clone(cluster)
	empty["/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers/labels/parents"] = `{"kind":"ControllerParentList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[]}`
	for what, args := range map[string][]string{
		"no format": nil, "names": {"-o", "name"}, "JSON": {"-o", "json"}, "a path": {"-o", "jsonpath={.items[*].name}"}, "a state": {"--state", "Failing"},
	} {
		t.Run(what, func(t *testing.T) {
			if printed, err := connectiontest.Run(t, NewCommand, empty, append(args, "dc/labels", "shop/typo")...); err == nil || !strings.Contains(err.Error(), "typo") {
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
	if printed, err := connectiontest.Run(t, NewCommand, empty, "dc/labels", "--state", "Failing"); err != nil || printed != "No parent is Failing.\n" {
		t.Errorf("of all, it printed %q, error %v", printed, err)
	}
	if printed, err := connectiontest.Run(t, NewCommand, cluster, "dc/labels", ""); err == nil || !strings.Contains(err.Error(), "the name of the parent is empty") {
		t.Errorf("with an empty name, it printed %q, error %v", printed, err)
	}
}

func TestWatchingGoesOnAfterAnErrorThatPasses(t *testing.T) {
	const path = "/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers/labels/parents"
	asked := 0
	printed, err := connectiontest.Run(t, NewCommand, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(code int, reason metav1.StatusReason, message string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
		}
		if r.URL.Path == path {
			switch asked++; asked {
			case 2:
				refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "about to run controllers")
				return
			case 3:
				refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no more")
				return
			}
		}
		cluster.ServeHTTP(w, r)
	}), "dc/labels", "--watch", "--interval", "1ms")
	if !strings.Contains(printed, "about to run controllers") || err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("printed %q, and ended with %v", printed, err)
	}
}

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

// It is typed, and the server knows it in one form alone.
func TestAStateMayBeWrittenInAnyCase(t *testing.T) {
	for state, want := range map[string]string{"failing": "Failing", "HELD": "Held", "Synced": "Synced", "other": "other"} {
		var got string
		asked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/parents") {
				got = r.URL.Query().Get("state")
			}
			cluster.ServeHTTP(w, r)
		})
		if printed, err := connectiontest.Run(t, NewCommand, asked, "dc/labels", "--all", "--state", state); err != nil || got != want {
			t.Errorf("%s: asked for %q, want %q; printed %q, error %v", state, got, want, printed, err)
		}
	}
}
