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
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
