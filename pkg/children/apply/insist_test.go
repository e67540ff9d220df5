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
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

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
