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
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// triedChild returns a child with data that differ from what is desired and was applied, which is v.
func triedChild(data string) string {
	const applied = `"annotations":{"metacontroller.k8s.io/last-applied-configuration":` +
		`"{\"apiVersion\":\"v1\",\"data\":{\"k\":\"v\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\"}}"}`
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns","uid":"x","resourceVersion":"9",` + applied +
		`},"data":` + data + `}`
}

// invalidAt is a response that refuses an object as invalid for a field.
func invalidAt(field string) response {
	return response{http.StatusUnprocessableEntity, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"no",` +
		`"details":{"causes":[{"reason":"FieldValueInvalid","message":"Invalid value","field":"` + field + `"}]}}`}
}

func TestAChildIsTriedBeforeItIsDeleted(t *testing.T) {
	observed := triedChild(`{"k":"V"}`)
	for _, test := range []struct {
		name string
		// response is that to an update, fresh that to a creation, and stored that to a read, by default the child as it was observed.
		response, fresh, stored response
		deletes                 bool
		reason                  plan.Reason
		err                     string
	}{
		{name: "it would stay as it is", response: response{http.StatusOK, observed}, reason: plan.Same},
		{
			name: "our record alone would change", response: response{http.StatusOK, strings.Replace(observed, `\"k\":`, `\"K\":`, 1)},
			reason: plan.Same,
		},
		{
			name: "it would change", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: response{http.StatusOK, triedChild(`{"k":"v"}`)}, deletes: true,
		},
		{
			name: "it would change, and a new one is invalid", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: failure(http.StatusUnprocessableEntity, "Invalid", "a"), deletes: true,
		},
		{
			name: "a new one would be as it is", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: response{http.StatusOK, observed}, reason: plan.Same,
		},
		{
			name: "it is stored as it is wanted, and was observed in another form", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: response{http.StatusOK, triedChild(`{"k":"v"}`)}, stored: response{http.StatusOK, triedChild(`{"k":"v"}`)}, reason: plan.Same,
		},
		{
			name: "it changed before it is deleted", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: response{http.StatusOK, triedChild(`{"k":"v"}`)}, stored: response{http.StatusOK, strings.Replace(observed, `"9"`, `"10"`, 1)},
			reason: plan.Stale,
		},
		{
			name: "it goes before it is deleted", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: response{http.StatusOK, triedChild(`{"k":"v"}`)}, stored: failure(http.StatusNotFound, "NotFound", "a"), reason: plan.Stale,
		},
		{
			name: "it cannot be read", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: response{http.StatusOK, triedChild(`{"k":"v"}`)}, stored: failure(http.StatusUnauthorized, "Unauthorized", "a"),
			err: "ConfigMap ns/a: trying whether a write would change it: Unauthorized says the server",
		},
		{name: "the update is invalid", response: failure(http.StatusUnprocessableEntity, "Invalid", "a"), reason: plan.Same},
		{
			name: "the update is forbidden", response: failure(http.StatusForbidden, "Forbidden", "a"),
			fresh: failure(http.StatusForbidden, "Forbidden", "a"), reason: plan.Untried,
		},
		{
			name: "a webhook knows no dry run", response: failure(http.StatusBadRequest, "BadRequest", "a"),
			fresh: failure(http.StatusBadRequest, "BadRequest", "a"), reason: plan.Untried,
		},
		{
			name: "the kind has no update", response: failure(http.StatusMethodNotAllowed, "MethodNotAllowed", "a"),
			fresh: failure(http.StatusMethodNotAllowed, "MethodNotAllowed", "a"), reason: plan.Untried,
		},
		{
			name: "an update cannot be tried, and a new one would be as it is", response: failure(http.StatusForbidden, "Forbidden", "a"),
			fresh: response{http.StatusOK, observed}, reason: plan.Same,
		},
		{
			name: "an update cannot be tried, and a new one would be another", response: failure(http.StatusForbidden, "Forbidden", "a"),
			fresh: response{http.StatusOK, triedChild(`{"k":"v"}`)}, deletes: true,
		},
		{
			name: "an update cannot be tried, and a new one is invalid", response: failure(http.StatusForbidden, "Forbidden", "a"),
			fresh: failure(http.StatusUnprocessableEntity, "Invalid", "a"), reason: plan.Untried,
		},
		{
			name: "it would change, and a new one may not have another name", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: invalidAt("metadata.name"), reason: plan.Untried,
		},
		{
			name: "it would change, and a new one is invalid as a whole", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: invalidAt("<nil>"), reason: plan.Untried,
		},
		{
			name: "it would change, and a new one is invalid for its data", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: invalidAt("data"), deletes: true,
		},
		{
			name: "a creation is forbidden", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: failure(http.StatusForbidden, "Forbidden", "a"), reason: plan.Untried,
		},
		{
			name: "the credentials are not valid", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: failure(http.StatusUnauthorized, "Unauthorized", "a"),
			err:   "ConfigMap ns/a: trying whether a write would change it: Unauthorized says the server",
		},
		{
			name: "the creation has a conflict", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: failure(http.StatusConflict, "Conflict", "a"),
			err:   "ConfigMap ns/a: trying whether a write would change it: Conflict says the server",
		},
		{
			name: "there are too many requests", response: response{http.StatusOK, triedChild(`{"k":"v"}`)},
			fresh: failure(http.StatusTooManyRequests, "TooManyRequests", "a"),
			err:   "ConfigMap ns/a: trying whether a write would change it: TooManyRequests says the server",
		},
		{name: "it changed meanwhile", response: failure(http.StatusConflict, "Conflict", "a"), reason: plan.Stale},
		{name: "it went meanwhile", response: failure(http.StatusNotFound, "NotFound", "a"), reason: plan.Stale},
		{
			name: "the API server fails", response: failure(http.StatusInternalServerError, "InternalError", "a"),
			err: "ConfigMap ns/a: trying whether a write would change it: InternalError says the server",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.stored == (response{}) {
				test.stored = response{http.StatusOK, observed}
			}
			server, applier := resist(t, responses{
				http.MethodPut: test.response, http.MethodPost: test.fresh, http.MethodGet: test.stored, http.MethodDelete: success,
			}, apply.Options{})
			in := one(t, plan.Recreate)
			var err error
			if in.Observed[0], err = object.Parse([]byte(observed), object.ParseOptions{}); err != nil {
				t.Fatal(err)
			}
			outcomes, err := carryOut(t.Context(), t, applier, in)
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("error %v, want %s", err, test.err)
			}
			requests := server.seen()
			if !strings.HasPrefix(requests[0], http.MethodPut) || !strings.Contains(requests[0], `"data":{"k":"v"}`) {
				t.Errorf("tries with %s", requests[0])
			}
			deleted := strings.HasPrefix(requests[len(requests)-1], http.MethodDelete)
			if (len(outcomes) == 1 && outcomes[0].Done) != test.deletes || deleted != test.deletes {
				t.Errorf("outcomes %+v, requests %q", outcomes, requests)
			}
			if test.reason == "" {
				return
			}
			in.Schemas = map[schema.GroupVersionKind]merge.Schema{{Version: "v1", Kind: "ConfigMap"}: nil}
			in.Trials = applier.Try(t.Context(), in)
			if p, err := plan.Make(in); err != nil || p.Steps[0].Reason != test.reason {
				t.Errorf("%s, error %v, want %s", printed(p), err, test.reason)
			}
		})
	}
}

