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
	"maps"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connectiontest"
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
		"those of a parent without":     {with(`"items":[]`, `{"name":"a"}`), "No sync is remembered", ""},
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
