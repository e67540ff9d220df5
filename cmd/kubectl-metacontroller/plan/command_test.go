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

package plan

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/connectiontest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// It would mean all parents of the namespace.
func TestAnEmptyNameOfAParentIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	for what, args := range map[string][]string{
		"of a stored controller":     {"cc/website", ""},
		"of a candidate":             {"-f", file, ""},
		"of a candidate by its name": {"-f", file, "cc/website", ""},
	} {
		t.Run(what, func(t *testing.T) {
			if printed, err := connectiontest.Run(t, NewCommand, connectiontest.Documents{}, args...); err == nil || !strings.Contains(err.Error(), "the name of the parent is empty") {
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
}

// Beside make run, the hooks of a candidate are on the machine of the server, where its manifest does not have them.
func TestTheHooksOfACandidateAreCalledWhereTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	const candidate = `{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: web},
		spec: {hooks: {sync: {webhook: {path: /sync, service: {name: web, namespace: web}}}}}}`
	if err := os.WriteFile(file, []byte(candidate), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		stored string
		args   []string
		want   string
	}{
		"of a stored one on this machine": {`{"url":"http://localhost:1234/old"}`, nil, "http://localhost:1234/sync"},
		"of a stored one in the cluster":  {`{"url":"http://web.web/sync"}`, nil, ""},
		"named":                           {`{"url":"http://localhost:1234/old"}`, []string{"--hook=http://localhost:5"}, "http://localhost:5/sync"},
	} {
		t.Run(what, func(t *testing.T) {
			var got string
			cluster := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Warning", `299 - "it is old"`)
				if r.Method != http.MethodPost {
					fmt.Fprint(w, `{"kind":"CompositeController","apiVersion":"metacontroller.k8s.io/v1alpha1","metadata":{"name":"web"},"spec":{"hooks":{"sync":{"webhook":`+tc.stored+`}}}}`)
					return
				}
				var posted v1alpha1.ControllerPlan
				var sent v1alpha1.CompositeController
				if err := json.NewDecoder(r.Body).Decode(&posted); err != nil {
					t.Error(err)
				} else if err := json.Unmarshal(posted.Spec.Candidate.Raw, &sent); err != nil {
					t.Error(err)
				}
				got = ptr.Deref(sent.Spec.Hooks.Sync.Webhook.URL, "")
				fmt.Fprint(w, `{"kind":"ControllerPlan","apiVersion":"metacontroller.k8s.io/v1alpha1"}`)
			})
			printed, err := connectiontest.Run(t, NewCommand, cluster, append([]string{"-f", file, "--all"}, tc.args...)...)
			if err != nil || got != tc.want {
				t.Errorf("the hook is at %q, want %q; printed %q, error %v", got, tc.want, printed, err)
			}
			if strings.Count(printed, "Warning: it is old\n") != 1 {
				t.Errorf("the warning is not printed once, as kubectl does: %q", printed)
			}
		})
	}
	for what, args := range map[string][]string{"no address": {"-f", file, "--hook=localhost:8080"}, "no file": {"cc/web", "--hook=http://localhost:8080"}} {
		if _, err := connectiontest.Run(t, NewCommand, connectiontest.Documents{}, args...); err == nil || !strings.HasPrefix(err.Error(), "--hook") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
