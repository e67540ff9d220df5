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

// take waits for a slot. The error is that of ctx; without one, the caller gives the slot back.
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

func (s slots) giveBack() {
	if s != nil {
		<-s
	}
}

// Syncs returns how many parents are synced at the same time so that a number of workers is kept busy calling hooks: while
// the hooks are asked about some parents, what they returned about as many others is carried out. One worker means one
// parent after the other.
func Syncs(workers int) int { return 2*workers - 1 }