// TestAChildThatIsServedInTwoFormsIsNotDeleted has the definition of a kind change while it is asked about a child that would be deleted: the same
// version of it is served with a field and without.
func TestAChildThatIsServedInTwoFormsIsNotDeleted(t *testing.T) {
	with, without := triedChild(`{"k":"v"}`), triedChild(`{}`)
	for _, test := range []struct {
		name string
		// before and after are what is served before and after a creation is tried.
		before, after string
		reason        plan.Reason
		deletes       bool
	}{
		{name: "the field is not declared any more", before: with, after: without, reason: plan.Stale},
		{name: "the field is declared again", before: without, after: with, reason: plan.Same},
		{name: "the field was taken off", before: without, after: without, deletes: true},
		{name: "the field was never taken off", before: with, after: with, reason: plan.Same},
		{name: "it changed in between", before: with, after: strings.Replace(without, `"9"`, `"10"`, 1), reason: plan.Stale},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tried, deleted atomic.Bool
			applier := against(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := with
				switch {
				case r.Method == http.MethodPost:
					tried.Store(true)
				case r.Method == http.MethodGet && tried.Load():
					body = test.after
				case r.Method == http.MethodGet:
					body = test.before
				case r.Method == http.MethodDelete:
					deleted.Store(true)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			}), apply.Options{})
			in := one(t, plan.Recreate)
			var err error
			if in.Observed[0], err = object.Parse([]byte(without), object.ParseOptions{}); err != nil {
				t.Fatal(err)
			}
			in.Schemas = map[schema.GroupVersionKind]merge.Schema{{Version: "v1", Kind: "ConfigMap"}: nil}
			in.Trials = applier.Try(t.Context(), in)
			p, err := plan.Make(in)
			if err != nil || p.Steps[0].Reason != test.reason {
				t.Errorf("%s, error %v, want %s", printed(p), err, test.reason)
			}
			if _, err := applier.Apply(t.Context(), p); err != nil || deleted.Load() != test.deletes {
				t.Errorf("deleted: %t, error %v", deleted.Load(), err)
			}
		})
	}
}

