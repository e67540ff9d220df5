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

package hostile

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const (
	limit = cluster.Limit
	// hangTimeout is the timeout of the hooks that hang. The others have one that no busy machine reaches.
	hangTimeout, hookTimeout = time.Second, time.Minute
	// token is what hooks are sent, and nobody is shown.
	token = "s3cr3t-0f-all-h00ks"
	// parents and rounds are what the healthy controller has to do meanwhile.
	parents, rounds = 4, 10
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestFiftyHostileHooks is about docs/reference/compatibility.md#d2.2.
func TestFiftyHostileHooks(t *testing.T) {
	figures := report.For(t, report.HostileHooks)
	s := fixture.SetUp(t, fixture.Options{Limit: limit, Server: limited()})
	hostile, other := &stage{s.NewTest(t)}, hooktest.NewServer(t)
	work := newWork(s.NewTest(t))
	work.converge(0)
	alone := work.latency("alone")

	hostile.secret("login", token)
	hostile.secret("smuggled", token+"\r\nX-Admin: "+token)
	var running []runningHook
	for _, h := range hostileHooks(t, s.Server.Port(), other) {
		for i := range h.copies {
			running = append(running, hostile.run(&h, i))
		}
	}
	if len(running) != 50 {
		t.Fatalf("%d hostile hooks", len(running))
	}
	for round := range rounds {
		work.converge(round + 1)
	}
	beside := work.latency("beside")
	for _, r := range running {
		r.controller.AwaitStatus("what is wrong: "+r.hook.want, func(status *v1alpha1.ControllerStatus) bool {
			return strings.Contains(said(status), r.hook.want)
		})
	}
	work.converge(rounds + 1)
	work.controller.AwaitStatus("no failure", func(status *v1alpha1.ControllerStatus) bool { return len(status.LastErrors) == 0 })
	select {
	case <-s.Server.Ended():
		t.Fatal("the server ended")
	default:
	}
	work.compare(figures, alone, beside)
	if n := len(other.Requests("/sync")); n > 0 {
		t.Errorf("another server got %d requests", n)
	}
	for what, text := range hostile.written() {
		for _, form := range []string{token, base64.StdEncoding.EncodeToString([]byte(token)), token[:10]} {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("%s shows a credential: %q", what, text[max(0, at-200):min(len(text), at+60)])
			}
		}
	}
}

// stage has the hostile hooks.
type stage struct{ *fixture.Test }

// runningHook is a hostile hook with its controller.
type runningHook struct {
	hook       hostileHook
	controller *controllers.Controller
}

func (s *stage) secret(name, value string) {
	s.T.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"token": value}}
	if _, err := s.Kube.CoreV1().Secrets(s.Namespace).Create(s.T.Context(), o, metav1.CreateOptions{}); err != nil {
		s.T.Fatalf("creating secret %s: %v", name, err)
	}
}

// run creates a controller of a hostile hook, and a parent of its own.
func (s *stage) run(h *hostileHook, i int) runningHook {
	s.T.Helper()
	name := fmt.Sprintf("%s-%s-%d", s.Name, h.name, i)
	selector := map[string]string{fixture.Label: name}
	login := h.login
	if login == "" {
		login = "login"
	}
	timeout := hookTimeout
	if h.hangs {
		timeout = hangTimeout
	}
	sync := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
		URL: new(h.at(s.Test)), Timeout: &metav1.Duration{Duration: timeout},
		WebhookSecurity: v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{
			SecretRef: v1alpha1.SecretKeyReference{Namespace: s.Namespace, Name: login, Key: "token"},
		}},
	}}
	controller := s.Declare(fixture.Definition{Kind: fixture.Composite, Name: name, Selector: selector, Sync: sync})
	s.CreateIn(s.Namespace, fixture.Things, h.name+"-"+strconv.Itoa(i), map[string]any{"spec": map[string]any{}}, selector)
	return runningHook{*h, controller}
}

// said is what the status of a controller says is wrong.
func said(status *v1alpha1.ControllerStatus) string {
	var texts []string
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionFalse {
			texts = append(texts, c.Message)
		}
	}
	for _, e := range status.LastErrors {
		texts = append(texts, e.Message)
	}
	return strings.Join(texts, "\n")
}

// written is all that the server has written, by what it is.
func (s *stage) written() map[string]string {
	s.T.Helper()
	found := map[string]string{}
	keep := func(what string, value any, err error) {
		if err != nil {
			s.T.Fatalf("reading %s: %v", what, err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			s.T.Fatalf("reading %s: %v", what, err)
		}
		if len(text) < 1000 {
			s.T.Errorf("%s: there is next to nothing: %s", what, text)
		}
		found[what] = string(text)
	}
	everywhere := metav1.ListOptions{}
	events, err := s.Kube.CoreV1().Events(metav1.NamespaceAll).List(s.T.Context(), everywhere)
	keep("an event", events, err)
	objects, err := s.Versioned.MetacontrollerV1alpha1().CompositeControllers().List(s.T.Context(), everywhere)
	keep("a controller", objects, err)
	things, err := s.Dynamic.Resource(fixture.Things).Namespace(metav1.NamespaceAll).List(s.T.Context(), everywhere)
	keep("a parent", things, err)
	var states strings.Builder
	for _, o := range objects.Items {
		raw, err := s.Versioned.MetacontrollerV1alpha1().RESTClient().Get().
			Resource("compositecontrollers").Name(o.Name).SubResource("parents").DoRaw(s.T.Context())
		if err != nil {
			s.T.Fatalf("reading the parents of %s: %v", o.Name, err)
		}
		states.Write(raw)
	}
	keep("the subresource parents", states.String(), nil)
	metrics, err := s.Server.Read(s.T.Context(), "/metrics")
	keep("a metric", metrics, err)
	log, err := os.ReadFile(s.Server.Log())
	keep("the log", string(log), err)
	return found
}

// work is a controller with a hook as it should be: each parent has a ConfigMap with the parent's value.
type work struct {
	*fixture.Test

	controller *controllers.Controller
}

func newWork(test *fixture.Test) *work {
	test.T.Helper()
	test.Hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: []*hook.Object{
			fixture.ConfigMap(q.Parent.GetName(), map[string]any{"value": fixture.Value(q.Parent, "spec", "value")}),
		}}, nil
	}))
	return &work{test, test.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: test.At("/sync"),
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	})}
}

// converge changes all parents, and waits until their children are as they want. In the round 0 it creates them.
func (w *work) converge(round int) {
	w.T.Helper()
	value := strconv.Itoa(round)
	for i := range parents {
		name := "p" + strconv.Itoa(i)
		if round == 0 {
			w.Parent(name, map[string]any{"value": value})
		} else {
			w.Patch(fixture.Things, name, `{"spec":{"value":"`+value+`"}}`)
		}
	}
	for i := range parents {
		w.Await(fixture.ConfigMaps, "p"+strconv.Itoa(i), "to have the value "+value, func(o *unstructured.Unstructured) bool {
			return fixture.Value(o, "data", "value") == value
		})
	}
}
