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

package truth_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/overhttp"
)

// parallel is how many rows run at the same time, however few processors there are: they spend their time waiting.
const parallel = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, "setting the number of parallel tests:", err)
		os.Exit(1)
	}
	os.Exit(cluster.Main(m))
}

// row is a semantic of the API server, shown by requests.
type row struct {
	name string
	run  func(*client)
}

// TestTheSimulationAgreesWithTheServers runs all rows against the simulation and against kube-apiserver, with the product's server
// behind it.
func TestTheSimulationAgreesWithTheServers(t *testing.T) {
	server.Start(t, cluster.Shared(t), server.Options{Tolerate: []string{"Controller does not run"}})
	run(t, connect(t), slices.Concat(
		// Those that wait for controllers of the cluster come first.
		deletionRows, definitionRows, versionRows, customRows, objectRows, admissionRows, patchRows, applyRows, readRows, watchRows, discoveryRows,
		builtinRows, workloadRows, metacontrollerRows))
}

// connection reaches a real API server.
type connection struct {
	host string
	http *http.Client
}

func connect(t *testing.T) connection {
	t.Helper()
	config := cluster.Shared(t).Config(t)
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	c := connection{host: strings.TrimSuffix(config.Host, "/"), http: &http.Client{Transport: transport}}
	// The rows share these definitions.
	cluster.Shared(t).DefineManifests(t, manifests(sharedDefinitions))
	awaitPolicies(t, c)
	return c
}

// run runs rows against both servers and compares what they sent.
func run(t *testing.T, server connection, rows []row) {
	t.Helper()
	for i, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			namespace := fmt.Sprintf("truth-%d", i)
			simulated := newSimulated(t)
			truth := newClient(t, "kube-apiserver", server.host, server.http, namespace)
			var transcripts [2][]string
			for i, c := range []*client{simulated, truth} {
				t.Run(c.server, func(t *testing.T) {
					c.t, c.namespace = t, namespace
					c.begin()
					r.run(c)
				})
				transcripts[i] = c.transcript
			}
			if difference := cmp.Diff(transcripts[1], transcripts[0]); difference != "" {
				t.Errorf("kube-apiserver's (-) and simulated responses (+):\n%s", difference)
			}
		})
	}
}

// newSimulated returns a client of a new simulated API server.
func newSimulated(t *testing.T) *client {
	t.Helper()
	var policies policies
	handler := overhttp.New(apiserver.New(apiserver.Options{Now: time.Now, Authorize: policies.authorize, Admit: admit}))
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	c := newClient(t, "simulation", listening.URL, listening.Client(), "")
	c.simulation = handler
	for _, definition := range sharedDefinitions {
		c.silently(func() { c.send("POST", crds, "application/json", definition) })
	}
	return c
}

// policies decide what users may do, as the roles that rows make on the real server.
type policies struct{}

func (policies) authorize(a apiserver.Attributes) bool {
	return a.User == "admin" || strings.HasPrefix(a.User, "system:")
}
