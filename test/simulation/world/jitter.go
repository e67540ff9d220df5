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
	"math/rand" //nolint:depguard // It is the source of client-go's jitter.
)

// seedJitter makes the jitter repeatable that client-go and apimachinery take from math/rand. It has an effect in programs with
// "//go:debug randseednop=0" only.
func seedJitter(seed uint64) {
	rand.Seed(int64(seed)) //nolint:staticcheck // Only Seed reaches the source that these libraries use.
}
