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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
)

// keeping is a scene with one parent in whose status the condition Synced is kept.
type keeping struct {
	*scene

	server *statuses
	syncs  atomic.Int64
	// seen is the status of the parent as hooks were shown it last.
	seen       atomic.Pointer[string]
	controller *reconciler.Controller
	// told are the events, by their reasons.
	told sync.Map
	// version is the latest one of the child. Others say that it and the status are changed back a moment after each write.
	version atomic.Int64
	others  atomic.Bool
	// takesOff says that another client takes the conditions off a moment after each write of the parent.
	takesOff atomic.Bool
	// loses says that the response to the next write of the status is lost, and that its event is late.
	loses atomic.Bool
}

// writeChild is a write of the child.
func (k *keeping) writeChild(r *http.Request) (int, string) {
	var written map[string]any
	if err := json.NewDecoder(r.Body).Decode(&written); err != nil {
		k.t.Error(err)
	}
	metadata, _ := written["metadata"].(map[string]any)
	store := func() string {
		metadata["resourceVersion"] = strconv.FormatInt(k.version.Add(1), 10)
		encoded, _ := json.Marshal(written)
		k.update(k.widgets, parse(k.t, string(encoded)))
		return string(encoded)
	}
	if r.URL.Query().Has("dryRun") {
		encoded, _ := json.Marshal(written)
		return http.StatusOK, string(encoded)
	}
	stored := store()
	if k.others.Load() {
		time.AfterFunc(time.Millisecond, func() {
			written["spec"] = map[string]any{"size": "theirs"}
			store()
		})
	}
	return http.StatusOK, stored
}

// editStatus has another client edit the status of the parent a moment later.
func (k *keeping) editStatus(edit func(status map[string]any)) {
	time.AfterFunc(time.Millisecond, func() {
		k.server.mu.Lock()
		defer k.server.mu.Unlock()
		k.server.version++
		k.server.status = maps.Clone(k.server.status)
		edit(k.server.status)
		k.update(k.things, k.server.object())
	})
}

