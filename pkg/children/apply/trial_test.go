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
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
