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

package world_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

// TestAPanicAtEveryRequest has the engine panic at one request or response after the other, while a parent is created, changed and deleted
// beside another one. In the short form some are left out.
func TestAPanicAtEveryRequest(t *testing.T) {
	figures := report.For(t, report.Panics)
	stride := report.Pick(7, 1)
	for name, definition := range both {
		for _, kinds := range [][]world.Kind{{world.Request, world.Call}, {world.Response, world.CallResponse}} {
			panics := 0
			for at, more := 0, true; more; at += stride {
				what := fmt.Sprintf("%s, %s %d", name, kinds[0], at)
				synctest.Test(t, func(t *testing.T) {
					s := bugged{scenario: begin(t, world.Options{Trace: true}), kinds: kinds, at: at}
					s.live(name, definition)
					more = s.seen > at
					if !more {
						return
					}
					panics++
					if found := s.Panics(); len(found) == 0 {
						s.failf("%s: nobody was told of the panic", what)
					} else if !strings.Contains(found[0].Text, world.Defect) {
						s.failf("%s: another panic: %v", what, found[0])
					}
				})
			}
			figures.Sayf("%s: a panic at %d different %ss and %ss, all of them told and tried again", name, panics, kinds[0], kinds[1])
		}
	}
}

// bugged is a scenario with one panic.
type bugged struct {
	scenario

	// kinds are where the engine may panic, at which of them it does, and seen how many there were.
	kinds    []world.Kind
	at, seen int
}

// live lets parents live and checks what is left.
func (s *bugged) live(name, definition string) {
	s.t.Helper()
	s.Start()
	s.create(own+name, definition)
	s.createThing("a", 2, "x")
	s.createThing("b", 2, "x")
	s.rest()
	s.editThing("a", 3, "y")
	s.rest()
	s.deleteThing("a")
	s.rest()
	s.settle()
	s.expect(map[string]string{"b": "x"}, 2)
	if left := s.list(things); len(left) != 1 {
		s.failf("the things left are %v", left)
	}
	// The error is about the panics, and about goroutines that have not ended.
	if err := s.Close(); err != nil && strings.Contains(err.Error(), "has not ended") {
		s.failf("%v", err)
	}
}

// rest releases all that comes within half a minute, and has the engine panic where it is to.
func (s *bugged) rest() {
	for {
		pending := s.Pending()
		if len(pending) == 0 {
			if !s.Idle(30 * time.Second) {
				return
			}
			continue
		}
		var fault world.Fault
		if pending[0].Kind == s.kinds[0] || pending[0].Kind == s.kinds[1] {
			if s.seen == s.at {
				fault.Kind = world.Panic
			}
			s.seen++
		}
		s.Release(pending[0], fault)
	}
}

const (
	things     = "/apis/example.com/v1/namespaces/default/things"
	configMaps = "/api/v1/namespaces/default/configmaps"
	own        = "/apis/metacontroller.k8s.io/v1alpha1/"
	someone    = "someone"
	// patience is how long a world may take to come to rest.
	patience = 30 * time.Minute
)

const definitionOfThings = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
	"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Thing","listKind":"ThingList","plural":"things","singular":"thing"},
	"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object",
	"properties":{"spec":{"type":"object","properties":{"count":{"type":"integer"},"text":{"type":"string"}}},
	"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

const composite = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"c"},"spec":{
	"generateSelector":true,"parentResource":{"apiVersion":"example.com/v1","resource":"things"},
	"childResources":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"InPlace"}}],
	"hooks":{"sync":{"webhook":{"url":"http://hooks/composite/c/sync"}},"finalize":{"webhook":{"url":"http://hooks/composite/c/finalize"}}}}}`

const decorator = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController","metadata":{"name":"d"},"spec":{
	"resources":[{"apiVersion":"example.com/v1","resource":"things"}],
	"attachments":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"InPlace"}}],
	"hooks":{"sync":{"webhook":{"url":"http://hooks/decorator/d/sync"}},"finalize":{"webhook":{"url":"http://hooks/decorator/d/finalize"}}}}}`

// both has a definition of each kind of controller, by its resource.
var both = map[string]string{"compositecontrollers": composite, "decoratorcontrollers": decorator}

// scenario is a world with the kind Thing.
type scenario struct {
	*world.World
	t *testing.T
}

func begin(t *testing.T, o world.Options) scenario {
	t.Helper()
	if o.Hook == nil {
		o.Hook = pure
	}
	s := scenario{world.New(o), t}
	s.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definitionOfThings)
	return s
}

