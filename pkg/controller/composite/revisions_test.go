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
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/expectations"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/rollout"
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
