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

package recovery

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// count is the number of recovered panics of the process.
var count atomic.Int64 //nolint:gochecknoglobals // It counts for the process, as its metric does.

// Count returns how many panics Call has recovered since the process started. It may be called from anywhere.
func Count() int64 { return count.Load() }

// A PanicError says that code panicked. Where it did is in the log.
type PanicError struct {
	// What says what was being done.
	What string
	// Value is what the code panicked with.
	Value any
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic while %s: %v; this is a bug, and the server's log says where", e.What, e.Value)
}

// Unwrap returns the error that the code panicked with, nil if it was another value.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Call calls f and returns its error. If f panics, Call logs the panic with its stack, counts it, and returns a
// *PanicError. what says what f does, such as "writing children", and names no secret.
func Call(ctx context.Context, what string, f func() error) error {
	return CallLogged(what, func(value any) { Log(ctx, what, value) }, f)
}

// Log logs a panic as Call does. It is for the log of CallLogged.
func Log(ctx context.Context, what string, value any) {
	klog.FromContext(ctx).Error(nil, "Recovered from a panic", "what", what, "panic", value, "stack", string(debug.Stack()))
}

// CallLogged is Call with another log of a panic, which is given what f panicked with. It is called on the stack of the panic.
func CallLogged(what string, log func(value any), f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			count.Add(1)
			log(value)
			err = &PanicError{What: what, Value: value}
		}
	}()
	return f()
}
