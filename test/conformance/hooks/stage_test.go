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

package hooks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	limit = cluster.Limit
	// hookTimeout is more than any response takes there. A call that is cut short is an event that no test expects.
	hookTimeout = time.Minute
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// shared is the server, behind a proxy, and the clients of all tests.
type shared struct {
	*fixture.Environment

	proxy *proxy
}

func setUp(t *testing.T) *shared {
	t.Helper()
	p := newProxy(t, cluster.Shared(t))
	return &shared{proxy: p, Environment: fixture.SetUp(t, fixture.Options{Limit: limit, Server: server.Options{Kubeconfig: p.kubeconfig}})}
}

// A stage is one test of a controller of either kind.
type stage struct {
	*fixture.Test

	kind fixture.Kind
	// running is the controller from run on.
	running *controllers.Controller
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, s *shared, kind fixture.Kind, options ...hooktest.Option) *stage {
	t.Helper()
	return &stage{Test: s.NewTest(t, options...), kind: kind}
}

// definition is what both kinds of controllers have in common. Parents are Things, unless resource says something else.
type definition struct {
	resource                  schema.GroupVersionResource
	sync, finalize, customize *v1alpha1.Hook
	endpoints                 []v1alpha1.EndpointConfig
	resyncPeriod              *int32
	ignoreStatus              *bool
	// children declares ConfigMaps and Deployments as children or attachments.
	children bool
}

// run creates the controller and waits until it runs.
func (s *stage) run(d definition) {
	s.T.Helper()
	full := fixture.Definition{
		Kind: s.kind, Sync: d.sync, Finalize: d.finalize, Customize: d.customize,
		Endpoints: d.endpoints, ResyncPeriod: d.resyncPeriod, IgnoreStatus: d.ignoreStatus,
	}
	if !d.resource.Empty() {
		full.Parents = []schema.GroupVersionResource{d.resource}
	}
	if d.children {
		full.Children = []fixture.Child{{Resource: fixture.ConfigMaps}, {Resource: fixture.Deployments}}
	}
	s.running = s.Run(full)
}

// at declares a hook at a path of the stage's server.
func (s *stage) at(path string, version v1alpha1.HookVersion) *v1alpha1.Hook {
	hook := s.At(path)
	hook.Version, hook.Webhook.Timeout = &version, &metav1.Duration{Duration: hookTimeout}
	return hook
}

// question is the body of a request, of any hook.
type question map[string]any

// parent is the parent or target that a request is about.
func (q question) parent() *unstructured.Unstructured {
	for _, key := range []string{"parent", "object"} {
		if o, ok := q[key].(map[string]any); ok {
			return &unstructured.Unstructured{Object: o}
		}
	}
	return &unstructured.Unstructured{}
}

// answering returns a hook that responses with the JSON that f returns.
func answering(f func(question) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &q) != nil {
			http.Error(w, "this is no request of a hook", http.StatusBadRequest)
			return
		}
		hooktest.JSON(f(q)).ServeHTTP(w, r)
	})
}

// reporting returns a hook of either kind that sets a status.
func reporting(f func(question) map[string]any) http.Handler {
	return answering(func(q question) any { return map[string]any{"status": f(q)} })
}

// fine returns a hook of either kind that sets the status done to "yes".
func fine() http.Handler {
	return reporting(func(question) map[string]any { return map[string]any{"done": "yes"} })
}

// calls returns the requests at a path about one parent, or about all when name is empty.
func (s *stage) calls(path, name string) []question {
	var found []question
	for _, r := range s.Requests(path) {
		var q question
		if err := json.Unmarshal(r.Body, &q); err == nil && (name == "" || q.parent().GetName() == name) {
			found = append(found, q)
		}
	}
	return found
}

// awaitCalls waits until the hook at a path was called so often about one parent, or about all when name is empty.
func (s *stage) awaitCalls(path, name string, want int) []question {
	s.T.Helper()
	var found []question
	cluster.Eventually(s.T, limit, fmt.Sprintf("%d calls of %s", want, path), func(context.Context) (bool, string) {
		found = s.calls(path, name)
		return len(found) >= want, fmt.Sprintf("%d calls", len(found))
	})
	return found
}

// settled waits until the controller has dealt with all that was written before, and returns how often the hook at a path was
// called.
func (s *stage) settled(path string) int {
	s.T.Helper()
	s.Settle()
	return len(s.Requests(path))
}

// create creates an object, with some content and the labels given.
func (s *stage) create(r schema.GroupVersionResource, namespace, name string, content map[string]any, labels map[string]string) {
	s.T.Helper()
	s.CreateIn(namespace, r, name, content, labels)
}

// awaitStatus waits until a field of a Thing's status is as wanted.
func (s *stage) awaitStatus(name, field, want string) {
	s.T.Helper()
	s.awaitStatusOf(fixture.Things, s.Namespace, name, field, want)
}

func (s *stage) awaitStatusOf(r schema.GroupVersionResource, namespace, name, field, want string) {
	s.T.Helper()
	s.In(namespace).Await(r, name, fmt.Sprintf("to have the status %s %q", field, want), func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		got, _, err := unstructured.NestedString(o.Object, "status", field)
		return err == nil && got == want
	})
}

// syncError waits for the event of a failed sync of a parent, and returns it. Its text is "Sync error: ", the prefix of the
// controller's kind, and text.
func (s *stage) syncError(name, text string) *corev1.Event {
	s.T.Helper()
	return s.AwaitEventAs(name, fmt.Sprintf("that says %q", text), func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Reason == "SyncError" && strings.HasPrefix(e.Message, "Sync error: ") &&
			strings.HasSuffix(e.Message, text)
	})
}

// calm fails the test if there is a Warning event about a parent.
func (s *stage) calm(name string) {
	s.T.Helper()
	for _, e := range s.Events(name) {
		if e.Type == corev1.EventTypeWarning {
			s.T.Errorf("there is an event %s: %s", e.Reason, e.Message)
		}
	}
}
