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

package synchistory

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"
)

// Most parents go while syncs of others stay, so that every chunk has syncs that are gone beside some that are not.
func TestTheRingKeepsNoMoreMemoryThanItCounts(t *testing.T) {
	const limit = 256 << 10
	r := NewRing(limit)
	h := r.Of("c", "u")
	type piece struct {
		nodes weak.Pointer[node]
		data  weak.Pointer[byte]
		size  int64
	}
	var pieces []piece
	for i := range 20_000 {
		former := r.filling
		name := fmt.Sprintf("p%d", i)
		if i%7 == 0 {
			name = fmt.Sprintf("stays%d", i%500)
		}
		synced(h, name, fmt.Sprint(i, strings.Repeat("x", i%300)))
		if c := r.filling; c != former {
			pieces = append(pieces, piece{weak.Make(&c.nodes[0]), weak.Make(&c.data[0]), c.size})
		}
		if i%7 != 0 && i > 20 {
			h.Forget(key(fmt.Sprintf("p%d", i-20)))
		}
		if r.Bytes() > limit {
			t.Fatalf("the ring has %d bytes", r.Bytes())
		}
	}
	runtime.GC()
	kept := int64(0)
	for _, p := range pieces {
		if p.nodes.Value() != nil || p.data.Value() != nil {
			kept += p.size
		}
	}
	if len(pieces) < 50 || kept != r.Bytes() {
		t.Errorf("of %d chunks %d bytes are in memory, and the ring counts %d", len(pieces), kept, r.Bytes())
	}
	runtime.KeepAlive(r)
}
