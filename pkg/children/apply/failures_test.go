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

package apply_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// responses are what an API server says to the requests of a method: a status code and a body.
type responses map[string]response

type response struct {
	code int
	body string
}

// failure is a response as API servers give it; name is empty when the response is not about an object.
func failure(code int, reason, name string) response {
	return response{code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"%s says the server","reason":"%s",`+
		`"details":{"name":"%s","kind":"configmaps"},"code":%d}`, reason, reason, name, code)}
}

// success is the response of an API server to a delete.
var success = response{http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`}

// nothing is the response of an API server to a path that nobody serves.
var nothing = response{http.StatusNotFound, "404 page not found\n"}

// stubborn gives the same responses to all requests and keeps them.
type stubborn struct {
	responses responses
	// then are the responses after the first GET, where they are others.
	then responses

	mu       sync.Mutex
	requests []string
}

func (s *stubborn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+string(body))
	s.mu.Unlock()
	a, ok := s.responses[r.Method]
	if later, changes := s.then[r.Method]; changes && slices.ContainsFunc(s.seen(), isGet) {
		a, ok = later, true
	}
	if !ok {
		a = response{http.StatusTeapot, ""}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	_, _ = io.WriteString(w, a.body)
}

func (s *stubborn) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func isGet(request string) bool { return strings.HasPrefix(request, http.MethodGet+" ") }

func resist(t *testing.T, a responses, options apply.Options) (*stubborn, *apply.Applier) {
	t.Helper()
	s := &stubborn{responses: a}
	return s, against(t, s, options)
}

