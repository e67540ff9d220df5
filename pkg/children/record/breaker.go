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

package record

import "time"

// The breaker stops a child that was written more than maxWrites times within window without a change of what is desired
// (docs/reference/compatibility.md#d12.4). It is tried again after firstPause, then after pauses that double up to longestPause.
const (
	maxWrites    = 10
	window       = time.Minute
	firstPause   = time.Minute
	longestPause = 10 * time.Minute
)

// Breaker counts the writes of one child, and pauses them when there are too many.
type Breaker struct {
	writes      int
	windowStart time.Time
	pausedUntil time.Time
	pause       time.Duration
	reported    bool
}

// Paused reports whether nothing is to be written now, and when that ends.
func (b Breaker) Paused(now time.Time) (until time.Time, paused bool) {
	return b.pausedUntil, now.Before(b.pausedUntil)
}

// Reported says whether the present pause was reported.
func (b Breaker) Reported() bool { return b.reported }

// Report returns the breaker with its pause reported.
func (b Breaker) Report() Breaker {
	b.reported = true
	return b
}

// Count returns the breaker after one more write.
func (b Breaker) Count(now time.Time) Breaker {
	if now.Sub(b.windowStart) > window {
		// There was no write for a while: what follows is another matter.
		b.windowStart, b.writes, b.pause = now, 0, 0
	}
	b.writes++
	if b.writes <= maxWrites {
		return b
	}
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	b.pausedUntil = now.Add(b.pause)
	b.writes = maxWrites // one more write after the pause, then the next one
	b.windowStart = b.pausedUntil
	b.reported = false
	return b
}
