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

package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// revising is a kind whose parents had the field spec.a "x" before.
type revising struct{ *kind }

// Former implements reconciler.Reviser.
func (revising) Former(s *reconciler.Sync, _ string) (reconciler.Former, error) {
	content, err := s.Parent.Decode()
	if err != nil {
		return reconciler.Former{}, err
	}
	content["spec"] = map[string]any{"a": "x"}
	return reconciler.Former{Name: "old", Latest: "new", Parent: content}, nil
}

// rolling is a controller of a parent a with spec.a "y", whose writes an API server takes.
func rolling(t *testing.T, patch http.HandlerFunc, change func(*scene)) *reconciler.Controller {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch && !strings.HasSuffix(r.URL.Path, "/things/a") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		patch(w, r)
	}))
	t.Cleanup(server.Close)
	s := newSceneAt(t, server.URL)
	change(s)
	s.exist(thing(t, "a", 1, "", `,"spec":{"a":"y"}`))
	k := &kind{}
	return s.start(k, func(c *reconciler.Config) { c.Kind = revising{k} })
}

var (
	rolledParent = v1alpha1.ParentReference{Group: "example.com", Resource: "things", Name: "a"}
	stored       = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"uid-a","resourceVersion":"2","generation":2},"spec":{"a":"x","admitted":true}}`
)

// refusal is a response of an API server that did not do what it was asked for, or says so.
func refusal(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code)
	}
}

func TestARollbackThatWasBegunIsEndedWhenItsCallerGoes(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	c := rolling(t, func(w http.ResponseWriter, _ *http.Request) {
		leave()
		fmt.Fprint(w, stored)
	}, func(*scene) {})
	done, err := c.Rollback(ctx, rolledParent, inspection.RollbackOptions{User: "jane"})
	if err != nil || done.ResourceVersion != "2" || done.Revision != "old" || done.From != "new" {
		t.Errorf("the rollback is %+v, error %v", done, err)
	}
	if _, err := c.Rollback(ctx, rolledParent, inspection.RollbackOptions{}); !errors.Is(err, context.Canceled) || errors.Is(err, inspection.ErrOutcomeUnknown) {
		t.Errorf("one that its caller left before: %v", err)
	}
}

func TestARollbackTellsWhatWasWritten(t *testing.T) {
	c := rolling(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, stored) }, func(*scene) {})
	done, err := c.Rollback(t.Context(), rolledParent, inspection.RollbackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, change := range done.Changes {
		paths = append(paths, change.Path)
	}
	if got := strings.Join(paths, " "); got != "spec.a spec.admitted" {
		t.Errorf("the changes are those of %q, want also what admission changed, and no generation", got)
	}
}

func TestARollbackThatMayBeWrittenIsToldFromOneThatIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		respond http.HandlerFunc
		unknown bool
	}{
		"a conflict":      {refusal(http.StatusConflict, "Conflict"), false},
		"a missing right": {refusal(http.StatusForbidden, "Forbidden"), false},
		"a failure":       {refusal(http.StatusInternalServerError, "InternalError"), true},
		"no time":         {refusal(http.StatusGatewayTimeout, "Timeout"), true},
		"no response":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"no object":       {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{`) }, true},
		"half of a response": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{`)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rolling(t, tc.respond, func(*scene) {}).Rollback(t.Context(), rolledParent, inspection.RollbackOptions{})
			if err == nil || errors.Is(err, inspection.ErrOutcomeUnknown) != tc.unknown {
				t.Errorf("the error is %v, want one that leaves it open: %t", err, tc.unknown)
			}
		})
	}
}

// TestARollbackThatWasSentTwiceIsKnownByTheParent has an API server that fails at first and wants the request to be sent again at once,
// which it refuses then. Whether it has written the parent at first shows in the parent.
func TestARollbackThatWasSentTwiceIsKnownByTheParent(t *testing.T) {
	was := strings.NewReplacer(`"resourceVersion":"2"`, `"resourceVersion":"1"`, `{"a":"x","admitted":true}`, `{"a":"y"}`).Replace(stored)
	for name, tc := range map[string]struct {
		// live is the parent after both requests; empty: it cannot be read.
		live              string
		done, unknown     bool
		conflict, dryRuns bool
	}{
		"done":               {live: strings.Replace(stored, `,"admitted":true`, "", 1), done: true},
		"not done":           {live: was, conflict: true},
		"something else":     {live: stored, unknown: true, conflict: true},
		"another parent":     {live: strings.Replace(stored, "uid-a", "uid-b", 1), unknown: true, conflict: true},
		"not to be read":     {unknown: true, conflict: true},
		"a dry run, refused": {live: strings.Replace(stored, `,"admitted":true`, "", 1), dryRuns: true, conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			c := rolling(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet && tc.live == "":
					refusal(http.StatusForbidden, "Forbidden")(w, r)
				case r.Method == http.MethodGet:
					fmt.Fprint(w, tc.live)
				case requests.Add(1) == 1:
					w.Header().Set("Retry-After", "0")
					refusal(http.StatusInternalServerError, "InternalError")(w, r)
				default:
					refusal(http.StatusConflict, "Conflict")(w, r)
				}
			}, func(*scene) {})
			done, err := c.Rollback(t.Context(), rolledParent, inspection.RollbackOptions{DryRun: tc.dryRuns})
			if (err == nil) != tc.done || errors.Is(err, inspection.ErrOutcomeUnknown) != tc.unknown || apierrors.IsConflict(err) != tc.conflict {
				t.Errorf("got %+v, error %v; want done %t, unknown %t, conflict %t", done, err, tc.done, tc.unknown, tc.conflict)
			}
			if tc.done && (done.ResourceVersion != "2" || len(done.Changes) != 1 || done.Changes[0].Path != "spec.a") {
				t.Errorf("the rollback is %+v", done)
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A controller is told of rights that its syncs lack. They do not roll back.
func TestARightThatARollbackLacksIsNotNoted(t *testing.T) {
	var noted atomic.Int32
	c := rolling(t, func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get("Impersonate-User"); user != "system:serviceaccount:team:alice" {
			t.Errorf("the user is %q", user)
		}
		refusal(http.StatusForbidden, "Forbidden")(w, r)
	}, func(s *scene) {
		s.shared.Cluster.Client = s.shared.Cluster.Client.As(client.Identity{
			User: "system:serviceaccount:team:alice",
			Observe: func(_ context.Context, r client.Request, _ error) {
				if r.Target.Resource == things.GroupVersionResource {
					noted.Add(1)
				}
			},
		})
	})
	if _, err := c.Rollback(t.Context(), rolledParent, inspection.RollbackOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the error is %v", err)
	}
	if n := noted.Load(); n != 0 {
		t.Errorf("%d requests were noted", n)
	}
}
