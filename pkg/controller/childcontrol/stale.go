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

package childcontrol

import (
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
)

// A parent is synced again whose children changed after they were observed: what the API server calls a conflict may also be that of
// a quota or a webhook, after which no event comes. The pause doubles from firstStaleRetry to lastStaleRetry, and after
// maxStale syncs in a row the conflict is an error.
const (
	firstStaleRetry = time.Second
	lastStaleRetry  = time.Minute
	maxStale        = 8
)

// A StaleError says that the API server refuses the writes of a child as conflicts, which reading it again does not end.
type StaleError struct {
	// Key is the child.
	Key children.Key
	// Syncs is how many syncs in a row ended so.
	Syncs int
	// Cause is the error of the API server.
	Cause error
}

// Error implements error.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%s was not as observed in %d syncs in a row; look for quotas and webhooks that refuse it: %v", e.Key, e.Syncs, e.Cause)
}

// Unwrap returns the error of the API server.
func (e *StaleError) Unwrap() error { return e.Cause }

// FailureReason returns the API server's reason, by which metrics count the error. A single conflict is no failure; this one is.
func (e *StaleError) FailureReason() string { return string(apierrors.ReasonForError(e.Cause)) }

// staleParents counts for parents how many syncs in a row found their children not as observed. The zero value is ready; it is safe for
// concurrent use.
type staleParents struct {
	mu     sync.Mutex
	counts map[types.UID]int
}

// count counts one more sync of a parent, or starts anew, and returns the number of those in a row.
func (s *staleParents) count(parent types.UID, stale bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !stale {
		delete(s.counts, parent)
		return 0
	}
	if s.counts == nil {
		s.counts = map[types.UID]int{}
	}
	s.counts[parent]++
	return s.counts[parent]
}

// retryStale returns after how long a parent is synced again because its children were not as observed, 0 if they were. The error is
// that of the API server if that does not end.
func (c *Control) retryStale(parent types.UID, p plan.Plan, outcomes []plan.Outcome) (time.Duration, error) {
	step := staleStep(p, outcomes)
	count := c.stale.count(parent, step != nil)
	if count == 0 {
		return 0, nil
	}
	if count >= maxStale && step.Cause != nil {
		return 0, &StaleError{Key: step.Key, Syncs: count, Cause: step.Cause}
	}
	return min(firstStaleRetry<<min(count-1, maxStale), lastStaleRetry), nil
}

// staleStep returns the first step whose child was not as observed, nil if there is none.
func staleStep(p plan.Plan, outcomes []plan.Outcome) *plan.Step {
	for i := range p.Steps {
		if p.Steps[i].Reason == plan.Stale {
			return &p.Steps[i]
		}
	}
	for i := range outcomes {
		if outcomes[i].Stale {
			return &outcomes[i].Step
		}
	}
	return nil
}
