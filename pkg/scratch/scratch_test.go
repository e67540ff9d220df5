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

package scratch_test

import (
	"bytes"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/scratch"
)

func TestBuffersComeBackEmpty(t *testing.T) {
	t.Parallel()
	for range 100 {
		b := scratch.Borrow()
		if b.Len() > 0 {
			t.Fatalf("it has %d bytes of an earlier use", b.Len())
		}
		b.WriteString("secret")
		scratch.Return(b)
	}
}

func TestLargeBuffersAreNotKept(t *testing.T) {
	t.Parallel()
	const size = 2 << 20
	large := bytes.NewBuffer(make([]byte, 0, size))
	scratch.Return(large)
	for range 100 {
		if b := scratch.Borrow(); b.Cap() >= size {
			t.Fatal("it was kept")
		}
	}
}
