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

import (
	"math/bits"
	"time"
)

const (
	// period is how long calls are counted together. Quantiles are of the present period and the one before.
	period = 2 * time.Minute
	// steps is how many buckets there are for each doubling of the time, so that a quantile is right to a quarter of its value.
	steps = 4
	// doublings is how many there are from a microsecond to more than an hour.
	doublings = 32
)

// times are how long calls took, in memory of a fixed size. They are not safe for concurrent use; the zero value is ready.
type times struct {
	began           time.Time
	present, former [doublings * steps]uint32
}

// add counts a call that ended at a time.
func (t *times) add(now time.Time, took time.Duration) {
	switch age := now.Sub(t.began); {
	case age < period:
	case age < 2*period:
		t.began, t.former = now, t.present
		t.present = [doublings * steps]uint32{}
	default:
		*t = times{began: now}
	}
	t.present[bucket(took)]++
}

// bucket returns the bucket of a time: its doubling, and the first two bits after the leading one.
func bucket(took time.Duration) int {
	n := uint64(max(took.Microseconds(), steps))
	doubling := bits.Len64(n) - 1
	return min(doubling*steps+int(n>>(doubling-2)&(steps-1)), doublings*steps-1)
}

// end returns the time at which a bucket ends.
func end(bucket int) time.Duration {
	doubling, step := bucket/steps, bucket%steps
	return time.Duration(steps+step+1) << doubling / steps * time.Microsecond
}

// quantile returns the milliseconds, rounded up, within which a share of the calls ended; nil without calls.
func (t *times) quantile(percent uint64) *int64 {
	var all uint64
	for i := range t.present {
		all += uint64(t.present[i]) + uint64(t.former[i])
	}
	if all == 0 {
		return nil
	}
	rank := (all*percent + 99) / 100
	var seen uint64
	for i := range t.present {
		if seen += uint64(t.present[i]) + uint64(t.former[i]); seen >= rank {
			return new(int64((end(i) + time.Millisecond - 1) / time.Millisecond))
		}
	}
	return nil
}
