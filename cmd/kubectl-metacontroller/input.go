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

package main

import (
	"context"
	"io"
)

// input is an input whose reads end with a context.
type input struct {
	// ctx is that of the process: who reads has none.
	ctx context.Context
	in  io.Reader
}

// Read reads from the input until the context ends.
func (i input) Read(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	// What is read after the context has ended is nobody's, and must not be written to p.
	buffer := make([]byte, len(p))
	// Nobody can end a read of a terminal, so that nobody waits for it: it ends with the process, for which the context has ended.
	go func() {
		n, err := i.in.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case got := <-done:
		return copy(p, buffer[:got.n]), got.err
	case <-i.ctx.Done():
		return 0, context.Cause(i.ctx)
	}
}
