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
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// patience is the backoff that tests wait for before they mend a cause: long enough to tell a retry at once from one that is
// due.
const patience = 4 * time.Second

// backsOff waits until the hook at a path, which fails, is called rarely, and returns the time between the last two calls.
func (s *stage) backsOff(path string) (backoff time.Duration) {
	s.T.Helper()
	cluster.Eventually(s.T, limit, "backoff", func(context.Context) (bool, string) {
		if requests := s.Requests(path); len(requests) > 1 {
			backoff = requests[len(requests)-1].Time.Sub(requests[len(requests)-2].Time)
		}
		return backoff > patience, backoff.String()
	})
	return backoff
}

// mends mends what makes the hook at a path fail, and checks that the hook is called sooner than after the backoff before,
// of which the next is the double.
func (s *stage) mends(path string, backoff time.Duration, mend func()) {
	s.T.Helper()
	before := len(s.Requests(path))
	mend()
	since := time.Now() // On a busy machine the mending itself takes its time.
	s.awaitCalls(path, "", before+1)
	if waited := s.Requests(path)[before].Time.Sub(since); waited > backoff {
		s.T.Errorf("the hook was called after %v, the backoff before was %v: what failed must be retried as soon as the cause is mended", waited, backoff)
	}
}
