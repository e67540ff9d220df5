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

package scratch

import (
	"bytes"
	"sync"
)

// largest is the size in bytes of the largest buffer that is pooled. What is larger is rare, and would stay in memory.
const largest = 1 << 20

var pool = sync.Pool{New: func() any { return new(bytes.Buffer) }} //nolint:gochecknoglobals // A pool is shared, or it saves nothing.

// Borrow returns an empty buffer, to be given back with [Return]. It is safe for concurrent use.
func Borrow() *bytes.Buffer {
	return pool.Get().(*bytes.Buffer) //nolint:forcetypeassert // There is nothing else in the pool.
}

// Return takes a buffer back. Neither it nor its bytes may be used afterwards.
func Return(b *bytes.Buffer) {
	if b.Cap() > largest {
		return
	}
	b.Reset()
	pool.Put(b)
}
