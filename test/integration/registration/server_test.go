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

package registration

import (
	"crypto/tls"
	"encoding/json"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/registration"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// A standIn serves the discovery of the group, and nothing else.
type standIn struct {
	dataDir string
	port    int
	caFile  string
}

// newStandIn starts a server that ends with the test.
func newStandIn(t *testing.T) standIn {
	t.Helper()
	s := standIn{dataDir: t.TempDir()}
	files, err := servingcert.Ensure(t.Context(), servingcert.Directory(s.dataDir))
	if err != nil {
		t.Fatal(err)
	}
	s.caFile = files.CAFile
	certificate, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/metacontroller.k8s.io/v1alpha1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		verbs := []string{"create", "delete", "get", "list", "watch"}
		if err := json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "metacontroller.k8s.io/v1alpha1",
			APIResources: []metav1.APIResource{
				{Name: "compositecontrollers", SingularName: "compositecontroller", Kind: "CompositeController", Verbs: verbs},
				{Name: "controllerrevisions", SingularName: "controllerrevision", Kind: "ControllerRevision", Verbs: verbs, Namespaced: true},
				{Name: "decoratorcontrollers", SingularName: "decoratorcontroller", Kind: "DecoratorController", Verbs: verbs},
			},
		}); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(t.Output(), "server: ", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	s.port = server.Listener.Addr().(*net.TCPAddr).Port
	return s
}

// options registers the stand-in at the shared control plane, and takes that back at the end of the test.
func (s standIn) options(t *testing.T) registration.Options {
	t.Helper()
	bundle, err := os.ReadFile(filepath.Clean(s.caFile))
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.Shared(t).Config(t)
	t.Cleanup(func() { unregister(t) })
	return registration.Options{
		Config: config, Host: "localhost", Port: s.port, CABundle: bundle, Timeout: time.Minute, Progress: t.Output(),
	}
}
