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
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

// slow is a cluster that permits everything once it is told to respond.
type slow struct{ respond chan struct{} }

func (slow) Exists(context.Context, rights.Account) (bool, error) { return true, nil }

func (slow) Impersonates(context.Context, rights.Account) (bool, error) { return true, nil }

func (s slow) Missing(ctx context.Context, _ rights.Account, _ []rights.Right) ([]rights.Right, error) {
	select {
	case <-s.respond:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestNothingIsSyncedBeforeItIsPermitted holds what happens to parents until it is known what the service account may read.
func TestNothingIsSyncedBeforeItIsPermitted(t *testing.T) {
	s := newScene(t)
	cluster := slow{respond: make(chan struct{})}
	s.shared.Access = access.New(access.Config{Account: rights.Account{Namespace: "team", Name: "alice"}, Cluster: cluster})
	s.exist(thing(t, "a", 1, "", ""), thing(t, "b", 2, "", ""))
	var permitted atomic.Bool
	var synced atomic.Int32
	k := &kind{observe: func(*reconciler.Sync) error {
		if !permitted.Load() {
			t.Error("a parent was synced")
		}
		synced.Add(1)
		return nil
	}}
	c := s.start(k, nil)
	s.update(s.things, thing(t, "c", 3, "", ""))
	if health := c.Health(); !health.Permission.Held || health.Permission.Account != "team/alice" || health.Unsynced != 3 {
		t.Errorf("got %+v", health)
	}
	permitted.Store(true)
	close(cluster.respond)
	s.eventually("all parents to be synced", func() bool { return synced.Load() >= 3 && c.Health().Unsynced == 0 })
	if c.Health().Permission.Held {
		t.Error("it is held still")
	}
}

// TestAPreviewSaysNothingAboutWhatAnAccountMay has a plan try an update that the account may not make, and needs not.
func TestAPreviewSaysNothingAboutWhatAnAccountMay(t *testing.T) {
	var tried atomic.Bool
	s := newSceneWith(t, &rest.Config{Host: "http://api.invalid", Transport: transport(func(r *http.Request) (int, string) {
		if r.Method != http.MethodPut {
			return http.StatusOK, `{}`
		}
		tried.Store(true)
		return http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	})})
	account := s.shared.Cluster.Client.As(client.Identity{User: "alice", Observe: func(_ context.Context, r client.Request, _ error) {
		if r.Verbs[0] == "update" {
			t.Errorf("it was told of %v", r)
		}
	}})
	s.shared.Applier = s.shared.Applier.With(account)
	s.exist(thing(t, "p", 1, "", ""))
	c := s.start(&kind{apply: func(ctx context.Context, sync *reconciler.Sync) error {
		if s.wantWidget(sync, map[string]any{"size": "1"}); len(sync.Observed) == 0 {
			return nil
		}
		return sync.ReconcileChildren(ctx, "children")
	}}, func(c *reconciler.Config) { c.Definition.Paused = true })
	s.update(s.widgets, widget(t, "w", 2, "p", ""))
	plan, _ := c.Plan(t.Context(), v1alpha1.ParentReference{Group: things.Group, Resource: things.Resource, Name: "p"}, inspection.PlanOptions{DryRun: true})
	if plan.Error != "" || !tried.Load() {
		t.Errorf("tried %t: %+v", tried.Load(), plan)
	}
}
