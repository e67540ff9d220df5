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

import "testing"

func TestTheSquareOfASizeIsNoStraightLine(t *testing.T) {
	const size = 1000
	list := make([]int, factor*size)
	sum := 0
	linear := func(_ testing.TB, n int) func() {
		return func() {
			for _, each := range list[:n] {
				sum += each
			}
		}
	}
	square := func(_ testing.TB, n int) func() {
		return func() {
			for range n {
				for _, each := range list[:n] {
					sum += each
				}
			}
		}
	}
	constant := func(_ testing.TB, _ int) func() { return func() { sum += list[0] } }
	for _, row := range []struct {
		name    string
		prepare Prepare
		most    float64
		holds   bool
	}{
		{"constant work", constant, Constant, true},
		{"linear work", linear, Linear, true},
		{"linear work that should be constant", linear, Constant, false},
		{"the square", square, Linear, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			small, large := cost(t, row.prepare(t, size)), cost(t, row.prepare(t, factor*size))
			if holds := float64(large) <= row.most*float64(small); holds != row.holds {
				t.Errorf("%v and %v, at most %v times as much: %t", small, large, row.most, holds)
			}
			if row.holds {
				Check(t, size, row.most, row.prepare)
			}
		})
	}
}