// TestAPlanThatInsistsDeletesAChildThatChanges has a child that others change all the time.
func TestAPlanThatInsistsDeletesAChildThatChanges(t *testing.T) {
	now := strings.Replace(ours, `"9"`, `"10"`, 1)
	conflict := failure(http.StatusConflict, "Conflict", "a")
	for name, tc := range map[string]struct {
		reason  string
		insists bool
		child   string
		after   response
		// deletions is how many are tried.
		deletions int
		done      bool
	}{
		"NotAtFirst":      {"What changed is looked at first.", false, now, success, 1, false},
		"ItIsReadAgain":   {"It is the parent's still.", true, now, success, 2, true},
		"ItWasOrphaned":   {"It is somebody else's.", true, strings.Replace(theirs, `"9"`, `"10"`, 1), success, 1, false},
		"ItWasReplaced":   {"It is another object.", true, strings.Replace(now, `"uid":"x"`, `"uid":"y"`, 1), success, 1, false},
		"ItWasLabeled":    {"The parent may not select it any more.", true, strings.Replace(now, `"uid":"x"`, `"uid":"x","labels":{"l":"m"}`, 1), success, 1, false},
		"ItIsMarked":      {"It is a decorator's now.", true, strings.Replace(now, `"uid":"x"`, `"uid":"x","annotations":{"metacontroller.k8s.io/decorator-controller":"d"}`, 1), success, 1, false},
		"ItIsInDeletion":  {"It goes already.", true, strings.Replace(now, `"uid":"x"`, `"uid":"x","deletionTimestamp":"2026-01-01T00:00:00Z"`, 1), success, 1, false},
		"AQuotaRefusesIt": {"A conflict that has another cause does not end.", true, now, conflict, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			server, applier := resist(t, responses{http.MethodDelete: conflict, http.MethodGet: {http.StatusOK, tc.child}}, apply.Options{})
			server.then = responses{http.MethodDelete: tc.after}
			p, err := plan.Make(one(t, plan.Delete))
			if err != nil {
				t.Fatal(err)
			}
			p.Insists = tc.insists
			outcomes, err := applier.Apply(t.Context(), p)
			if err != nil || len(outcomes) != 1 || outcomes[0].Done != tc.done || outcomes[0].Stale == tc.done {
				t.Errorf("outcomes %+v, error %v. %s", outcomes, err, tc.reason)
			}
			deletions := slices.DeleteFunc(server.seen(), isGet)
			if len(deletions) != tc.deletions || tc.done && !strings.Contains(deletions[1], `"resourceVersion":"10"`) {
				t.Errorf("deletions %q. %s", deletions, tc.reason)
			}
		})
	}
}

// TestAPlanThatInsistsMergesOverWhatIsThere has a child that another client changed since it was observed.
func TestAPlanThatInsistsMergesOverWhatIsThere(t *testing.T) {
	now := strings.Replace(ours, `"9"`, `"10"`, 1)
	now = strings.TrimSuffix(now, "}") + `,"data":{"theirs":"1"}}`
	conflict := failure(http.StatusConflict, "Conflict", "a")
	for name, tc := range map[string]struct {
		reason  string
		insists bool
		child   string
		// updates is how many are tried.
		updates int
		done    bool
	}{
		"NotAtFirst":    {"What changed is looked at first.", false, now, 1, false},
		"ItIsReadAgain": {"It is the parent's still.", true, now, 2, true},
		"ItWasReleased": {"It is somebody else's.", true, strings.Replace(theirs, `"9"`, `"10"`, 1), 1, false},
		"ItWasReplaced": {"It is another object.", true, strings.Replace(now, `"uid":"x"`, `"uid":"y"`, 1), 1, false},
		"ItWasLabeled":  {"The parent may not select it any more.", true, strings.Replace(now, `"uid":"x"`, `"uid":"x","labels":{"l":"m"}`, 1), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			server, applier := resist(t, responses{http.MethodPut: conflict, http.MethodGet: {http.StatusOK, tc.child}}, apply.Options{})
			server.then = responses{http.MethodPut: {http.StatusOK, strings.Replace(now, `"10"`, `"11"`, 1)}}
			in := one(t, plan.Update)
			in.Insists = tc.insists
			p, err := plan.Make(in)
			if err != nil {
				t.Fatal(err)
			}
			outcomes, err := applier.Apply(t.Context(), p)
			if err != nil || len(outcomes) != 1 || outcomes[0].Done != tc.done || outcomes[0].Stale == tc.done {
				t.Errorf("outcomes %+v, error %v. %s", outcomes, err, tc.reason)
			}
			updates := slices.DeleteFunc(server.seen(), isGet)
			if len(updates) != tc.updates {
				t.Errorf("updates %q. %s", updates, tc.reason)
			}
			if last := updates[len(updates)-1]; tc.done && (!strings.Contains(last, `"resourceVersion":"10"`) || !strings.Contains(last, `"theirs":"1"`)) {
				t.Errorf("the last update is %s. %s", last, tc.reason)
			}
		})
	}
}

