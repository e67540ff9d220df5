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

package rbac_test

import (
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/rbac"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refusing is a cluster that answers requests below some paths with a status, and has the CompositeController web of Deployments.
type refusing map[string]int

func (r refusing) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	for path, status := range r {
		if strings.HasPrefix(request.URL.Path, path) {
			http.Error(w, "no", status)
			return
		}
	}
	connectiontest.Documents{
		"/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/web": `{"apiVersion":"metacontroller.k8s.io/v1alpha1",` +
			`"kind":"CompositeController","metadata":{"name":"web"},"spec":{"parentResource":{"apiVersion":"apps/v1","resource":"deployments"}}}`,
	}.ServeHTTP(w, request)
}

// As of every other command, an error of a request ends with what to look at next.
func TestErrorsOfRequestsSayWhatToLookAt(t *testing.T) {
	for what, tc := range map[string]struct {
		cluster refusing
		want    string
	}{
		"forbidden":                      {refusing{"/apis/metacontroller.k8s.io/": http.StatusForbidden}, "kubectl auth can-i --list"},
		"the server is not available":    {refusing{"/apis/metacontroller.k8s.io/": http.StatusServiceUnavailable}, "kubectl describe apiservice v1alpha1."},
		"another group is not available": {refusing{"/apis/apps/": http.StatusServiceUnavailable}, "kubectl get apiservices"},
	} {
		t.Run(what, func(t *testing.T) {
			printed, err := connectiontest.Run(t, rbac.NewCommand, tc.cluster, "cc/web", "--service-account=team/web")
			if printed != "" || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("printed %q, error %v, want %q", printed, err, tc.want)
			}
		})
	}
}