const (
	theirs = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"x","resourceVersion":"9"}}`
	ours   = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"x","resourceVersion":"9",` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"Parent","name":"p","uid":"parent","controller":true}]}}`
)

// one returns the input for a plan of one step, to be taken by method.
func one(t *testing.T, action plan.Action) plan.Input {
	t.Helper()
	in := input(t, "parent", 0, 0)
	method := v1alpha1.ChildUpdateInPlace
	if action == plan.Recreate {
		method = v1alpha1.ChildUpdateRecreate
	}
	rule, _ := in.Rules.For(children.Key{Kind: "ConfigMap"}.GroupKind())
	rule.Method = method
	in.Rules = children.NewRules([]children.Rule{rule})
	if action != plan.Create {
		o, err := object.Parse([]byte(ours), object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in.Observed = []*object.Object{o}
	}
	if action != plan.Delete {
		var err error
		child := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
		if action == plan.Recreate {
			child["data"] = map[string]any{"k": "v"}
		}
		if in.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, in.Rules, []map[string]any{child}); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

func TestWhatAPIServersRefuse(t *testing.T) {
	exists := failure(http.StatusConflict, "AlreadyExists", "a")
	conflict := failure(http.StatusConflict, "Conflict", "a")
	gone := failure(http.StatusNotFound, "NotFound", "a")
	notServed := failure(http.StatusNotFound, "NotFound", "")
	broken := failure(http.StatusInternalServerError, "InternalError", "")
	invalid := failure(http.StatusUnprocessableEntity, "Invalid", "a")
	another := response{http.StatusOK, triedChild(`{"k":"v"}`)}
	noDryRun := failure(http.StatusBadRequest, "BadRequest", "a")
	for _, test := range []struct {
		name      string
		action    plan.Action
		responses responses
		stale     bool
		err       string
	}{
		{
			"the name belongs to an object of somebody else", plan.Create,
			responses{http.MethodPost: exists, http.MethodGet: {http.StatusOK, theirs}},
			false, "creating ConfigMap ns/a: ConfigMap ns/a exists and is not controlled by Parent p; " +
				"delete or rename one of them, or let the parent adopt it by its labels",
		},
		{
			"the child was created already", plan.Create,
			responses{http.MethodPost: exists, http.MethodGet: {http.StatusOK, ours}},
			true, "",
		},
		{
			"objects of that name come and go", plan.Create,
			responses{http.MethodPost: exists, http.MethodGet: gone},
			false, "creating ConfigMap ns/a: AlreadyExists says the server",
		},
		{
			"the object of that name cannot be read", plan.Create,
			responses{http.MethodPost: exists, http.MethodGet: broken},
			false, "creating ConfigMap ns/a: reading the object of that name: InternalError says the server",
		},
		{
			"the child is invalid", plan.Create,
			responses{http.MethodPost: invalid},
			false, "creating ConfigMap ns/a: Invalid says the server",
		},
		{
			"the kind to create is not served", plan.Create,
			responses{http.MethodPost: notServed},
			false, "creating ConfigMap ns/a: NotFound says the server",
		},
		{
			"the response to a create is no object", plan.Create,
			responses{http.MethodPost: {http.StatusCreated, `[]`}},
			false, "creating ConfigMap ns/a: reading the API server's response: parsing an object: ",
		},
		{"the child changed meanwhile", plan.Update, responses{http.MethodPut: conflict}, true, ""},
		{"the child to update went meanwhile", plan.Update, responses{http.MethodPut: gone}, true, ""},
		{
			"the kind to update is not served", plan.Update,
			responses{http.MethodPut: notServed},
			false, "updating ConfigMap ns/a: NotFound says the server",
		},
		{
			"the group to update is not served", plan.Update,
			responses{http.MethodPut: nothing},
			false, "updating ConfigMap ns/a: the server could not find the requested resource",
		},
		{
			"the group to delete from is not served", plan.Delete,
			responses{http.MethodDelete: nothing},
			false, "deleting ConfigMap ns/a: the server could not find the requested resource",
		},
		{
			"the change is not allowed", plan.Update,
			responses{http.MethodPut: invalid},
			false, "updating ConfigMap ns/a: Invalid says the server",
		},
		{"another object has the name of the one to delete", plan.Delete, responses{http.MethodDelete: conflict}, true, ""},
		{"the child to delete is gone", plan.Delete, responses{http.MethodDelete: gone}, true, ""},
		{
			"the delete fails", plan.Delete,
			responses{http.MethodDelete: broken},
			false, "deleting ConfigMap ns/a: InternalError says the server",
		},
		{"the child to replace is gone", plan.Recreate, responses{http.MethodPut: noDryRun, http.MethodPost: another, http.MethodGet: {http.StatusOK, ours}, http.MethodDelete: gone}, true, ""},
		{
			"the child cannot be replaced", plan.Recreate,
			responses{http.MethodPut: noDryRun, http.MethodPost: another, http.MethodGet: {http.StatusOK, ours}, http.MethodDelete: broken},
			false, "replacing ConfigMap ns/a: InternalError says the server",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, applier := resist(t, test.responses, apply.Options{})
			outcomes, err := carryOut(t.Context(), t, applier, one(t, test.action))
			if len(outcomes) != 1 || outcomes[0].Action != test.action || outcomes[0].Done || outcomes[0].Stale != test.stale {
				t.Errorf("outcomes %+v", outcomes)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %s", err, test.err)
			}
		})
	}
}

func TestTheOutcomeOfAWriteIsUnknownWhenTheResponseDoesNotSay(t *testing.T) {
	for name, tc := range map[string]struct {
		server http.HandlerFunc
		want   bool
	}{
		"Lost": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"BrokenOff": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"kind":`)
		}, true},
		"Unreadable":              {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[]`) }, true},
		"Failed":                  {answers(http.StatusInternalServerError, "InternalError"), true},
		"RefusedAfterFailingOnce": {failingOnce(answers(http.StatusUnprocessableEntity, "Invalid")), true},
		"Refused":                 {answers(http.StatusForbidden, "Forbidden"), false},
		"Invalid":                 {answers(http.StatusUnprocessableEntity, "Invalid"), false},
	} {
		for _, action := range []plan.Action{plan.Create, plan.Update} {
			outcomes, err := carryOut(t.Context(), t, against(t, tc.server, apply.Options{}), one(t, action))
			if err == nil || len(outcomes) != 1 || outcomes[0].Unknown != tc.want {
				t.Errorf("%s of %s: %v, outcomes %+v, want one whose outcome is unknown: %t", action, name, err, outcomes, tc.want)
			}
		}
	}
}

func TestTheOutcomeOfAStaleWriteIsUnknownWhenAnAttemptBeforeFailed(t *testing.T) {
	gone, changed := answers(http.StatusNotFound, "NotFound"), answers(http.StatusConflict, "Conflict")
	for name, tc := range map[string]struct {
		server http.HandlerFunc
		want   bool
	}{
		"Gone": {gone, false}, "GoneAfterFailingOnce": {failingOnce(gone), true},
		"Changed": {changed, false}, "ChangedAfterFailingOnce": {failingOnce(changed), true},
	} {
		for _, action := range []plan.Action{plan.Delete, plan.Update} {
			outcomes, err := carryOut(t.Context(), t, against(t, tc.server, apply.Options{}), one(t, action))
			if err != nil || len(outcomes) != 1 || !outcomes[0].Stale || outcomes[0].Unknown != tc.want {
				t.Errorf("%s of %s: %v, outcomes %+v, want a stale one whose outcome is unknown: %t", action, name, err, outcomes, tc.want)
			}
		}
	}
}

// answers refuses every request.
func answers(code int, reason string) http.HandlerFunc {
	a := failure(code, reason, "a")
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.code)
		_, _ = io.WriteString(w, a.body)
	}
}

// failingOnce fails at the first of two requests, and wants it to be sent again at once.
func failingOnce(then http.HandlerFunc) http.HandlerFunc {
	var requests atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%2 == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		then(w, r)
	}
}

func TestAChildIsCreatedWhenWhatWasInItsWayHasJustGone(t *testing.T) {
	server, applier := resist(t, responses{
		http.MethodPost: failure(http.StatusConflict, "AlreadyExists", "a"),
		http.MethodGet:  failure(http.StatusNotFound, "NotFound", "a"),
	}, apply.Options{})
	server.then = responses{http.MethodPost: {http.StatusCreated, ours}}
	outcomes, err := carryOut(t.Context(), t, applier, one(t, plan.Create))
	if err != nil || len(outcomes) != 1 || !outcomes[0].Done || outcomes[0].Written == nil {
		t.Errorf("outcomes %+v, error %v", outcomes, err)
	}
	if len(server.requests) != 3 {
		t.Errorf("requests %q", server.requests)
	}
}

func TestDeletesNameTheObjectThatWasObserved(t *testing.T) {
	server, applier := resist(t, responses{http.MethodDelete: success}, apply.Options{})
	outcomes, err := carryOut(t.Context(), t, applier, one(t, plan.Delete))
	if err != nil || len(outcomes) != 1 || !outcomes[0].Done {
		t.Errorf("outcomes %+v, error %v", outcomes, err)
	}
	want := []string{`DELETE /api/v1/namespaces/ns/configmaps/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x","resourceVersion":"9"},` +
		`"propagationPolicy":"Background"}`}
	if !slices.Equal(server.requests, want) {
		t.Errorf("requests %q, want %q", server.requests, want)
	}
}

