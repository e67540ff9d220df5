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

package hooks

import (
	"context"
	"fmt"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// patience is how far away the next retry is when tests mend a cause: long enough to tell a retry at once from one that is due.
const patience = 16 * time.Second

// mends mends what makes the hook at a path fail as soon as its next retry is far away, and checks that the hook is called before it is due.
func (s *stage) mends(path string, mend func()) {
	s.T.Helper()
	due := s.awaitDistantRetry()
	before := len(s.Requests(path))
	mend()
	if late := time.Since(due); late > 0 {
		s.T.Fatalf("the cause was mended only %v after the retry was due", late)
	}
	s.awaitCalls(path, "", before+1)
	if called := s.Requests(path)[before].Time; !called.Before(due) {
		s.T.Errorf("the hook was called %v after its retry was due: what failed must be retried as soon as the cause is mended", called.Sub(due))
	}
}

// awaitDistantRetry waits until the back-off of the stage's only parent is long, and returns when it ends.
func (s *stage) awaitDistantRetry() (due time.Time) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, "a retry that is far away", func(ctx context.Context) (bool, string) {
		list, err := s.parents(ctx)
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprint(list, err)
		}
		p := list.Items[0]
		if p.Retries == 0 || p.NextSyncTime == nil {
			return false, fmt.Sprintf("%+v", p)
		}
		due = p.NextSyncTime.Time
		return time.Until(due) > patience, fmt.Sprintf("the retry after %d failures is due in %v", p.Retries, time.Until(due))
	})
	return due
}

func (s *stage) parents(ctx context.Context) (*v1alpha1.ControllerParentList, error) {
	client, of := s.Versioned.MetacontrollerV1alpha1(), v1alpha1.ControllerParentOptions{Namespace: s.Namespace}
	if s.kind == fixture.Decorator {
		return client.DecoratorControllers().GetParents(ctx, s.running.Name, of)
	}
	return client.CompositeControllers().GetParents(ctx, s.running.Name, of)
}
