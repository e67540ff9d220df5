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
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"go.uber.org/zap/zapcore"
)

// A fatalHook catches the places where etcd gives up: it logs at the level Fatal or Panic and expects not to go on.
//
// The default would be os.Exit or a panic in a goroutine of etcd, and the cause would be somewhere in the log. The hook keeps
// the cause and freezes the goroutine instead: nothing after such a line may run, not even deferred functions, because etcd
// was written for a process that is gone by then. The frozen goroutine acknowledges no write. It lives until the process
// ends, which is soon: Done tells the owner of the Server.
type fatalHook struct {
	once  sync.Once
	fired chan struct{}
	cause error
}

func newFatalHook() *fatalHook { return &fatalHook{fired: make(chan struct{})} }

// OnWrite implements zapcore.CheckWriteHook.
func (h *fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	h.once.Do(func() {
		h.cause = entryError(entry.Message, fields)
		close(h.fired)
	})
	select {}
}

// err returns why etcd gave up. It may be called only after fired is closed.
func (h *fatalHook) err() error { return h.cause }

// entryError makes one error of a log line and the errors among its fields.
func entryError(message string, fields []zapcore.Field) error {
	var causes []error
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			causes = append(causes, err)
		}
	}
	if len(causes) == 0 {
		return errors.New(message)
	}
	return fmt.Errorf("%s: %w", message, errors.Join(causes...))
}

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