func TestUpdatesNameTheVersionThatWasObserved(t *testing.T) {
	server, applier := resist(t, responses{http.MethodPut: {http.StatusOK, strings.Replace(ours, `"9"`, `"10"`, 1)}}, apply.Options{})
	outcomes, err := carryOut(t.Context(), t, applier, one(t, plan.Update))
	if err != nil || len(outcomes) != 1 || !outcomes[0].Done || outcomes[0].Written.ResourceVersion() != "10" {
		t.Errorf("outcomes %+v, error %v", outcomes, err)
	}
	if len(server.requests) != 1 || !strings.HasPrefix(server.requests[0], "PUT /api/v1/namespaces/ns/configmaps/a {") ||
		!strings.Contains(server.requests[0], `"resourceVersion":"9"`) || !strings.Contains(server.requests[0], `"uid":"x"`) {
		t.Errorf("requests %q", server.requests)
	}
}

func TestChildrenAreReadInOtherVersions(t *testing.T) {
	rule, _ := input(t, "parent", 0, 0).Rules.For(children.Key{Kind: "ConfigMap"}.GroupKind())
	key := children.Key{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	for _, test := range []struct {
		name     string
		response response
		found    bool
		err      string
	}{
		{"an object", response{http.StatusOK, ours}, true, ""},
		{"an object that is gone", failure(http.StatusNotFound, "NotFound", "a"), false, ""},
		{"a version that is not served", failure(http.StatusNotFound, "NotFound", ""), false, "NotFound says the server"},
		{"a group that is not served", nothing, false, "the server could not find the requested resource"},
		{"a server that fails", failure(http.StatusInternalServerError, "InternalError", ""), false, "InternalError says the server"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, applier := resist(t, responses{http.MethodGet: test.response}, apply.Options{})
			read := applier.Read(t.Context(), []plan.Step{{Key: key, Resource: rule.Resource}})[key]
			if (read.Object != nil) != test.found {
				t.Errorf("object %v", read.Object)
			}
			if err := read.Err; (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %s", err, test.err)
			}
		})
	}
}

