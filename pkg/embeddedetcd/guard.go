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

package embeddedetcd

import (
	"fmt"
	"runtime/debug"
)

// A panicError is a panic that was turned into an error: the stored data made etcd or bbolt lose its footing.
type panicError struct{ cause any }

// Error returns what the panic said.
func (e *panicError) Error() string { return fmt.Sprintf("reading the stored data: %v", e.cause) }

// guarded calls f on the current goroutine and returns a panic in it as a *panicError. So it does with a fault of the memory,
// which is how the kernel reports a read beyond the end of a mapped file, or a failing disk under it.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &panicError{cause: cause}
		}
	}()
	return f()
}
