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

package slope

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Prepare returns work of a size. What is done before the work begins does not count.
type Prepare func(tb testing.TB, size int) (work func())

const (
	// factor is how many times as large the larger size is.
	factor = 10
	// Linear is how many times as much work of ten times the size may cost that grows with its size: it is ten times as much, and more where
	// the caches of the processor do not hold it any more. With the square of the size it is a hundred times as much.
	Linear = 20
	// Constant is the same for work that does not depend on the size.
	Constant = 5
	// tries is how often the costs are measured. The smallest ones count.
	tries = 6
	// enough is for how long work is repeated for one measurement.
	enough = 2 * time.Millisecond
)

// Check fails the test if work of ten times the size costs more than most times as much.
func Check(t *testing.T, size int, most float64, prepare Prepare) {
	t.Helper()
	small, large := prepare(t, size), prepare(t, factor*size)
	small() // What its first run alone does would make it look costly.
	var before, after time.Duration
	for try := range tries {
		a, b := cost(t, small), cost(t, large)
		if before, after = min(a, before), min(b, after); try == 0 {
			before, after = a, b
		}
		if float64(after) <= most*float64(before) {
			t.Logf("size %d costs %v, and %d %v", size, before, factor*size, after)
			return
		}
	}
	t.Errorf("size %d costs %v, and %d %v: %.0f times as much, at most %.0f are expected", size, before, factor*size, after,
		float64(after)/float64(before), most)
}

// Benchmark measures work of several sizes.
func Benchmark(b *testing.B, prepare Prepare) {
	b.Helper()
	for _, size := range []int{10, 100, 1000, 5000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			work := prepare(b, size)
			b.ReportAllocs()
			for b.Loop() {
				work()
			}
		})
	}
}

// cost returns the time of the processor that work takes.
func cost(tb testing.TB, work func()) time.Duration {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for times := 1; ; times *= 2 { // To read the time takes time, too.
		began := used(tb)
		for range times {
			work()
		}
		if took := used(tb) - began; took >= enough {
			return took / time.Duration(times)
		}
	}
}

// used returns the time of the processor that the present thread has had.
func used(tb testing.TB) time.Duration {
	tb.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(now.Nano())
}
