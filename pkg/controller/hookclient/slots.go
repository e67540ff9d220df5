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

package hookclient

import "context"

// slots limit the number of calls at the same time. Nil: there is no limit.
type slots chan struct{}

func newSlots(n int) slots {
	if n < 1 {
		return nil
	}
	return make(slots, n)
}

// take waits for a slot. The error is that of ctx; without one, the caller releases the slot.
func (s slots) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) release() {
	if s != nil {
		<-s
	}
}

// Syncs returns how many parents are synced at the same time for a number of workers, which is the most calls of hooks at the
// same time: while hooks are called for some parents, the responses for as many others are applied. With one worker one parent
// is synced after the other.
func Syncs(workers int) int { return 2*workers - 1 }
