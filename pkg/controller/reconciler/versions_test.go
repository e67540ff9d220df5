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
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// TestAParentWaitsUntilBothVersionsOfAKindShowItsWrites is about a kind that is declared in two versions, whose watches are not equally fast.
func TestAParentWaitsUntilBothVersionsOfAKindShowItsWrites(t *testing.T) {
	shown := func(version int) *object.Object { return widget(t, "w", version, "p", "") }
	beta := func(version int) *object.Object {
		return parse(t, strings.Replace(string(shown(version).JSON()), "example.com/v1", "example.com/v1beta1", 1))
	}
	for name, tc := range map[string]struct {
		reason string
		// sync is the first sync's work; response is what a write returns.
		sync     func(s *scene, sync *reconciler.Sync)
		response string
		// event shows the write in one version.
		event func(s *scene, informer *cache.Informer, o *object.Object)
	}{
		"update": {
			"The next sync would see the child as it was, and write it in vain.",
			func(s *scene, sync *reconciler.Sync) { s.wantWidget(sync, map[string]any{"size": int64(2)}) },
			strings.Replace(string(shown(10).JSON()), `"kind"`, `"spec":{"size":2},"kind"`, 1),
			func(s *scene, informer *cache.Informer, o *object.Object) { s.update(informer, o) },
		},
		"deletion whose response is the child as it was": {
			"The next sync would see a child that is gone.",
			func(s *scene, sync *reconciler.Sync) {
				sync.Observed = s.widgets.ControlledBy("uid-p")
				sync.Decision = reconciler.Decision{Observed: sync.Observed}
			},
			string(shown(2).JSON()),
			func(s *scene, informer *cache.Informer, o *object.Object) {
				if err := informer.Delete(o); err != nil {
					s.t.Fatal(err)
				}
			},
		},
		"release": {
			"The next sync would release it again.",
			func(s *scene, sync *reconciler.Sync) {
				_, err := sync.Claim(s.t.Context(), v1alpha1.ChildRelease, client.Target{Resource: widgets, Name: "w"}, shown(2), []byte(`{}`))
				if err != nil {
					s.t.Error(err)
				}
			},
			string(widget(t, "w", 10, "", "").JSON()),
			func(s *scene, informer *cache.Informer, o *object.Object) { s.update(informer, o) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSceneWith(t, &rest.Config{Host: "http://api", Transport: transport(func(r *http.Request) (int, string) {
					if r.Method == http.MethodGet {
						return http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
					}
					return http.StatusOK, tc.response
				})})
				former := widgets
				former.Version = "v1beta1"
				betas := s.shared.Cluster.Cache.Acquire(cache.Query{Resource: former})
				s.exist(thing(t, "p", 1, "", ""))
				s.update(s.widgets, shown(2))
				if err := betas.Replace([]any{beta(2)}, "2"); err != nil {
					t.Fatal(err)
				}
				var syncs atomic.Int32
				k := &kind{apply: func(ctx context.Context, sync *reconciler.Sync) error {
					if syncs.Add(1) > 1 {
						return nil
					}
					tc.sync(s, sync)
					return sync.ReconcileChildren(ctx, "children")
				}}
				ctx, stop := context.WithCancel(t.Context())
				c := s.build(k, func(c *reconciler.Config) {
					older := c.Children[0]
					older.Resource, older.Kind = former, former.GroupVersion().WithKind("Widget")
					c.Children = []children.Rule{older, c.Children[0]}
				})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.Run(ctx)
				}()
				synctest.Wait()
				tc.event(s, s.widgets, shown(10))
				s.update(s.things, thing(t, "p", 11, "", `,"spec":{"changed":true}`))
				synctest.Wait()
				if n := syncs.Load(); n != 1 {
					t.Errorf("%d syncs while one version is behind, want 1. %s", n, tc.reason)
				}
				tc.event(s, betas, beta(10))
				synctest.Wait()
				if n := syncs.Load(); n < 2 {
					t.Error("both versions show the write, and the parent waits")
				}
				stop()
				<-ended
			})
		})
	}
}
