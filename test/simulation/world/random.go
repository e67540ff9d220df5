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

package world

import (
	v1 "math/rand" //nolint:depguard // It is the source of client-go's jitter.
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// Repeatable reports whether the runtime is that of hack/repeatable-runtime, where each bubble has the same random numbers.
func Repeatable(t *testing.T) bool {
	t.Helper()
	var numbers [2]uint64
	for i := range numbers {
		synctest.Test(t, func(*testing.T) { numbers[i] = rand.Uint64() })
	}
	return numbers[0] == numbers[1]
}

// seedRandom makes what is random outside of our code depend on the seed. The jitter that client-go takes from math/rand does in programs
// with "//go:debug randseednop=0". With the runtime of hack/repeatable-runtime, where each bubble has the same numbers for all, the
// seed says how many of them are left out.
func seedRandom(seed uint64) {
	v1.Seed(int64(seed)) //nolint:staticcheck // Only Seed reaches the source that these libraries use.
	for range seed % 1021 {
		rand.Uint32()
	}
}
