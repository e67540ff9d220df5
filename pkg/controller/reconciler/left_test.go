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
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/history"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// TestNothingIsRememberedOfAParentThatLeftDuringItsSync has a sync that creates a child and leaves a status to the next, after the event by which the parent
// left.
func TestNothingIsRememberedOfAParentThatLeftDuringItsSync(t *testing.T) {
	deleted := func(s *scene) {
		if err := s.things.Delete(thing(s.t, "p", 9, "", "")); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		reason string
		leaves func(s *scene)
		fails  error
		want   metrics.Remembered
	}{
		"it stays":       {"The next sync needs it.", func(*scene) {}, nil, metrics.Remembered{Parents: 1, Children: 1, SyncedParents: 1, OwnWrites: 1, Settling: 1}},
		"deleted":        {"No event of it comes any more.", deleted, nil, metrics.Remembered{}},
		"the sync fails": {"It is not tried again.", deleted, errors.New("refused"), metrics.Remembered{}},
		"deselected": {
			"It is not the controller's any more.", func(s *scene) { s.update(s.things, thing(s.t, "p", 9, `,"labels":{"out":""}`, "")) }, nil, metrics.Remembered{},
		},
		"another has its name": {
			"Only that one's sync, which creates nothing, is remembered.",
			func(s *scene) {
				deleted(s)
				s.update(s.things, parse(s.t, strings.Replace(string(thing(s.t, "p", 10, "", "").JSON()), "uid-p", "uid-q", 1)))
			},
			nil,
			metrics.Remembered{SyncedParents: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSceneWith(t, &rest.Config{Host: "http://api", Transport: transport(creates)})
				s.shared.History = history.NewRing(1 << 20)
				s.exist(thing(t, "p", 1, "", ""))
				var syncs atomic.Int64
				k := &kind{}
				k.apply = func(ctx context.Context, sync *reconciler.Sync) error {
					if syncs.Add(1) > 1 {
						return nil
					}
					tc.leaves(s)
					s.wantWidget(sync, nil)
					if err := sync.ReconcileChildren(ctx, "children"); err != nil {
						return err
					}
					return errors.Join(sync.WriteStatus(ctx, map[string]any{"phase": "X"}, true), tc.fails)
				}
				c := s.start(k, nil)
				synctest.Wait()
				if got := c.Remembered(); got != tc.want {
					t.Errorf("%+v is remembered, want %+v. %s", got, tc.want, tc.reason)
				}
				if n := c.Health().Failing; n != 0 {
					t.Errorf("%d parents fail, want none. %s", n, tc.reason)
				}
				before := syncs.Load()
				<-time.After(time.Minute)
				if n := syncs.Load() - before; n > 0 && tc.want == (metrics.Remembered{}) {
					t.Errorf("it is synced %d times after that. %s", n, tc.reason)
				}
			})
		})
	}
}

// creates is an API server that has nothing, creates what it is sent, and writes the status of a parent.
func creates(r *http.Request) (int, string) {
	if r.Method != http.MethodPost {
		return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	return http.StatusCreated, strings.Replace(string(sent), `"metadata":{`, `"metadata":{"uid":"uid-w","resourceVersion":"5",`, 1)
}
