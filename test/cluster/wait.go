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

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"
)

// shortest and longest are the intervals between two questions of Eventually.
const shortest, longest = 50 * time.Millisecond, time.Second

// Eventually asks until the answer is true and fails the test after the time given. The text that comes with a false
// answer is shown then. What takes long to answer, as kubectl does, is asked less often, so that asking takes a fifth of the time at most.
func Eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	var took time.Duration
	eventually(t, limit, what, func(ctx context.Context) (done bool, answer string) {
		began := time.Now()
		done, answer = ask(ctx)
		took = time.Since(began)
		return done, answer
	}, func() time.Duration { return min(max(4*took, shortest), longest) })
}

// EventuallyEvery is [Eventually] for answers that cost much: it asks once in each interval.
func EventuallyEvery(t testing.TB, interval, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	eventually(t, limit, what, ask, func() time.Duration { return interval })
}

func eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (bool, string), pause func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		done, last := ask(ctx)
		if done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting %v for %s: %v; last seen: %s", limit, what, ctx.Err(), strings.TrimSpace(last))
		case <-time.After(pause()):
		}
	}
}