func (s scenario) do(method, path, contentType, body string) apiserver.Response {
	s.t.Helper()
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Do(someone, apiserver.Request{
		UserAgent: "someone", Method: method, Path: path, Query: values, ContentType: contentType, Accept: "application/json", Body: []byte(body),
	})
}

func (s scenario) must(method, path, contentType, body string) {
	s.t.Helper()
	if r := s.do(method, path, contentType, body); r.Code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, r.Code, r.Body)
	}
}

func (s scenario) create(path, body string) {
	s.t.Helper()
	s.must(http.MethodPost, path, "application/json", body)
}

func (s scenario) createThing(name string, count int, text string) {
	s.t.Helper()
	s.create(things, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%q},"spec":{"count":%d,"text":%q}}`, name, count, text))
}

func (s scenario) editThing(name string, count int, text string) {
	s.t.Helper()
	s.must(http.MethodPatch, things+"/"+name, "application/merge-patch+json", fmt.Sprintf(`{"spec":{"count":%d,"text":%q}}`, count, text))
}

func (s scenario) deleteThing(name string) {
	s.t.Helper()
	s.must(http.MethodDelete, things+"/"+name, "application/json", "")
}

func (s scenario) settle() {
	s.t.Helper()
	if err := s.Settle(patience); err != nil {
		s.t.Fatal(err)
	}
}

// failf fails the test with the trace.
func (s scenario) failf(format string, args ...any) {
	s.t.Helper()
	var b strings.Builder
	world.PrintTrace(&b, s.Trace())
	s.t.Errorf(format+"\n%s", append(args, b.String())...)
}

type object struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Count int    `json:"count"`
		Text  string `json:"text"`
	} `json:"spec"`
	Data map[string]string `json:"data"`
}

func (s scenario) list(path string) map[string]object {
	s.t.Helper()
	r := s.do(http.MethodGet, path, "", "")
	var list struct {
		Items []object `json:"items"`
	}
	if err := json.Unmarshal(r.Body, &list); err != nil || r.Code != http.StatusOK {
		s.t.Fatalf("list of %s: %d %v", path, r.Code, err)
	}
	byName := map[string]object{}
	for _, o := range list.Items {
		byName[o.Metadata.Name] = o
	}
	return byName
}

// expect fails the test unless the ConfigMaps are count ones for each thing, with its text.
func (s scenario) expect(want map[string]string, count int) {
	s.t.Helper()
	found := s.list(configMaps)
	for thing, text := range want {
		for n := range count {
			name := fmt.Sprintf("%s-%d", thing, n)
			if o, ok := found[name]; !ok || o.Data["text"] != text {
				s.failf("child %s is %v, want the text %q", name, o, text)
			}
			delete(found, name)
		}
	}
	for name := range found {
		s.failf("ConfigMap %s is there", name)
	}
}

// pure is a hook of both kinds of controllers that makes ConfigMaps of things.
func pure(c world.HookCall) world.HookResponse {
	var request struct {
		Parent      *object                               `json:"parent"`
		Object      *object                               `json:"object"`
		Children    map[string]map[string]json.RawMessage `json:"children"`
		Attachments map[string]map[string]json.RawMessage `json:"attachments"`
		Finalizing  bool                                  `json:"finalizing"`
	}
	if err := json.Unmarshal(c.Request, &request); err != nil {
		return world.HookResponse{Err: err}
	}
	thing, key := request.Parent, "children"
	if request.Object != nil {
		thing, key = request.Object, "attachments"
	}
	kind, text := "ConfigMap", thing.Spec.Text
	if strings.Contains(string(c.Request), "Secret.v1") {
		kind, text = "Secret", base64.StdEncoding.EncodeToString([]byte(text))
	}
	children := []any{}
	if !request.Finalizing {
		for n := range thing.Spec.Count {
			children = append(children, map[string]any{
				"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": fmt.Sprintf("%s-%d", thing.Metadata.Name, n)},
				"data": map[string]any{"text": text},
			})
		}
	}
	left := len(request.Children[kind+".v1"]) + len(request.Attachments[kind+".v1"])
	response := map[string]any{key: children, "finalized": request.Finalizing && left == 0}
	if key == "children" {
		// Two controllers of one parent must not want different status.
		response["status"] = map[string]any{"observed": left}
	}
	body, err := json.Marshal(response)
	return world.HookResponse{Body: body, Err: err}
}
