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
	"sync/atomic"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
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
