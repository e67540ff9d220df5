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

package apiserver

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestWhoIsNotAuthenticatedSeesHealthAndVersionOnly asks as a Pod does that reaches the server's port, also with the headers in which the
// kube-apiserver tells of users, and with a token that nobody has issued.
func TestWhoIsNotAuthenticatedSeesHealthAndVersionOnly(t *testing.T) {
	s := server.Start(t, cluster.Shared(t), server.Options{})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	forged := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	impersonating := http.Header{"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}}
	const ours = "/apis/metacontroller.k8s.io/v1alpha1/"
	for _, row := range []struct {
		method, path string
		header       http.Header
		want         int
	}{
		{http.MethodGet, "/healthz", nil, http.StatusOK},
		{http.MethodGet, "/readyz", nil, http.StatusOK},
		{http.MethodGet, "/version", nil, http.StatusOK},
		{http.MethodGet, "/metrics", nil, http.StatusForbidden},
		{http.MethodGet, "/debug/pprof/", nil, http.StatusForbidden},
		{http.MethodGet, "/openapi/v3", nil, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", nil, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers/web/parents", nil, http.StatusForbidden},
		{http.MethodPost, ours + "compositecontrollers", nil, http.StatusForbidden},
		{http.MethodDelete, ours + "compositecontrollers", nil, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", forged, http.StatusForbidden},
		{http.MethodGet, "/metrics", forged, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", impersonating, http.StatusForbidden},
		{http.MethodGet, ours + "compositecontrollers", http.Header{"Authorization": {"Bearer made-up"}}, http.StatusUnauthorized},
	} {
		request, err := http.NewRequestWithContext(t.Context(), row.method, fmt.Sprintf("https://127.0.0.1:%d%s", s.Port(), row.path), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(request.Header, row.header)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != row.want {
			t.Errorf("%s %s with %v is answered with %s, not %d", row.method, row.path, row.header, response.Status, row.want)
		}
	}
}
