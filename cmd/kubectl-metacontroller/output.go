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
	"errors"
	"os"
	"syscall"
)

// errClosed says that nobody reads the output any more.
var errClosed = errors.New("the output is closed")

// output is an output that ends the command when nobody reads it any more, as after head or when a pager is left.
type output struct {
	file *os.File
	end  context.CancelCauseFunc
}

// Write writes to the file.
func (o output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.end(errClosed)
	}
	return n, err
}

// Fd is that of the file, which may be a terminal.
func (o output) Fd() uintptr { return o.file.Fd() }
