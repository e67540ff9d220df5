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
	"runtime"
	"testing"
)

func TestAQueueWithoutKeysKeepsNoMemoryOfThem(t *testing.T) {
	q, keys := New(Config{}), many(100_000)
	round := func() {
		for _, k := range keys {
			q.Add(k, Live)
		}
		for n, k := range keys {
			i, _ := q.get()
			if i.key != k {
				t.Fatalf("%s comes as number %d", i.key, n)
			}
			q.begin(i, func(error) {})
			if n%2 == 0 {
				q.succeeded(i, Result{})
			}
			q.done(i)
		}
	}
	before := live()
	round()
	if kept := live() - before; kept > 1<<20 {
		t.Errorf("%d KB are kept for %d keys that are done", kept>>10, len(keys))
	}
	round()
	if pending := q.Pending(); pending > 0 {
		t.Errorf("%d keys are pending", pending)
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(keys)
}

// live returns the bytes of all objects that are in use.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
