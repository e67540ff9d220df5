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

package worker

import (
	"testing"
	"time"
)

func BenchmarkAddGetDone(b *testing.B) {
	q := newQueue[int](Options{})
	b.Cleanup(run(b, q))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		q.Add(n%1000, Live)
		key, _, _ := q.Get()
		q.Begin(key)
		q.Forget(key)
		q.Done(key)
	}
}

func BenchmarkAddQueued(b *testing.B) {
	q := newQueue[int](Options{})
	b.Cleanup(run(b, q))
	for n := range 10000 {
		q.Add(n, Resync)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		q.Add(n%10000, Resync)
	}
}

func BenchmarkDelayed10000(b *testing.B) {
	q := newQueue[int](Options{})
	b.Cleanup(run(b, q))
	for n := range 10000 {
		q.AddAfter(n, time.Hour+time.Duration(n), Resync)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		key := n % 10000
		q.RetryAfter(key, 30*time.Minute+time.Duration(n), Retry, errBroken)
	}
}
