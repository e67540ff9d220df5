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

package composite

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// revisionOf returns the revision of the numbered parent in one of its states, after a change; it has no children.
func revisionOf(t *testing.T, n int, change func(*v1alpha1.ControllerRevision)) *object.Object {
	t.Helper()
	content, err := numbered(t, n).Decode()
	if err != nil {
		t.Fatal(err)
	}
	revisions, err := rollout.New(rollout.Config{}).Revisions(content, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := revisions[0].Object
	r.UID, r.ResourceVersion = "r", "1"
	if change != nil {
		change(r)
	}
	o, err := revisionObject(r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestADeletionOfARevisionThatFailsIsTriedAgainAfterItsBackOff has a parent whose former revision has no children left. No event comes of a
// revision that is not deleted, which a parent that waited for it would miss until expectations.Limit.
func TestADeletionOfARevisionThatFailsIsTriedAgainAfterItsBackOff(t *testing.T) {
	for name, refusal := range map[string]responses{
		"refused": {
			http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`,
		},
		"another has changed it": {
			http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, former := &ownAPI{refusals: []responses{refusal}}, revisionOf(t, 1, nil)
				c, _, _ := rolling{
					hooks: syncHook, hook: &calls{}, own: api, parent: numbered(t, 2), stored: []any{former, revisionOf(t, 2, nil)},
				}.run(t)
				deletion := "DELETE " + former.Name()
				synctest.Wait()
				if sent, _ := api.requests(); !slices.Equal(sent, []string{deletion}) {
					t.Fatalf("at first %q is sent, want %q", sent, deletion)
				}
				<-time.After(expectations.Limit / 10)
				synctest.Wait()
				if sent, _ := api.requests(); !slices.Equal(sent, []string{deletion, deletion}) || c.Health().Failing != 0 {
					t.Errorf("after the back-off %q was sent and %d parents fail, want %q twice and none", sent, c.Health().Failing, deletion)
				}
			})
		})
	}
}

// TestRevisionsOfAParentAreThoseThatItControlsAndOrphansOfItsName has a parent with its latest revision, and one more revision. One that is not
// the parent's cannot hold it up, not even if it cannot be decoded.
func TestRevisionsOfAParentAreThoseThatItControlsAndOrphansOfItsName(t *testing.T) {
	withChild := func(r *v1alpha1.ControllerRevision) {
		r.Children = []v1alpha1.ControllerRevisionChildren{{Kind: "Pod", Names: []string{"a"}}}
	}
	ofAnother := func(r *v1alpha1.ControllerRevision) { r.OwnerReferences[0].UID = "v" }
	orphan := func(r *v1alpha1.ControllerRevision) { r.OwnerReferences = nil }
	unreadable := func(r *v1alpha1.ControllerRevision) { r.ParentPatch.Raw = []byte(`{"spec":{"n":7}}`) }
	ofAnotherResource := func(r *v1alpha1.ControllerRevision) { r.Labels = map[string]string{rollout.LabelResource: "others"} }
	elsewhere := func(r *v1alpha1.ControllerRevision) { r.Namespace = "elsewhere" }
	type changes []func(*v1alpha1.ControllerRevision)
	for name, tc := range map[string]struct {
		reason  string
		changes changes
		// undecodable says that the children of the other revision are no list.
		undecodable bool
		// calls is how often the hook is called, once for each revision, and writes are the methods of the requests.
		calls  int
		writes []string
	}{
		"the parent's":                     {"It has no children.", nil, false, 1, []string{"DELETE"}},
		"the parent's, with a child":       {"That is not wanted.", changes{withChild}, false, 2, []string{"DELETE"}},
		"an orphan":                        {"Its name has the digest of the parent.", changes{orphan}, false, 1, []string{"DELETE"}},
		"another parent's":                 {"It has children of that one, perhaps.", changes{ofAnother}, false, 1, nil},
		"another parent's, unreadable":     {"That one waits until it is deleted.", changes{ofAnother, unreadable}, false, 1, nil},
		"another parent's, undecodable":    {"That one fails.", changes{ofAnother}, true, 1, nil},
		"an orphan of another digest":      {"It is nobody's.", changes{orphan, unreadable}, false, 1, nil},
		"an orphan of others, undecodable": {"The selector does not match.", changes{orphan, ofAnotherResource}, true, 1, nil},
		"an orphan elsewhere, undecodable": {"The parent's revisions are in its own.", changes{orphan, elsewhere}, true, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := revisionOf(t, 1, func(r *v1alpha1.ControllerRevision) {
					for _, change := range tc.changes {
						change(r)
					}
				})
				if tc.undecodable {
					other = parsed(t, "%s", strings.Replace(string(other.JSON()), `"kind"`, `"children":"none","kind"`, 1))
				}
				hook, api := &calls{}, &ownAPI{}
				c, _, _ := rolling{hooks: syncHook, hook: hook, own: api, parent: numbered(t, 2), stored: []any{other, revisionOf(t, 2, nil)}}.run(t)
				<-time.After(time.Second)
				if hook.count() != tc.calls || c.Health().Failing != 0 {
					t.Errorf("%d calls of the hook, and %d parents fail; want %d and none. %s", hook.count(), c.Health().Failing, tc.calls, tc.reason)
				}
				var want []string
				for _, method := range tc.writes {
					want = append(want, method+" "+other.Name())
				}
				if sent, _ := api.requests(); !slices.Equal(sent, want) {
					t.Errorf("%q is sent, want %q. %s", sent, want, tc.reason)
				}
			})
		})
	}
}

// TestAnOrphanedRevisionOfTheParentIsAdopted has a parent whose latest revision lost its owner.
func TestAnOrphanedRevisionOfTheParentIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &ownAPI{}
		latest := revisionOf(t, 1, func(r *v1alpha1.ControllerRevision) { r.OwnerReferences = nil })
		rolling{hooks: syncHook, hook: &calls{}, own: api, parent: numbered(t, 1), stored: []any{latest}}.run(t)
		synctest.Wait()
		sent, stored := api.requests()
		if !slices.Equal(sent, []string{"PUT " + latest.Name()}) {
			t.Fatalf("%q is sent, want one update of %s", sent, latest.Name())
		}
		if owner := parsed(t, "%s", stored[0]).Controller(); owner == nil || owner.UID != "u" {
			t.Errorf("it is controlled by %v, want the parent", owner)
		}
	})
}

// TestAnEventOfARevisionInDoubtWakesItsParentOnce has writes of the revision r of the parent a, and then an event of it.
func TestAnEventOfARevisionInDoubtWakesItsParentOnce(t *testing.T) {
	lost := io.ErrUnexpectedEOF
	a, b := parent.Key{Namespace: "ns", Name: "a"}, parent.Key{Namespace: "ns", Name: "b"}
	r := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	for name, tc := range map[string]struct {
		reason string
		before func(d *doubts)
		// why the parent is synced then; empty if it is not.
		why v1alpha1.SyncReason
	}{
		"nothing":                {"Nobody has written it.", func(*doubts) {}, ""},
		"a write that was lost":  {"It may have been done.", func(d *doubts) { d.wrote(r("r"), a, lost) }, v1alpha1.SyncOwnWrite},
		"a write that was done":  {"The sync knows of it.", func(d *doubts) { d.wrote(r("r"), a, nil) }, ""},
		"lost, and done then":    {"It would have been a conflict.", func(d *doubts) { d.wrote(r("r"), a, lost); d.wrote(r("r"), a, nil) }, ""},
		"done, and lost then":    {"The last one counts.", func(d *doubts) { d.wrote(r("r"), a, nil); d.wrote(r("r"), a, lost) }, v1alpha1.SyncOwnWrite},
		"lost twice":             {"The event shows both.", func(d *doubts) { d.wrote(r("r"), a, lost); d.wrote(r("r"), a, lost) }, v1alpha1.SyncOwnWrite},
		"lost, of another one":   {"The event says nothing of it.", func(d *doubts) { d.wrote(r("other"), a, lost) }, ""},
		"the parent is gone":     {"There is nothing to sync.", func(d *doubts) { d.wrote(r("r"), a, lost); d.forget(a) }, ""},
		"unreadable":             {"It may be readable, or gone.", func(d *doubts) { d.begin(r("r"), doubt{a, v1alpha1.SyncRetry}) }, v1alpha1.SyncRetry},
		"unreadable, then gone":  {"There is nothing to sync.", func(d *doubts) { d.begin(r("r"), doubt{a, v1alpha1.SyncRetry}); d.forget(a) }, ""},
		"another parent is gone": {"It is not of that one.", func(d *doubts) { d.wrote(r("r"), a, lost); d.wrote(r("other"), b, lost); d.forget(b) }, v1alpha1.SyncOwnWrite},
	} {
		t.Run(name, func(t *testing.T) {
			var d doubts
			tc.before(&d)
			ended, woken := d.end(r("r"))
			if woken != (tc.why != "") || woken && ended != (doubt{a, tc.why}) {
				t.Errorf("the event ends the doubt %v, want one of %v for %q. %s", ended, a, tc.why, tc.reason)
			}
			if ended, woken := d.end(r("r")); woken {
				t.Errorf("the next event ends the doubt %v again", ended)
			}
		})
	}
}

func TestAnUnreadableRevisionIsReadAgainUnlessItsEventsAreAwaited(t *testing.T) {
	var d doubts
	revision, a := types.NamespacedName{Namespace: "ns", Name: "r"}, parent.Key{Namespace: "ns", Name: "a"}
	for _, want := range []bool{true, false} {
		if got := d.begin(revision, doubt{a, v1alpha1.SyncRetry}); got != want {
			t.Errorf("it is news: %t, want %t", got, want)
		}
	}
	d.end(revision)
	if !d.begin(revision, doubt{a, v1alpha1.SyncRetry}) {
		t.Error("it is no news after an event")
	}
}

// ownAPI does what it is asked to do with revisions, but for losing some responses and refusing some deletions.
type ownAPI struct {
	mu sync.Mutex
	// lose is how many responses are lost from now on.
	lose int
	// meanwhile is called while a creation or an update is under way, unless it is nil.
	meanwhile func()
	// refusals are the responses to the next deletions.
	refusals []responses
	// sent are the requests: the method, and the number that is in the revision.
	sent []string
	// stored are the revisions that were created or updated, as they are then.
	stored []string
}

// RoundTrip implements http.RoundTripper.
func (a *ownAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what, body := r.Method+" "+path.Base(r.URL.Path), `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		var revision v1alpha1.ControllerRevision
		if err := json.Unmarshal(sent, &revision); err != nil {
			return nil, err
		}
		what = r.Method + " " + revision.Name
		revision.UID, revision.ResourceVersion = "r", fmt.Sprint(len(a.sent)+4)
		revision.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ControllerRevision"))
		stored, err := json.Marshal(&revision)
		if err != nil {
			return nil, err
		}
		body = string(stored)
		a.stored = append(a.stored, body)
		if a.meanwhile != nil {
			a.meanwhile()
		}
	}
	a.sent = append(a.sent, what)
	switch {
	case a.lose > 0:
		a.lose--
		return nil, io.ErrUnexpectedEOF
	case r.Method == http.MethodDelete && len(a.refusals) > 0:
		refusal := a.refusals[0]
		a.refusals = a.refusals[1:]
		return refusal.RoundTrip(r)
	}
	return responses{http.StatusOK, body}.RoundTrip(r)
}

// requests returns what was sent and what was stored.
func (a *ownAPI) requests() (sent, stored []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sent), slices.Clone(a.stored)
}

// calls counts the calls of a hook that wants no children.
type calls struct {
	mu sync.Mutex
	n  int
}

// RoundTrip implements http.RoundTripper.
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return responses{http.StatusOK, `{"children":[]}`}.RoundTrip(r)
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

var syncHook = v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/hook")}}}

// numbered is a parent in a state that has a number.
func numbered(t *testing.T, n int) *object.Object {
	t.Helper()
	return parsed(t, `{"apiVersion":"g/v1","kind":"Thing","metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"%d","generation":%d},"spec":{"n":%d}}`, n, n, n)
}

// TestAParentIsSyncedWhenARevisionIsSeenWhoseWriteWasInDoubt loses the response to the creation of a revision. The parent changes before
// that revision is seen, so that the next sync succeeds without it.
func TestAParentIsSyncedWhenARevisionIsSeenWhoseWriteWasInDoubt(t *testing.T) {
	for name, meanwhile := range map[string]func(*testing.T, *reconciler.Controller){
		"nothing else": func(*testing.T, *reconciler.Controller) {},
		"a plan is made": func(t *testing.T, c *reconciler.Controller) {
			made, _ := c.Plan(t.Context(), v1alpha1.ParentReference{Group: "g", Resource: "things", Namespace: "ns", Name: "a"}, inspection.PlanOptions{})
			if len(made.Revisions) != 1 {
				t.Errorf("the plan is %+v, want one that creates the revision", made)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &ownAPI{lose: 1}
				c, parents, revisions := rolling{hooks: syncHook, hook: &calls{}, own: api, parent: numbered(t, 1)}.run(t)
				synctest.Wait()
				meanwhile(t, c)
				if err := parents.Update(numbered(t, 2)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				sent, created := api.requests()
				if len(sent) != 2 || len(created) != 2 || c.Health().Failing != 0 {
					t.Fatalf("%q was sent and %d parents fail, want two creations and none", sent, c.Health().Failing)
				}
				if err := revisions.Add(parsed(t, "%s", created[0])); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				sent, _ = api.requests()
				if want := strings.Replace(sent[0], "POST", "DELETE", 1); !slices.Equal(sent[2:], []string{want}) {
					t.Errorf("when the revision is seen %q is sent, want %q", sent[2:], want)
				}
			})
		})
	}
}

// TestAParentIsSyncedWhenItsUnreadableRevisionIsDeletedOrRepaired has a parent with a revision that somebody changed. Its next attempt would
// be minutes later.
func TestAParentIsSyncedWhenItsUnreadableRevisionIsDeletedOrRepaired(t *testing.T) {
	revision := func(t *testing.T, version int, owner, patch string) *object.Object {
		t.Helper()
		return parsed(t, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"namespace":"ns",
			"name":"things-87a22c00385a810f60b0c588ab11563100da7674","uid":"r","resourceVersion":"%d",
			"labels":{"metacontroller.k8s.io/apiGroup":"","metacontroller.k8s.io/resource":""},
			"ownerReferences":[{"apiVersion":"g/v1","kind":"Thing","name":"a","uid":%q,"controller":true}]},"parentPatch":%s,"children":[{"apiGroup":"","kind":"Pod","names":["b"]}]}`, version, owner, patch)
	}
	for name, tc := range map[string]struct {
		changed func(*testing.T, *cache.Informer) error
		synced  bool
	}{
		"deleted":                {func(t *testing.T, i *cache.Informer) error { return i.Delete(revision(t, 9, "u", `{}`)) }, true},
		"given to another":       {func(t *testing.T, i *cache.Informer) error { return i.Update(revision(t, 9, "v", `{}`)) }, true},
		"repaired":               {func(t *testing.T, i *cache.Informer) error { return i.Update(revision(t, 9, "u", `{"spec":{"n":0}}`)) }, true},
		"changed, and no better": {func(t *testing.T, i *cache.Informer) error { return i.Update(revision(t, 9, "u", `{"spec":{"n":9}}`)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook := &calls{}
				c, _, revisions := rolling{hooks: syncHook, hook: hook, own: &ownAPI{}, parent: numbered(t, 1), stored: []any{revision(t, 1, "u", `{}`)}}.run(t)
				<-time.After(time.Hour)
				if hook.count() > 0 || c.Health().Failing != 1 {
					t.Fatalf("%d calls of the hook, and %d parents fail; want none and one", hook.count(), c.Health().Failing)
				}
				if err := tc.changed(t, revisions); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if synced := hook.count() > 0 && c.Health().Failing == 0; synced != tc.synced {
					t.Fatalf("%d calls of the hook, and %d parents fail; want it to be synced: %t", hook.count(), c.Health().Failing, tc.synced)
				}
				if tc.synced {
					return
				}
				if err := revisions.Delete(revision(t, 10, "u", `{}`)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if hook.count() == 0 || c.Health().Failing != 0 {
					t.Errorf("when it is deleted then: %d calls of the hook, and %d parents fail; want some and none", hook.count(), c.Health().Failing)
				}
			})
		})
	}
}

// TestNothingIsInDoubtOfAParentThatLeaves deletes a parent while a revision of it is created, and loses the response.
func TestNothingIsInDoubtOfAParentThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var built *kind
		var parents *cache.Informer
		started, left := make(chan struct{}), make(chan error, 1)
		api := &ownAPI{lose: 1, meanwhile: func() {
			<-started
			left <- parents.Delete(numbered(t, 1))
			<-time.After(time.Second) // The event is there.
		}}
		_, parents, _ = rolling{hooks: syncHook, hook: &calls{}, own: api, parent: numbered(t, 1), decides: func(k *kind) reconciler.Kind {
			built = k
			return k
		}}.run(t)
		close(started)
		if err := <-left; err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		built.doubts.mu.Lock()
		defer built.doubts.mu.Unlock()
		if len(built.doubts.list) > 0 {
			t.Errorf("in doubt are %v", built.doubts.list)
		}
	})
}
