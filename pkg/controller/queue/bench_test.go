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

package queue

import (
	"strconv"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

// many returns keys.
func many(n int) (keys []parent.Key) {
	for i := range n {
		keys = append(keys, key(strconv.Itoa(i)))
	}
	return keys
}

func BenchmarkAddGetDone(b *testing.B) {
	q, keys := New(Config{}), many(1000)
	b.Cleanup(run(b, q))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		q.Add(keys[n%len(keys)], Live)
		i, _ := q.get()
		q.begin(i, func(error) {})
		q.succeeded(i, Result{})
		q.done(i)
	}
}

func BenchmarkAddQueued(b *testing.B) {
	q, keys := New(Config{}), many(10000)
	b.Cleanup(run(b, q))
	for _, k := range keys {
		q.Add(k, Resync)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		q.Add(keys[n%len(keys)], Resync)
	}
}

func BenchmarkDelayed10000(b *testing.B) {
	q, keys := New(Config{}), many(10000)
	b.Cleanup(run(b, q))
	for n, k := range keys {
		q.AddAfter(k, time.Hour+time.Duration(n))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		q.retry(b.Context(), q.item(keys[n%len(keys)]), classify(later{30*time.Minute + time.Duration(n)}), Result{})
	}
}

// BenchmarkFailing10000 asks what all of many failing parents have to be looked at for.
func BenchmarkFailing10000(b *testing.B) {
	q := New(Config{})
	for _, k := range many(10000) {
		q.retry(b.Context(), q.item(k), classify(errBroken), Result{})
	}
	for name, ask := range map[string]func(){
		"Errors":         func() { q.Errors() },
		"LongestFailing": func() { q.LongestFailing(func(Failed) bool { return false }) },
		"Retrying":       func() { q.Retrying() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}
