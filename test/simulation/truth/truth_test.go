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

// Package truth compares the simulated API server with a real one: each row sends the same requests to both over HTTP, asserts the
// same of their responses, and then whatever both sent must be equal but for UIDs, times and the numbers of resourceVersions.
package truth_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
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
	server.Start(t, cluster.Shared(t), server.Options{
		Tolerate: []string{"Controller does not run"}, Args: []string{"--plan-warnings=false"}, // The simulated server has no engine.
	})
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

var definitionName = regexp.MustCompile(`"metadata":\{"name":"([^"]+)"`)

// define creates a CustomResourceDefinition and waits until its kind is served at a path.
func (c *client) define(definition, path string) {
	c.t.Helper()
	c.silently(func() { c.post(201, crds, definition) })
	c.settle(200, path)
	if c.simulation != nil {
		return
	}
	name := definitionName.FindStringSubmatch(definition)[1]
	c.t.Cleanup(func() { c.remove(crds + "/" + name) })
	// It is served a moment before its conditions say so.
	c.until(crds+"/"+name, isEstablished)
}

func isEstablished(definition object) bool {
	status, _ := definition["status"].(object)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(object)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

// remove deletes an object at the end of a row.
func (c *client) remove(path string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, c.host+path, http.NoBody) //nolint:forbidigo // The test's context has ended.
	if err != nil {
		c.t.Error(err)
		return
	}
	deleted, err := c.http.Do(request)
	if err != nil {
		c.t.Error(err)
		return
	}
	_ = deleted.Body.Close()
}

// redefine changes a CustomResourceDefinition by a JSON patch, and waits until a function sees that it is served so.
func (c *client) redefine(name, patch string, seen func() bool) {
	c.t.Helper()
	c.silently(func() {
		c.patch(200, jsonPatchType, crds+"/"+name, patch)
		cluster.Eventually(c.t, limit, "the definition "+name+" as it was changed", func(context.Context) (bool, string) {
			return seen(), ""
		})
	})
}

// forget makes the simulation forget its history. The real one has forgotten its first versions at its start.
func (c *client) forget() {
	if c.simulation != nil {
		c.simulation.Use(func(s *apiserver.Server) { s.Compact() })
	}
}

const (
	composites = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"
	decorators = "/apis/metacontroller.k8s.io/v1alpha1/decoratorcontrollers"
)

var controllerRevisions = in("metacontroller.k8s.io/v1alpha1", "controllerrevisions")

// composite returns a CompositeController that is paused, so that nobody but the row writes it.
func composite(spec string) string {
	return fmt.Sprintf(`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"$ns"},"spec":%s}`, spec)
}

const validSpec = `{"parentResource":{"apiVersion":"nobody.example.com/v1","resource":"nothings"},"hooks":{"sync":{"webhook":{"url":"http://localhost:1/sync"}}}}`

