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
	"runtime"
	"testing"
)

// wide is a key of which a map has much memory, since it is just short enough to be in the map itself.
type wide struct {
	n int
	_ [120]byte
}

func TestAQueueWithoutKeysKeepsNoMemoryOfThem(t *testing.T) {
	const keys = 100_000
	q := newQueue[wide](Options{})
	round := func() {
		for n := range keys {
			q.Add(wide{n: n}, Live)
		}
		for n := range keys {
			key, _, _ := q.Get()
			if key.n != n {
				t.Fatalf("key %d comes as number %d", key.n, n)
			}
			q.Begin(key)
			if n%2 == 0 {
				q.Forget(key)
			}
			q.Done(key)
		}
	}
	before := live()
	round()
	if kept := live() - before; kept > 1<<20 {
		t.Errorf("%d KB are kept for %d keys that are done", kept>>10, keys)
	}
	round()
	if pending := q.Pending(); pending > 0 {
		t.Errorf("%d keys are pending", pending)
	}
	runtime.KeepAlive(q)
}

// live returns the bytes of all objects that are in use.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