// conditions are those that were sent, each one that differs from the one before.
func (k *keeping) conditions() (sent []string) {
	for _, status := range k.server.requests() {
		c, _ := parent.ConditionOf(status, "Synced")
		sent = append(sent, fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
	}
	return slices.Compact(sent)
}

// newKeeping starts a controller of a parent in a group, with some fields in its status. Each sync does the write; its writes are seen before
// their responses.
func newKeeping(t *testing.T, group string, fields []string, write func(s *reconciler.Sync) error) *keeping {
	t.Helper()
	return newKeepingWith(t, group, fields, "", write)
}

// newKeepingWith is newKeeping with more metadata of the parent, and changes of the controller.
func newKeepingWith(
	t *testing.T, group string, fields []string, metadata string, write func(s *reconciler.Sync) error, changes ...func(*keeping, *reconciler.Config),
) *keeping {
	t.Helper()
	k := &keeping{server: &statuses{t: t, fields: fields, version: 1, metadata: metadata, status: map[string]any{"replicas": float64(2)}}}
	k.scene = newSceneWith(t, &rest.Config{Host: "http://api.invalid", QPS: -1, Transport: transport(func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/events") {
			body, _ := io.ReadAll(r.Body)
			var e corev1.Event
			if json.Unmarshal(body, &e) == nil && r.Method == http.MethodPost {
				k.told.Store(e.Reason, e.Message)
			}
			return http.StatusOK, string(body)
		}
		if r.Method == http.MethodPut {
			return k.writeChild(r)
		}
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/p") {
			k.server.mu.Lock()
			defer k.server.mu.Unlock()
			return http.StatusOK, strings.Replace(string(k.server.object().JSON()), `"metadata":{`, `"metadata":{"managedFields":[`+
				`{"manager":"kubectl-annotate","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:metacontroller.k8s.io/paused":{}}}}}],`, 1)
		}
		code, body := k.server.serve(r)
		if r.Method == http.MethodPatch && code == http.StatusOK {
			if k.loses.Swap(false) {
				return http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`
			}
			k.server.mu.Lock()
			k.update(k.things, k.server.object())
			k.server.mu.Unlock()
			if k.takesOff.Load() {
				k.editStatus(func(status map[string]any) { delete(status, "conditions") })
			}
		}
		return code, body
	})})
	k.server.scene = k.scene
	resource := discovery.Resource{Kind: "Thing", HasStatus: true, GroupVersionResource: things.GroupVersionResource}
	resource.Group = group
	k.things = k.shared.Cluster.Cache.Acquire(cache.Query{Resource: resource.GroupVersionResource})
	k.exist(k.server.object())
	k.controller = k.start(&kind{apply: func(_ context.Context, s *reconciler.Sync) error {
		defer k.syncs.Add(1)
		raw, _ := s.ParentShown().Field("status")
		k.seen.Store(new(string(raw)))
		return write(s)
	}}, func(c *reconciler.Config) {
		c.Sources[0].Resource, c.Sources[0].ReportsGeneration, c.Sources[0].KeepsSynced = resource, false, true
		for _, change := range changes {
			change(k, c)
		}
	})
	return k
}

// condition is the condition Synced of the parent, without its time.
func (k *keeping) condition() string {
	c, _ := parent.ConditionOf(k.server.present(), "Synced")
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func TestTheConditionSyncedFollowsTheSyncs(t *testing.T) {
	fails := errors.New("the hook is away")
	for name, tc := range map[string]struct {
		reason string
		write  func(s *reconciler.Sync) error
		want   string
		// sent is how many requests there are for it.
		sent int
	}{
		"it ends well": {
			"The write of the status has the condition.",
			func(s *reconciler.Sync) error {
				return s.WriteStatus(t.Context(), map[string]any{"replicas": int64(3)}, true)
			},
			"True Synced: the last sync ended well", 1,
		},
		"no status is returned": {
			"The status that is there stays.",
			func(s *reconciler.Sync) error { return s.WriteStatus(t.Context(), nil, true) },
			"True Synced: the last sync ended well", 1,
		},
		"no status is written": {
			"Nothing else writes the parent.", func(*reconciler.Sync) error { return nil },
			"True Synced: the last sync ended well", 1,
		},
		"the hook returns the condition": {
			"It is the engine's.",
			func(s *reconciler.Sync) error {
				return s.WriteStatus(t.Context(), map[string]any{"replicas": int64(2), "conditions": []any{map[string]any{"type": "Synced", "status": "Mine"}}}, true)
			},
			"True Synced: the last sync ended well", 1,
		},
		"conditions that are no list": {
			"They are the hook's, and the condition has no place.",
			func(s *reconciler.Sync) error {
				return s.WriteStatus(t.Context(), map[string]any{"replicas": int64(2), "conditions": map[string]any{"a": "b"}}, true)
			},
			" : ", 1,
		},
		"children are to be written after the status": {
			"Only the end of the sync shows that it ended well.",
			func(s *reconciler.Sync) error {
				return s.WriteStatus(t.Context(), map[string]any{"replicas": int64(3)}, false)
			},
			"True Synced: the last sync ended well", 2,
		},
		"it fails before the status": {
			"No status would be written, and the next step is in the message as in the event.",
			func(*reconciler.Sync) error { return fails }, "False Failing: the hook is away", 1,
		},
		"it fails after the status": {
			"Status and condition are of different times.",
			func(s *reconciler.Sync) error {
				return errors.Join(s.WriteStatus(t.Context(), map[string]any{"replicas": int64(3)}, false), fails)
			},
			"False Failing: the hook is away", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t, "example.com", []string{"replicas", "conditions"}, tc.write)
			k.eventually("the condition", func() bool { return k.condition() == tc.want && len(k.server.requests()) >= tc.sent })
			if sent := len(k.server.requests()); sent != tc.sent {
				t.Errorf("%s: %d requests, want %d: %v", tc.reason, sent, tc.sent, k.server.requests())
			}
			want := int64(1)
			if k.server.present()["replicas"] == float64(3) {
				want = 2 // The hook has not been shown what it returned.
			}
			k.eventually("the syncs", func() bool { return k.syncs.Load() >= want })
			k.server.change(nil)
			k.eventually("a sync", func() bool { return k.syncs.Load() > want })
			if got := k.syncs.Load() - 1; tc.want[0] == 'T' && got != want {
				t.Errorf("%s: %d syncs, want %d: the condition causes none", tc.reason, got, want)
			}
			if seen := *k.seen.Load(); strings.Contains(seen, "Synced") || !strings.Contains(seen, `"replicas":`) {
				t.Errorf("the hook was shown the status %s", seen)
			}
		})
	}
}

func TestAConditionThatIsTakenOffIsPutOnAgain(t *testing.T) {
	k := newKeeping(t, "example.com", []string{"replicas", "conditions"}, func(*reconciler.Sync) error { return nil })
	const synced = "True Synced: the last sync ended well"
	k.eventually("the condition", func() bool { return k.condition() == synced })
	k.server.change(map[string]any{"replicas": float64(2)})
	k.eventually("the condition again", func() bool { return k.condition() == synced })
	// Another controller that keeps it, too, causes no sync by that.
	before, theirs := k.syncs.Load(), maps.Clone(k.server.present())
	theirs["conditions"] = []any{map[string]any{"type": "Synced", "status": "False"}}
	k.server.mu.Lock()
	k.server.version++
	k.server.status = theirs
	k.update(k.things, k.server.object())
	k.server.mu.Unlock()
	k.server.change(nil)
	k.eventually("a sync and the condition", func() bool { return k.syncs.Load() > before && k.condition() == synced })
	if got := k.syncs.Load() - before; got != 1 {
		t.Errorf("%d syncs, want that of the label alone", got)
	}
}

// TestAConditionOfWhichTheResponseWasLostIsCorrected has the event of the condition of a failure come after the next sync, which ended well and saw the
// condition of before.
func TestAConditionOfWhichTheResponseWasLostIsCorrected(t *testing.T) {
	var fails atomic.Bool
	var well atomic.Int64
	k := newKeeping(t, "example.com", []string{"replicas", "conditions"}, func(*reconciler.Sync) error {
		if fails.Swap(false) {
			return errors.New("the hook is away")
		}
		well.Add(1)
		return nil
	})
	const synced = "True Synced: the last sync ended well"
	k.eventually("the condition", func() bool { return k.condition() == synced })
	before := well.Load()
	fails.Store(true)
	k.loses.Store(true)
	k.server.change(nil)
	k.eventually("the sync after the failure", func() bool { return well.Load() > before && k.condition() == "False Failing: the hook is away" })
	k.server.mu.Lock()
	k.update(k.things, k.server.object())
	k.server.mu.Unlock()
	k.eventually("the condition again", func() bool { return k.condition() == synced })
}

func TestKindsThatCannotHaveTheConditionAreLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		group string
		first int
	}{
		"the API server drops it":   {"example.com", 1},
		"the API server refuses it": {"apps", 2},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t, tc.group, []string{"replicas"}, func(s *reconciler.Sync) error {
				return s.WriteStatus(t.Context(), map[string]any{"replicas": int64(3)}, true)
			})
			k.eventually("the rest of the status", func() bool { return k.server.present()["replicas"] == float64(3) && k.syncs.Load() > 0 })
			for range 4 {
				before := k.syncs.Load()
				k.server.change(nil)
				k.eventually("a sync", func() bool { return k.syncs.Load() > before })
			}
			if got := k.server.requests(); len(got) != tc.first {
				t.Errorf("%d requests, want %d: %v", len(got), tc.first, got)
			}
			if got := k.server.present(); len(got) != 1 || got["replicas"] != float64(3) {
				t.Errorf("the status is %v", got)
			}
		})
	}
}

func TestTheConditionSyncedSaysWhatHoldsAParentBack(t *testing.T) {
	const synced, unsettled = "True Synced: the last sync ended well", "False Held: it does not settle, and is held back; see its events"
	hook := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: new("http://127.0.0.1:1/finalize")}}
	spec := v1alpha1.CompositeControllerSpec{Hooks: &v1alpha1.CompositeControllerHooks{Sync: hook}}
	guarded, finalizing := spec, spec
	guarded.DeletionGuard = &v1alpha1.DeletionGuard{MaxDeletions: new(intstr.FromInt32(0))}
	finalizing.Hooks = &v1alpha1.CompositeControllerHooks{Sync: hook, Finalize: hook}
	leave := func(k *keeping, s *reconciler.Sync) error {
		err := s.ReconcileChildren(k.t.Context(), "children")
		return errors.Join(err, s.WriteStatus(k.t.Context(), nil, err == nil))
	}
	for name, tc := range map[string]struct {
		metadata string
		spec     v1alpha1.CompositeControllerSpec
		write    func(k *keeping, s *reconciler.Sync) error
		// before are the conditions until then.
		before []string
		want   string
		// most is how many writes of the parent there are at most within a day, while others change things back.
		most int
	}{
		"deletions": {
			"", guarded, leave, nil, "False Held: 1 deletion of a child is held; see the condition DeletionsHeld of the controller", 1,
		},
		"its finalize hook": {
			`,"finalizers":["metacontroller.io/compositecontroller-c"],"deletionTimestamp":"2026-01-01T00:00:00Z"`, finalizing,
			func(k *keeping, s *reconciler.Sync) error { return s.WriteStatus(k.t.Context(), nil, true) }, nil, `False Waiting: waiting for the finalize hook to return "finalized": true`, 1,
		},
		"a loop": {
			"", spec, func(k *keeping, s *reconciler.Sync) error {
				replicas := int64(7)
				if k.others.Load() {
					replicas = k.version.Add(1)
				}
				return s.WriteStatus(k.t.Context(), map[string]any{"replicas": replicas}, true)
			}, []string{synced}, unsettled, 350,
		},
		"a status that others change back": {
			"", spec, func(k *keeping, s *reconciler.Sync) error {
				err := s.WriteStatus(k.t.Context(), map[string]any{"replicas": int64(7)}, true)
				if k.others.Load() {
					k.editStatus(func(status map[string]any) { status["replicas"] = float64(1) })
				}
				return err
			}, []string{synced}, unsettled, 350,
		},
		"a child that others change back": {
			"", spec, func(k *keeping, s *reconciler.Sync) error {
				k.wantWidget(s, map[string]any{"size": "ours"})
				err := s.ReconcileChildren(k.t.Context(), "children")
				return errors.Join(err, s.WriteStatus(k.t.Context(), nil, err == nil))
			}, []string{synced}, "False Held: Widget w is left alone for a while; the event ChildFlapping says why, and what to do", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var there []*object.Object
				var k *keeping
				newKeepingWith(t, "example.com", []string{"replicas", "conditions"}, tc.metadata, func(s *reconciler.Sync) error {
					s.Observed, s.Decision.Observed = k.widgets.ControlledBy("uid-p"), there
					return tc.write(k, s)
				}, func(started *keeping, c *reconciler.Config) {
					k = started
					c.Definition = reconciler.OfComposite(&v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: tc.spec})
					k.version.Store(2)
					k.others.Store(true)
					there = []*object.Object{widget(t, "w", 2, "p", "")}
					k.update(k.widgets, there[0])
				})
				<-time.After(24 * time.Hour)
				synctest.Wait()
				want := slices.Concat(tc.before, []string{tc.want})
				if got := k.conditions(); !slices.Equal(got, want) || k.condition() != tc.want {
					t.Errorf("the conditions were %q, want %q; it is %q", got, want, k.condition())
				}
				if n := len(k.server.requests()); n > tc.most {
					t.Errorf("%d writes of the parent, want at most %d", n, tc.most)
				}
				if state, _ := k.controller.State(v1alpha1.ParentReference{Group: "example.com", Resource: "things", Name: "p"}, ""); !strings.HasPrefix(tc.want, "False "+string(state.State)+": "+state.Message) {
					t.Errorf("the state is %s: %s", state.State, state.Message)
				}
				k.others.Store(false)
				<-time.After(25 * time.Minute) // No periodic resync comes before.
				synctest.Wait()
				if tc.before != nil {
					want = append(want, synced)
				}
				if got := k.conditions(); !slices.Equal(got, want) {
					t.Errorf("the conditions were %q after it had settled, want %q", got, want)
				}
			})
		})
	}
}

// TestWhoTakesTheConditionOffEndsNoBackOff has another client take the condition off a moment after each write of it, for a day.
func TestWhoTakesTheConditionOffEndsNoBackOff(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata string
		err      error
		// most is how many syncs and writes there are at most, and want what the condition is when the other client has ended.
		syncs, writes int
		want          string
	}{
		"a parent that fails": {"", errors.New("the hook is away"), 400, 400, "False Failing: the hook is away"},
		"a parent that waits": {"", &webhook.RetryLaterError{Status: http.StatusServiceUnavailable, After: 10 * time.Minute}, 200, 200, "False Waiting: "},
		"a parent that is paused": {
			`,"annotations":{"metacontroller.k8s.io/paused":"true"}`, nil, 0, 25 * 60,
			"Unknown Paused: paused until the annotation metacontroller.k8s.io/paused is taken off",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeepingWith(t, "example.com", []string{"replicas", "conditions"}, tc.metadata, func(*reconciler.Sync) error { return tc.err },
					func(k *keeping, _ *reconciler.Config) { k.takesOff.Store(true) })
				<-time.After(24 * time.Hour)
				synctest.Wait()
				if syncs, writes := int(k.syncs.Load()), len(k.server.requests()); syncs > tc.syncs || writes > tc.writes || writes < 2 {
					t.Errorf("%d syncs and %d writes, want at most %d and %d", syncs, writes, tc.syncs, tc.writes)
				}
				k.takesOff.Store(false)
				<-time.After(2 * time.Hour)
				synctest.Wait()
				if got := k.condition(); !strings.HasPrefix(got, tc.want) {
					t.Errorf("the condition is %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestTheConditionSyncedSaysThatAHookAsksForTime(t *testing.T) {
	for name, tc := range map[string]struct {
		asks time.Duration
		// after is when it is looked, and want what the condition is then, after so many writes of the parent at most.
		after time.Duration
		want  string
		most  int
	}{
		"soon":            {5 * time.Second, 50 * time.Second, "True Synced: the last sync ended well", 1},
		"again and again": {5 * time.Second, 62 * time.Second, "False Waiting: the hook returned 503 Service Unavailable, retry after 5s", 2},
		"for an hour":     {5 * time.Second, time.Hour, "False Waiting: the hook returned 503 Service Unavailable, retry after 5s", 2},
		"much later": {
			10 * time.Minute, time.Second, "False Waiting: the hook returned 503 Service Unavailable, retry after 10m0s; the next sync is at 2000-01-01T00:10:00Z", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asks atomic.Bool
				k := newKeepingWith(t, "example.com", []string{"replicas", "conditions"}, "", func(*reconciler.Sync) error {
					if asks.Load() {
						return fmt.Errorf("calling the hook: %w", &webhook.RetryLaterError{Status: http.StatusServiceUnavailable, After: tc.asks})
					}
					return nil
				})
				synctest.Wait()
				asks.Store(true)
				k.server.change(nil)
				<-time.After(tc.after)
				synctest.Wait()
				if got := strings.Replace(k.condition(), "calling the hook: ", "", 1); got != tc.want || len(k.server.requests()) > tc.most {
					t.Errorf("the condition is %q after %d writes, want %q", got, len(k.server.requests()), tc.want)
				}
				asks.Store(false)
				<-time.After(time.Hour)
				synctest.Wait()
				if got := k.condition(); got != "True Synced: the last sync ended well" {
					t.Errorf("the condition is %q once the hook works", got)
				}
			})
		})
	}
}