func TestAVersionThatIsNotServedIsNotReadForEachChild(t *testing.T) {
	rule, _ := input(t, "parent", 0, 0).Rules.For(children.Key{Kind: "ConfigMap"}.GroupKind())
	server, applier := resist(t, responses{http.MethodGet: failure(http.StatusNotFound, "NotFound", "")}, apply.Options{WritesPerParent: 2})
	versions := make([]plan.Step, 100)
	for i := range versions {
		versions[i] = plan.Step{Key: children.Key{Kind: "ConfigMap", Namespace: "ns", Name: strconv.Itoa(i)}, Resource: rule.Resource}
	}
	read := applier.Read(t.Context(), versions)
	for _, v := range versions {
		if err := read[v.Key].Err; err == nil || !strings.HasPrefix(err.Error(), "NotFound says the server") {
			t.Errorf("of %s: %v", v.Key, err)
		}
	}
	if len(server.requests) != 1 {
		t.Errorf("%d requests", len(server.requests))
	}
}

// A webhook changed an immutable field at the creation, and another client a mutable one before a restart. What the API server
// refuses must not hide the other.
func TestReviewInvalidHidesDrift(t *testing.T) {
	for _, method := range []v1alpha1.ChildUpdateMethod{v1alpha1.ChildUpdateInPlace, v1alpha1.ChildUpdateRecreate} {
		t.Run(string(method), func(t *testing.T) {
			var writes []string
			in := pod(t, method)
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodGet:
					_, _ = w.Write(in.Observed[0].JSON())
				case r.Method == http.MethodDelete:
					writes = append(writes, r.Method)
					_, _ = io.WriteString(w, success.body)
				case strings.Contains(string(body), `"priority":"low"},`) || strings.Contains(string(body), `"priority":"low"}}`):
					refused := failure(http.StatusUnprocessableEntity, "Invalid", "a")
					w.WriteHeader(refused.code)
					_, _ = io.WriteString(w, refused.body)
				default:
					if r.URL.Query().Get("dryRun") == "" {
						writes = append(writes, r.Method+" "+string(body))
					}
					_, _ = w.Write(body)
				}
			}), apply.Options{})
			outcomes, err := carryOut(t.Context(), t, applier, in)
			if err != nil || len(outcomes) != 1 || pathsOf(outcomes[0].Changed) != "spec.image" {
				t.Fatalf("outcomes %+v, error %v", outcomes, err)
			}
			if len(writes) != 1 || method == v1alpha1.ChildUpdateInPlace && !strings.Contains(writes[0], `"spec":{"image":"good","priority":"high"}`) {
				t.Errorf("writes %q", writes)
			}
		})
	}
}

// pod returns a Pod that was applied with the image good and the priority low, and has others.
func pod(t *testing.T, method v1alpha1.ChildUpdateMethod) plan.Input {
	t.Helper()
	in := input(t, "parent", 0, 0)
	in.Rules = children.NewRules([]children.Rule{{
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespaced: true, Method: method,
	}})
	content := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "ns"},
		"spec": map[string]any{"image": "good", "priority": "low"},
	}
	text, err := merge.Encode(content)
	if err != nil {
		t.Fatal(err)
	}
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns","uid":"u",
		"resourceVersion":"5","annotations":{%q:%q}},"spec":{"image":"evil","priority":"high"}}`, merge.Annotation, text), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in.Observed = []*object.Object{o}
	if in.Desired, _, err = children.Validate(children.Scope{Namespace: "ns"}, in.Rules, []map[string]any{content}); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestAPanicInAWriteIsAnError(t *testing.T) {
	ended := tracetest.NewSpanRecorder()
	ctx, span := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))).Sync(t.Context(), tracing.Sync{})
	_, applier := resist(t, responses{http.MethodPost: {http.StatusCreated, ours}}, apply.Options{})
	in := input(t, "p", 1, 1)
	p, err := plan.Make(in)
	if err != nil {
		t.Fatal(err)
	}
	// No plan has such a step.
	p.Steps[0].Observed = nil
	outcomes, err := applier.Apply(ctx, p)
	span.End(nil)
	if found, ok := errors.AsType[*recovery.PanicError](err); !ok || !strings.Contains(found.What, "Parent p") {
		t.Errorf("error %v", err)
	}
	if len(outcomes) != 2 || outcomes[0].Done || !outcomes[1].Done {
		t.Errorf("outcomes %+v", outcomes)
	}
	broken := 0
	for _, s := range ended.Ended() {
		if s.Name() == tracing.SpanWrite && s.Status().Code == codes.Error {
			broken++
		}
	}
	if broken != 1 {
		t.Errorf("%d spans of writes have an error, want that of the panic: %v", broken, tracetest.SpanStubsFromReadOnlySpans(ended.Ended()))
	}
}
