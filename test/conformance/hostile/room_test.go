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

package hostile

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestAHookThatHoldsTheBudgetLeavesRoomForOthers has a hook whose responses of 32 MiB never end, more of them than the budget has room
// for, beside a healthy controller whose responses need room too.
func TestAHookThatHoldsTheBudgetLeavesRoomForOthers(t *testing.T) {
	const budget, response, calls = 128 << 20, 32 << 20, 6
	s := fixture.SetUp(t, fixture.Options{Limit: limit, Server: server.Options{Args: []string{"--hook-response-budget", strconv.Itoa(budget)}}})
	hostile := s.NewTest(t)
	healthy := newLargeWork(s.NewTest(t))
	healthy.converge(0)

	hostile.Hook.Handle("/claim", hooktest.HugeClaim(response))
	sync := hostile.At("/claim")
	sync.Webhook.Timeout = &metav1.Duration{Duration: time.Hour}
	hostile.Declare(fixture.Definition{Kind: fixture.Composite, Sync: sync})
	for i := range calls {
		hostile.Parent(fmt.Sprintf("p%d", i), nil)
	}
	// As much as one controller gets, with more of its calls waiting. They are not over when the healthy one has done its work.
	const most = budget * 3 / 4
	held := func() {
		t.Helper()
		text := ""
		cluster.Eventually(t, limit, "the budget to be used", func(ctx context.Context) (bool, string) {
			page, err := s.Server.Metrics(ctx, "metacontroller_hook_response_bytes")
			if err != nil {
				return false, err.Error()
			}
			used, _ := page.Value("metacontroller_hook_response_bytes")
			text = fmt.Sprintf("%.0f bytes are held, and %d calls were made", used, len(hostile.Hook.Requests("/claim")))
			return used >= most && len(hostile.Hook.Requests("/claim")) == calls, text
		})
		t.Log(text)
	}
	held()
	for round := range rounds {
		healthy.converge(round + 1)
	}
	held()
	healthy.controller.AwaitStatus("no failure", func(status *v1alpha1.ControllerStatus) bool { return len(status.LastErrors) == 0 })
}

// newLargeWork is newWork with responses that need room in the budget.
func newLargeWork(test *fixture.Test) *work {
	test.T.Helper()
	w := newWork(test)
	padding := strings.Repeat("x", 100<<10)
	test.Hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: []*hook.Object{
			fixture.ConfigMap(q.Parent.GetName(), map[string]any{"value": fixture.Value(q.Parent, "spec", "value"), "padding": padding}),
		}}, nil
	}))
	return w
}