// metacontrollerRows are about Metacontroller's kinds. Controllers run beside them: what they write is kept out of the transcript.
var metacontrollerRows = []row{
	{"a composite controller gets defaults", func(c *client) {
		c.post(201, composites+"?dryRun=All", composite(validSpec))
		c.post(201, composites+"?dryRun=All", composite(`{"parentResource":{"apiVersion":"nobody.example.com/v1","resource":"nothings","revisionHistory":{}},
			"childResources":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"RollingRecreate"}}],
			"hooks":{"sync":{"webhook":{"url":"http://localhost:1/sync"}},"finalize":{"webhook":{"url":"http://localhost:1/sync"}}}}`))
	}},
	{"composite controllers that are invalid", func(c *client) {
		c.post(422, composites, composite(`{}`))
		c.post(422, composites, composite(`{"parentResource":{"apiVersion":"v1","resource":"configmaps"},"hooks":{"sync":{"webhook":{}}}}`))
		c.post(201, composites+"?dryRun=All", composite(`{"parentResource":{"apiVersion":"v1","resource":"configmaps"},"resyncPeriodSeconds":-1,"hooks":{"sync":{"webhook":{"url":"http://x"}}}}`))
		c.post(422, composites, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"A_b"},"spec":`+validSpec+`}`)
	}},
	{"a composite controller changes", func(c *client) {
		c.controller(composites, composite(validSpec))
		c.shown(silent(c, "GET", composites+"/$ns", ""))
		c.silently(func() {
			c.patch(200, mergeType, composites+"/$ns", `{"metadata":{"labels":{"l":"1"}}}`)
			c.patch(200, mergeType, composites+"/$ns", `{"spec":{"resyncPeriodSeconds":7}}`)
		})
		c.shown(silent(c, "GET", composites+"/$ns", ""))
		c.patch(422, mergeType, composites+"/$ns", `{"spec":{"hooks":null,"parentResource":null}}`)
		c.patch(404, mergeType, composites+"/$ns-other", `{}`)
	}},
	{"the status of a composite controller", func(c *client) {
		c.controller(composites, composite(validSpec))
		status := func(uid, generation string) string {
			return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"$ns","uid":"` + uid + `"},
				"spec":{"resyncPeriodSeconds":9},"status":{"observedGeneration":` + generation + `}}`
		}
		r := silent(c, "GET", composites+"/$ns", "")
		c.silently(func() { c.apply(200, "truth", composites+"/$ns/status?force=true", status(r.metadata("uid"), "5")) })
		c.shown(silent(c, "GET", composites+"/$ns", ""))
		// The status of an object is not written to another one of its name.
		c.apply(422, "truth", composites+"/$ns/status?force=true", status("00000000-0000-0000-0000-000000000000", "6"))
		c.shown(silent(c, "GET", composites+"/$ns", ""))
	}},
	{"put of a composite controller needs a resourceVersion", func(c *client) {
		c.controller(composites, composite(validSpec))
		c.put(422, composites+"/$ns", composite(validSpec))
		c.put(404, composites+"/$ns-other", `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"$ns-other"},"spec":`+validSpec+`}`)
	}},
	{"a decorator controller", func(c *client) {
		c.post(201, decorators+"?dryRun=All", `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController","metadata":{"name":"$ns"},
			"spec":{"resources":[{"apiVersion":"v1","resource":"pods"}],"attachments":[{"apiVersion":"v1","resource":"configmaps"}],"hooks":{"sync":{"webhook":{"url":"http://localhost:1/sync"}}}}}`)
		c.post(422, decorators, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController","metadata":{"name":"$ns"},"spec":{}}`)
	}},
	{"a controller revision", func(c *client) {
		revision := `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"a"},"parentPatch":{"spec":{"a":2,"b":1}},
			"children":[{"apiGroup":"","kind":"ConfigMap","names":["x","y"]}]}`
		r := c.post(201, controllerRevisions, revision)
		// The simulation keeps no order of keys; kube-apiserver writes such an object anew if the order differs.
		r = c.put(200, controllerRevisions+"/a", r.with(func(o object) { o["parentPatch"] = object{"spec": object{"a": 2, "b": 1}} }))
		c.put(200, controllerRevisions+"/a", r.with(func(o object) { o["children"] = []any{} }))
		c.put(409, controllerRevisions+"/a", string(r.raw))
		c.post(422, controllerRevisions, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"b"}}`)
		c.list(controllerRevisions)
		c.delete(200, controllerRevisions+"/a", "")
	}},
	{"Metacontroller's kinds are discovered", func(c *client) {
		c.get(200, "/apis/metacontroller.k8s.io")
		c.note("v1alpha1", response{body: c.resources("/apis/metacontroller.k8s.io/v1alpha1")})
	}},
	{"a watch of controller revisions", func(c *client) {
		w := c.watch(controllerRevisions, query("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"))
		w.bookmark()
		c.post(201, controllerRevisions, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"a"},"parentPatch":{"spec":{}}}`)
		w.next("ADDED")
		c.delete(200, controllerRevisions+"/a", "")
		w.next("DELETED")
	}},
}

// controller creates a controller object, which goes with the row.
func (c *client) controller(path, body string) {
	c.t.Helper()
	c.silently(func() { c.post(201, path, body) })
	if c.simulation == nil {
		c.t.Cleanup(func() { c.remove(path + "/" + c.namespace) })
	}
}

// shown adds a controller object to the transcript without what the engine writes.
func (c *client) shown(r response) {
	m := object{}
	for k, v := range meta(r.body) {
		if k != "resourceVersion" && k != "managedFields" && k != "finalizers" {
			m[k] = v
		}
	}
	c.note("controller", response{body: object{"metadata": m, "spec": r.body["spec"]}})
}
