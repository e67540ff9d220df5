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

// Limit is how long tests wait for anything that is to happen: more than it takes where a machine of half the speed has other work, too. How
// long something takes is no matter of a test that waits for it.
const Limit = 5 * time.Minute

// shortest and longest are the intervals between two questions of Eventually.
const shortest, longest = 50 * time.Millisecond, time.Second

// Eventually asks until the answer is true and fails the test after the time given. The text that comes with a false
// answer is shown then. What takes long to answer, as kubectl does, is asked less often, so that asking takes a fifth of the time at most. So is
// what has long been waited for, which is noticed an eighth of that time later at most.
func Eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	var last string
	EventuallySeen(t, limit, what, func(ctx context.Context) (done bool) {
		done, last = ask(ctx)
		return done
	}, func() string { return last })
}

// EventuallySeen is [Eventually] for what costs much to print: seen is called once, when the time is over.
func EventuallySeen(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) bool, seen func() string) {
	t.Helper()
	began := time.Now()
	var took time.Duration
	eventually(t, limit, what, func(ctx context.Context) bool {
		asked := time.Now()
		done := ask(ctx)
		took = time.Since(asked)
		return done
	}, seen, func() time.Duration { return min(max(4*took, time.Since(began)/8, shortest), longest) })
}

// EventuallyEvery is [Eventually] for answers that cost much: it asks once in each interval, at the same moments as others with that interval, so
// that they may share an answer.
func EventuallyEvery(t testing.TB, interval, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	var last string
	eventually(t, limit, what, func(ctx context.Context) (done bool) {
		done, last = ask(ctx)
		return done
	}, func() string { return last }, func() time.Duration { return untilNext(interval, time.Now()) })
}

// untilNext is how long it is until a multiple of the interval, half an interval at least.
func untilNext(interval time.Duration, now time.Time) time.Duration {
	return now.Add(interval / 2).Truncate(interval).Add(interval).Sub(now)
}

func eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) bool, seen func() string, pause func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !ask(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("waiting %v for %s: %v; last seen: %s", limit, what, ctx.Err(), strings.TrimSpace(seen()))
		case <-time.After(pause()):
		}
	}
}
