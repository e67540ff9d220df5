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

	"k8s.io/apimachinery/pkg/util/wait"
)

// Eventually asks until the answer is true and fails the test after the time given. The text that comes with a false
// answer is shown then.
func Eventually(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	EventuallyEvery(t, 50*time.Millisecond, limit, what, ask)
}

// EventuallyEvery is [Eventually] for answers that cost much: it asks once in each interval.
func EventuallyEvery(t testing.TB, interval, limit time.Duration, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	last := "never asked"
	err := wait.PollUntilContextTimeout(t.Context(), interval, limit, true, func(ctx context.Context) (done bool, err error) {
		done, last = ask(ctx)
		return done, nil
	})
	if err != nil {
		t.Fatalf("waiting %v for %s: %v; last seen: %s", limit, what, err, strings.TrimSpace(last))
	}
}
