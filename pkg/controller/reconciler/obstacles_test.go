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
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAParentIsSyncedWhenWhatBlocksItGoes fails syncs until the back-off is minutes long. No time passes between the event and the sync.
func TestAParentIsSyncedWhenWhatBlocksItGoes(t *testing.T) {
	stranger := func(t *testing.T, version int, owner string) *object.Object {
		return widget(t, "w", version, owner, "")
	}
	for name, goes := range map[string]func(t *testing.T, s *scene){
		"Deleted": func(t *testing.T, s *scene) {
			if err := s.widgets.Delete(stranger(t, 2, "stranger")); err != nil {
				t.Fatal(err)
			}
		},
		"Released": func(t *testing.T, s *scene) { s.update(s.widgets, stranger(t, 3, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.exist(thing(t, "p", 1, "", ""))
				var syncs atomic.Int64
				var free atomic.Bool
				k := &kind{write: func(sync *reconciler.Sync) error {
					syncs.Add(1)
					if free.Load() {
						return nil
					}
					return errors.Join(errors.New("another child"), fmt.Errorf("can't reconcile: %w",
						&apply.ConflictError{Key: children.Key{Group: "example.com", Kind: "Widget", Name: "w"}, Parent: sync.Parent.String()}))
				}}
				s.start(k, nil)
				s.update(s.widgets, stranger(t, 2, "stranger"))
				<-time.After(time.Hour)
				synctest.Wait()
				s.wantSyncs(&syncs, 0, func() { s.update(s.widgets, widget(t, "other", 4, "stranger", "")) })
				free.Store(true)
				s.wantSyncs(&syncs, 1, func() { goes(t, s) })
				s.update(s.widgets, stranger(t, 5, "stranger"))
				s.wantSyncs(&syncs, 0, func() { s.update(s.widgets, stranger(t, 6, "")) })
			})
		})
	}
}

// TestAnObstacleThatStaysEndsNoBackOff has a kind that owns by a mark, as decorators do.
func TestAnObstacleThatStaysEndsNoBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.exist(thing(t, "p", 1, "", ""))
		var syncs atomic.Int64
		s.start(&kind{
			owns: func(o *object.Object) bool { _, marked := o.Annotation("mark"); return marked },
			write: func(sync *reconciler.Sync) error {
				syncs.Add(1)
				return &apply.ConflictError{Key: children.Key{Group: "example.com", Kind: "Widget", Name: "w"}, Parent: sync.Parent.String()}
			},
		}, nil)
		s.update(s.widgets, widget(t, "w", 2, "stranger", ""))
		<-time.After(time.Hour)
		synctest.Wait()
		s.wantSyncs(&syncs, 0, func() { s.update(s.widgets, widget(t, "w", 3, "stranger", "")) })
		s.wantSyncs(&syncs, 1, func() { s.update(s.widgets, widget(t, "w", 4, "", "")) })
	})
}

// TestANameThatIsTakenIsNotTriedAgainAsLongAsTheCacheShowsIt has every sync of an hour want a child whose name a stranger's object has.
func TestANameThatIsTakenIsNotTriedAgainAsLongAsTheCacheShowsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		shown  bool
		// once says that the child is created in the first sync alone.
		once bool
	}{
		"Shown":    {"Its deletion has the parent synced.", true, true},
		"NotShown": {"No event says when it is gone.", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var creations, syncs, conflicts atomic.Int64
				var free atomic.Bool
				stranger := widget(t, "w", 2, "stranger", "")
				s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
					switch {
					case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/widgets"):
						if creations.Add(1); free.Load() {
							return http.StatusCreated, string(widget(t, "w", 9, "p", "").JSON())
						}
						return http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`
					case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/widgets/w"):
						return http.StatusOK, string(stranger.JSON())
					}
					return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
				})})
				s.exist(thing(t, "p", 1, "", ""))
				if tc.shown {
					s.update(s.widgets, stranger)
				}
				s.start(&kind{apply: func(ctx context.Context, sync *reconciler.Sync) error {
					syncs.Add(1)
					s.wantWidget(sync, nil)
					err := sync.ReconcileChildren(ctx, "children")
					if conflict, ok := errors.AsType[*apply.ConflictError](err); ok && conflict.Owner == "Thing stranger" {
						conflicts.Add(1)
					}
					return err
				}}, nil)
				<-time.After(time.Hour)
				synctest.Wait()
				if n := syncs.Load(); n < 10 || conflicts.Load() != n {
					t.Errorf("%d of %d syncs say whose the object is, want all, and 10 at least", conflicts.Load(), n)
				}
				if n := creations.Load(); (n == 1) != tc.once || !tc.once && n != syncs.Load() {
					t.Errorf("%d creations in %d syncs, want only one: %t. %s", n, syncs.Load(), tc.once, tc.reason)
				}
				if !tc.shown {
					return
				}
				free.Store(true)
				creations.Store(0)
				if err := s.widgets.Delete(stranger); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := creations.Load(); n != 1 {
					t.Errorf("%d creations when the object is gone, want 1", n)
				}
			})
		})
	}
}

// wantSyncs checks how many syncs something leads to at once.
func (s *scene) wantSyncs(syncs *atomic.Int64, want int64, something func()) {
	s.t.Helper()
	before := syncs.Load()
	something()
	synctest.Wait()
	if got := syncs.Load() - before; got != want {
		s.t.Errorf("%d syncs at once, want %d", got, want)
	}
}