// namespaces is an API server that takes objects into the namespaces that are there alone.
type namespaces struct {
	mu      sync.Mutex
	created sets.Set[string]
	// refused are the paths of requests for other namespaces, dryRuns those of dry runs.
	refused, dryRuns []string
}

// ServeHTTP implements http.Handler.
func (n *namespaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	segments := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	n.mu.Lock()
	defer n.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Has("dryRun") {
		n.dryRuns = append(n.dryRuns, r.URL.Path)
		if len(segments) > 1 {
			w.Header().Set("Warning", `299 - "unknown field \"date\""`)
		}
	}
	switch {
	case len(segments) == 1: // A Namespace, which takes longer than the rest.
		<-time.After(10 * time.Millisecond)
		n.created.Insert("new")
	case !n.created.Has(segments[1]):
		n.refused = append(n.refused, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"namespaces %q not found","code":404}`, segments[1])
		return
	}
	_, _ = io.WriteString(w, strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"u","resourceVersion":"1",`, 1))
}

// inNewNamespace is a parent without namespace whose hook returns a namespace and what is in it, last of all the namespace.
func inNewNamespace(t *testing.T) plan.Input {
	t.Helper()
	kind := func(kind, resource string, namespaced bool) children.Rule {
		return children.Rule{
			Kind:     schema.GroupVersionKind{Version: "v1", Kind: kind},
			Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespaced: namespaced,
		}
	}
	rules := children.NewRules([]children.Rule{kind("ConfigMap", "configmaps", true), kind("Namespace", "namespaces", false)})
	child := func(kind, namespace, name string) map[string]any {
		metadata := map[string]any{"name": name}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": metadata}
	}
	in := plan.Input{Parent: "p", ParentName: "Parent p", Owner: map[string]any{"uid": "p"}, Rules: rules, Now: time.Now(), Schemas: map[schema.GroupVersionKind]merge.Schema{}}
	var err error
	in.Desired, _, err = children.Validate(children.Scope{}, rules, []map[string]any{
		child("ConfigMap", "new", "a"), child("ConfigMap", "new", "b"), child("ConfigMap", "default", "c"), child("Namespace", "", "new"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestNamespacesAreWrittenBeforeWhatIsInThem(t *testing.T) {
	server := &namespaces{created: sets.New("default")}
	outcomes, err := carryOut(t.Context(), t, against(t, server, apply.Options{}), inNewNamespace(t))
	if err != nil || len(outcomes) != 4 || len(server.refused) > 0 {
		t.Errorf("%d outcomes, error %v; refused were %q", len(outcomes), err, server.refused)
	}
}

// TestDryRuns asks for dry runs, in which no namespace is created: what is in a new one is not tried. What the API server warns of is said.
func TestDryRuns(t *testing.T) {
	server := &namespaces{created: sets.New("default")}
	p, err := plan.Make(inNewNamespace(t))
	if err != nil {
		t.Fatal(err)
	}
	refused, said := against(t, server, apply.Options{}).Check(t.Context(), p)
	want := map[children.Key]string{
		{Kind: "ConfigMap", Namespace: "new", Name: "a"}:     "no dry run was made: its namespace is created first",
		{Kind: "ConfigMap", Namespace: "new", Name: "b"}:     "no dry run was made: its namespace is created first",
		{Kind: "ConfigMap", Namespace: "default", Name: "c"}: `the API server warns: unknown field "date"`,
	}
	if diff := cmp.Diff(want, said); len(refused) > 0 || diff != "" || len(server.dryRuns) != 2 {
		t.Errorf("refused are %v, there were dry runs of %q, and said is (-want +got):\n%s", refused, server.dryRuns, diff)
	}
}
