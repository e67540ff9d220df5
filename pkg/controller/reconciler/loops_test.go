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
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAChangeOfWhatTheHookIsShownEndsAPauseAtOnce has the hook return another label each time, and another client change, one at a time, everything that
// the request has of the parent and its children.
func TestAChangeOfWhatTheHookIsShownEndsAPauseAtOnce(t *testing.T) {
	const deleting = `,"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["example.com/f"]`
	changed := func(metadata, content string) func(*scene, int, string) {
		return func(s *scene, version int, label string) {
			if !strings.Contains(metadata, `"labels"`) {
				metadata += `,"labels":{"n":"` + label + `"}`
			}
			s.update(s.things, thing(s.t, "p", version, metadata, content))
		}
	}
	child := func(change func(*scene) error) func(*scene, int, string) {
		return func(s *scene, _ int, _ string) {
			if err := change(s); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	for name, change := range map[string]func(s *scene, version int, label string){
		"the parent's spec":            changed("", `,"spec":{"a":1}`),
		"another field of the parent":  changed("", `,"data":{"a":"b"}`),
		"the parent's status":          changed("", `,"status":{"a":1}`),
		"the parent's labels":          changed(`,"labels":{"n":"x","a":"b"}`, ""),
		"the parent's annotations":     changed(`,"annotations":{"a":"b"}`, ""),
		"the parent's finalizers":      changed(`,"finalizers":["example.com/other"]`, ""),
		"the parent's ownerReferences": changed(`,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"o"}]`, ""),
		"the parent's deletion":        changed(deleting, ""),
		"a child changes":              child(func(s *scene) error { return s.widgets.Update(widget(s.t, "w", 1005, "p", "")) }),
		"a child comes":                child(func(s *scene) error { return s.widgets.Add(widget(s.t, "new", 1005, "p", "")) }),
		"a child goes":                 child(func(s *scene) error { return s.widgets.Delete(widget(s.t, "w", 1005, "p", "")) }),
		"a child gets another owner":   child(func(s *scene) error { return s.widgets.Update(widget(s.t, "w", 1005, "q", "")) }),
		"a child is being deleted":     child(func(s *scene) error { return s.widgets.Update(widget(s.t, "w", 1005, "p", deleting)) }),
		"a child changes as it goes": child(func(s *scene) error {
			return s.widgets.Update(widget(s.t, "leaving", 1005, "p", deleting+`,"labels":{"a":"b"}`))
		}),
		"a child that was going, is gone": child(func(s *scene) error { return s.widgets.Delete(widget(s.t, "leaving", 1005, "p", deleting)) }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, version, label := newLabelScene(t)
				s.exist(thing(t, "p", 1, "", ""))
				s.update(s.widgets, widget(t, "w", 2, "p", ""))
				s.update(s.widgets, widget(t, "leaving", 3, "p", deleting))
				var syncs atomic.Int64
				c := s.start(&kind{write: func(sync *reconciler.Sync) error {
					n := strconv.FormatInt(syncs.Add(1), 10)
					label.Store(n)
					sync.Observed = s.widgets.ControlledBy("uid-p")
					return sync.WriteParent(t.Context(), parent.Changes{Labels: map[string]*string{"n": &n}})
				}}, nil)
				<-time.After(200 * time.Second) // The pauses have grown to minutes.
				synctest.Wait()
				if h := c.Health(); h.Differing != 1 {
					t.Fatalf("%d parents do not settle after %d syncs", h.Differing, syncs.Load())
				}
				before := syncs.Load()
				change(s, int(version.Add(1)), label.Load().(string))
				synctest.Wait()
				if syncs.Load() == before {
					t.Error("it is not synced at once")
				}
			})
		})
	}
}

// TestAHookThatFailsEveryOtherTimeIsHeldBack has each call that does not fail return another label: as two replicas of a hook do, one of them broken.
func TestAHookThatFailsEveryOtherTimeIsHeldBack(t *testing.T) {
	const endless = 1000
	synctest.Test(t, func(t *testing.T) {
		s, _, label := newLabelScene(t)
		s.exist(thing(t, "p", 1, "", ""))
		var syncs atomic.Int64
		s.start(&kind{write: func(sync *reconciler.Sync) error {
			n := syncs.Add(1)
			if n >= endless {
				return nil
			}
			if n%2 == 0 {
				return errors.New("the other replica of the hook fails")
			}
			text := strconv.FormatInt(n, 10)
			label.Store(text)
			return sync.WriteParent(t.Context(), parent.Changes{Labels: map[string]*string{"n": &text}})
		}}, nil)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if syncs.Load() > 100 {
			t.Errorf("%d syncs within five minutes", syncs.Load())
		}
	})
}

// TestChildrenThatGoOneByOneAreNotHeldBack has a hook take the last child away in each sync, and the API server show 20 ms later that it is gone,
// which its response says or not.
func TestChildrenThatGoOneByOneAreNotHeldBack(t *testing.T) {
	for _, many := range []int{1, 60, 150, 1000, -1, -1000} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			answers := many < 0
			many := max(many, -many)
			synctest.Test(t, func(t *testing.T) {
				s, began := newDeletingScene(t, many, answers), time.Now()
				var done atomic.Int64
				s.start(&kind{apply: func(ctx context.Context, sync *reconciler.Sync) error {
					sync.Observed = s.widgets.ControlledBy("uid-p")
					slices.SortFunc(sync.Observed, func(a, b *object.Object) int { return strings.Compare(a.Name(), b.Name()) })
					sync.Decision = reconciler.Decision{Observed: sync.Observed}
					for _, o := range sync.Observed[:max(0, len(sync.Observed)-1)] {
						sync.Decision.Desired = append(sync.Decision.Desired, children.Desired{
							Key: children.KeyOf(o), APIVersion: "example.com/v1",
							Content: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": o.Name()}},
						})
					}
					if len(sync.Observed) == 0 {
						done.CompareAndSwap(0, int64(time.Since(began)+1))
					}
					return sync.ReconcileChildren(ctx, "children")
				}}, func(config *reconciler.Config) { config.Children[0].Method = v1alpha1.ChildUpdateOnDelete })
				for done.Load() == 0 && time.Since(began) < time.Hour {
					<-time.After(time.Second)
				}
				synctest.Wait()
				// Time is that of the test: only what waits takes any.
				if took := time.Duration(done.Load()); took == 0 || took > time.Duration(many)*30*time.Millisecond+time.Second {
					t.Errorf("%d children, of which each is gone after 20ms, are gone after %v; %d are left", many, took, s.widgets.Len())
				}
			})
		})
	}
}

// newDeletingScene returns a scene with so many children of the parent p, whose API server shows 20 ms later that those which are deleted are gone,
// and answers so, or with the child as it was.
func newDeletingScene(t *testing.T, many int, answers bool) (s *scene) {
	t.Helper()
	var version atomic.Int64
	version.Store(int64(many) + 10)
	s = newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			name := path.Base(r.URL.Path)
			time.AfterFunc(20*time.Millisecond, func() {
				if err := s.widgets.Delete(widget(t, name, int(version.Add(1)), "p", "")); err != nil {
					t.Error(err)
				}
			})
			if !answers {
				return http.StatusOK, string(widget(t, name, 2, "p", "").JSON())
			}
		}
		return http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	})})
	s.exist(thing(t, "p", 1, "", ""))
	for i := range many {
		s.update(s.widgets, widget(t, fmt.Sprintf("w-%04d", i), 2+i, "p", ""))
	}
	return s
}
