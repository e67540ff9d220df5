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

package reconciler

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

const (
	theParent = `{"apiVersion":"example.com/v1","kind":"P","metadata":{"name":"p","namespace":"ns","uid":"p","resourceVersion":"1"}}`
	theChild  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"5",
		"ownerReferences":[{"apiVersion":"example.com/v1","kind":"P","name":"p","uid":"p","controller":true}]},"data":{"k":"old"}}`
)

func status(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"details":{"name":"a"}}`, reason, code)
}

// api answers each method with a code and a body, and keeps the requests that write.
type api struct {
	answers map[string]string
	writes  []string
	// reads counts the requests that read objects.
	reads int
	// warning goes with every answer to a write, if it is not empty.
	warning string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/openapi/") {
		a.reads++
	}
	if r.Method != http.MethodGet {
		a.writes = append(a.writes, r.Method+" "+r.URL.RawQuery+" "+string(body))
		if a.warning != "" {
			w.Header().Set("Warning", `299 - "`+a.warning+`"`)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	answer, ok := a.answers[r.Method]
	if !ok || strings.HasPrefix(r.URL.Path, "/openapi/") {
		answer = status(http.StatusNotFound, "NotFound")
	}
	for code := range map[int]bool{http.StatusNotFound: true, http.StatusConflict: true} {
		if strings.Contains(answer, fmt.Sprintf(`"code":%d`, code)) {
			w.WriteHeader(code)
		}
	}
	_, _ = io.WriteString(w, answer)
}

// eventLog keeps events.
type eventLog struct{ events []string }

func (l *eventLog) Warning(_, _ *corev1.ObjectReference, reason, message string) {
	l.events = append(l.events, reason+": "+message)
}

func (l *eventLog) Normal(_, _ *corev1.ObjectReference, reason, message string) {
	l.events = append(l.events, reason+": "+message)
}

func (l *eventLog) NormalAlways(*corev1.ObjectReference, string, string) {}

// selecting is a Kind that selects children as a test says, and does nothing else.
type selecting struct {
	Kind

	mine *bool
}

func (s selecting) Owns(*object.Object) bool { return *s.mine }

func (s selecting) Selects(_, _ *object.Object) bool { return *s.mine }

// control is a Controller of ConfigMaps against an API server that answers as given, and one of its parents.
type control struct {
	*Controller

	events   eventLog
	mine     bool
	parent   *object.Object
	record   *record
	informer *cache.Informer
}

func (c *control) forget() { c.record = &record{} }

// sync returns a sync of the parent.
func (c *control) sync() *Sync {
	s := &Sync{
		Key: parent.Key{Namespace: "ns", Name: "p"}, Parent: c.parent, controller: c.Controller, record: c.record,
		fingerprint: plan.FingerprintOf([]byte("[]"), ""),
	}
	s.Writer = acting{s}
	return s
}

func newControl(t *testing.T, a *api) *control {
	t.Helper()
	return newControlOf(t, a, v1alpha1.ChildUpdateInPlace)
}

func newControlOf(t testing.TB, a *api, method v1alpha1.ChildUpdateMethod) *control {
	t.Helper()
	return newControlBy(t, a, children.Rule{Method: method})
}

// newControlBy returns a Control whose rule for ConfigMaps has the given strategy.
func newControlBy(t testing.TB, a *api, rule children.Rule) *control {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	window, err := cluster.New(cluster.Options{Config: &rest.Config{Host: server.URL, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	rule.Kind, rule.Resource, rule.Namespaced = kind, kind.GroupVersion().WithResource("configmaps"), true
	c := &control{parent: parse(t, theParent), informer: window.Cache.Acquire(cache.Query{Resource: rule.Resource})}
	c.forget()
	rules := []children.Rule{rule}
	c.Controller = &Controller{
		config:  Config{Kind: selecting{mine: &c.mine}, Resolver: Resolver{Children: rules}, Definition: Definition{Meta: &metav1.ObjectMeta{Name: "x"}}},
		shared:  &Shared{Cluster: window, Applier: apply.New(apply.Options{Client: window.Client})},
		watched: []*cache.Informer{c.informer}, rules: children.NewRules(rules), manager: "metacontroller/x", recorder: &c.events,
		expectations: expectations.New(func(parent.Key) {}, nil),
	}
	t.Cleanup(c.expectations.Observe(c.informer))
	return c
}

func parse(t testing.TB, text string) *object.Object {
	t.Helper()
	o, err := object.Parse([]byte(text), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// reconcile syncs the parent with one desired child.
func (c *control) reconcile(t *testing.T, observed ...*object.Object) (time.Duration, error) {
	t.Helper()
	return c.reconcileTo(t, "v", observed...)
}

// reconcileTo syncs the parent with one desired child, which has a value.
func (c *control) reconcileTo(t *testing.T, value string, observed ...*object.Object) (time.Duration, error) {
	t.Helper()
	return c.reconcileWith(t, map[string]any{"data": map[string]any{"k": value}}, observed...)
}

// reconcileWith syncs the parent with one desired child, which has the given fields.
func (c *control) reconcileWith(t *testing.T, fields map[string]any, observed ...*object.Object) (time.Duration, error) {
	t.Helper()
	content := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "ns"}}
	maps.Copy(content, fields)
	desired := []children.Desired{{Key: children.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}, APIVersion: "v1", Content: content}}
	sync := c.sync()
	in, err := sync.gather(t.Context(), observed, desired, false)
	if err != nil {
		t.Fatal(err)
	}
	err = sync.reconcile(t.Context(), in)
	return sync.result.again, err
}

// An attachment whose marker was removed, or a child of another controller of the same parent, has the name of a child.
func TestAnObstacleOfTheSameParent(t *testing.T) {
	for _, mine := range []bool{true, false} {
		t.Run(fmt.Sprintf("mine %t", mine), func(t *testing.T) {
			c := newControl(t, &api{answers: map[string]string{
				http.MethodPost: status(http.StatusConflict, "AlreadyExists"), http.MethodGet: theChild,
			}})
			c.mine = mine
			again, err := c.reconcile(t)
			conflict, ok := errors.AsType[*apply.ConflictError](err)
			if ok == mine || ok && !strings.Contains(conflict.Error(), "ConfigMap ns/a exists and belongs to P ns/p") {
				t.Errorf("error %v", err)
			}
			if got := c.counted.conflicts.Load(); (got == 1) == mine {
				t.Errorf("%d conflicts are counted", got)
			}
			if (again == time.Second) != mine {
				t.Errorf("synced again after %v", again)
			}
		})
	}
}

func TestAParentIsSyncedAgainWhenAWriteComesTooLate(t *testing.T) {
	c := newControl(t, &api{answers: map[string]string{http.MethodPut: status(http.StatusConflict, "Conflict")}})
	again, err := c.reconcile(t, parse(t, theChild))
	if err != nil || again != time.Second {
		t.Errorf("synced again after %v, error %v", again, err)
	}
	if expects := c.expectations.Expects(c.sync().Key); expects || len(c.events.events) > 0 {
		t.Errorf("a write is expected: %t, events %q", expects, c.events.events)
	}
}

// A quota or a webhook may refuse a write with a conflict for ever, and no event comes then.
func TestAConflictThatDoesNotEndIsAnError(t *testing.T) {
	a := &api{answers: map[string]string{http.MethodPut: status(http.StatusConflict, "Conflict")}}
	c := newControl(t, a)
	for i := range 7 {
		if again, err := c.reconcile(t, parse(t, theChild)); err != nil || again != min(time.Second<<i, time.Minute) {
			t.Errorf("sync %d: synced again after %v, error %v", i+1, again, err)
		}
	}
	_, err := c.reconcile(t, parse(t, theChild))
	if stale, ok := errors.AsType[*StaleError](err); !ok || !apierrors.IsConflict(err) || stale.FailureReason() != "Conflict" ||
		!strings.HasPrefix(err.Error(), "ConfigMap ns/a was not as observed") {
		t.Errorf("error %v", err)
	}
	// A sync without a conflict ends the row.
	a.answers[http.MethodPut] = strings.NewReplacer(`"old"`, `"v"`, `"5"`, `"6"`).Replace(theChild)
	if again, err := c.reconcile(t, parse(t, theChild)); err != nil || again != 0 {
		t.Errorf("synced again after %v, error %v", again, err)
	}
	a.answers[http.MethodPut] = status(http.StatusConflict, "Conflict")
	if again, err := c.reconcile(t, parse(t, theChild)); err != nil || again != time.Second {
		t.Errorf("synced again after %v, error %v", again, err)
	}
}

func TestAWriteIsExpectedRecordedAndReported(t *testing.T) {
	written := strings.NewReplacer(`"old"`, `"v"`, `"5"`, `"6"`).Replace(theChild)
	a := &api{answers: map[string]string{http.MethodPut: written}}
	c := newControl(t, a)
	if again, err := c.reconcile(t, parse(t, theChild)); err != nil || again != 0 {
		t.Fatalf("again %v, error %v", again, err)
	}
	if expects := c.expectations.Expects(c.sync().Key); !expects || len(c.events.events) != 1 ||
		c.events.events[0] != "ChildUpdated: Updated ConfigMap ns/a (data.k)" {
		t.Errorf("a write is expected: %t, events %q", expects, c.events.events)
	}
	observed := parse(t, written)
	if !c.record.children.settled(plan.FingerprintOf([]byte("[]"), ""), []*object.Object{observed}) {
		t.Error("it is not settled")
	}
	if _, err := c.reconcile(t, observed); err != nil || len(a.writes) != 1 {
		t.Errorf("writes %q, error %v", a.writes, err)
	}
	if records, more := c.record.children.sizes(); records != 1 || more {
		t.Errorf("there are %d records, and more %t", records, more)
	}
}

func TestAChildThatIsNotDesiredIsExpectedToGo(t *testing.T) {
	a := &api{answers: map[string]string{http.MethodDelete: `{"kind":"Status","apiVersion":"v1","status":"Success"}`}}
	c := newControl(t, a)
	if err := c.informer.Replace([]any{parse(t, theChild)}, "5"); err != nil {
		t.Fatal(err)
	}
	sync := c.sync()
	in, err := sync.gather(t.Context(), []*object.Object{parse(t, theChild)}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	err = sync.reconcile(t.Context(), in)
	if _, shown := c.informer.Get("ns", "a"); err != nil || shown && !c.expectations.Expects(sync.Key) {
		t.Errorf("it is shown, and nobody waits for its deletion; error %v", err)
	}
}

// TestARollingUpdateReadsAChildInAnotherVersionOnce has syncs of a rolling update ask whether the latest revision, which returns the child in another
// version, would change it, and leave it as it is: it is not its turn.
func TestARollingUpdateReadsAChildInAnotherVersionOnce(t *testing.T) {
	inVersion := func(apiVersion, resourceVersion string) string {
		text := strings.Replace(theChild, `"resourceVersion":"5"`, fmt.Sprintf(`"resourceVersion":%q`, resourceVersion), 1)
		return strings.Replace(text, `"apiVersion":"v1","kind":"ConfigMap"`, fmt.Sprintf(`"apiVersion":%q,"kind":"ConfigMap"`, apiVersion), 1)
	}
	key := children.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	desired := func(apiVersion, value string) []children.Desired {
		return []children.Desired{{Key: key, APIVersion: apiVersion, Content: map[string]any{
			"apiVersion": apiVersion, "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "ns"}, "data": map[string]any{"k": value},
		}}}
	}
	a := &api{answers: map[string]string{}}
	c := newControl(t, a)
	c.mine = true
	for _, step := range []struct {
		what string
		// version of the child, and the value that the latest revision wants.
		version, value string
		syncs, reads   int
		unchanged      bool
	}{
		{"it differs", "5", "new", 5, 1, false},
		{"another revision is the latest", "5", "newer", 5, 1, false},
		{"the child has changed", "6", "newer", 5, 1, false},
		{"the latest revision would not change it", "6", "old", 1, 1, true},
	} {
		a.reads = 0
		a.answers[http.MethodGet] = inVersion("v2", step.version)
		a.answers[http.MethodPut] = inVersion("v1", step.version) // Our own record may be written.
		observed := []*object.Object{parse(t, inVersion("v1", step.version))}
		for range step.syncs {
			latest := desired("v2", step.value)
			sync := c.sync()
			sync.fingerprint = 0
			in, err := sync.gather(t.Context(), observed, latest, true)
			if err != nil {
				t.Fatal(err)
			}
			if unchanged := in.Unchanged(latest[0], observed[0]); unchanged != step.unchanged {
				t.Errorf("%s: unchanged %t", step.what, unchanged)
			}
			in.Desired, in.Comparing = desired("v1", "old"), false
			if in, err = c.complete(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			if err := sync.reconcile(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		if a.reads != step.reads {
			t.Errorf("%s: %d syncs read the child %d times, want %d", step.what, step.syncs, a.reads, step.reads)
		}
	}
}
