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
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

const (
	// infoVerbosity is the klog verbosity of etcd's info lines: some sixty at each start.
	infoVerbosity = 4
	// debugVerbosity is the klog verbosity of etcd's debug lines.
	debugVerbosity = 8
)

// A logBridge is a zap core that passes what etcd logs on to klog.
type logBridge struct {
	logger klog.Logger
	// closing is set while etcd is being closed, when it reports its own stopping listeners as failures.
	closing *atomic.Bool
	fields  []zapcore.Field
}

// newZapLogger returns the logger for etcd. hook is called when etcd gives up.
func newZapLogger(logger klog.Logger, closing *atomic.Bool, hook zapcore.CheckWriteHook) *zap.Logger {
	return zap.New(&logBridge{logger: logger, closing: closing}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// Enabled implements zapcore.LevelEnabler.
func (b *logBridge) Enabled(level zapcore.Level) bool {
	switch {
	case level >= zapcore.WarnLevel:
		return true
	case level == zapcore.InfoLevel:
		return b.logger.V(infoVerbosity).Enabled()
	default:
		return b.logger.V(debugVerbosity).Enabled()
	}
}

// With implements zapcore.Core.
func (b *logBridge) With(fields []zapcore.Field) zapcore.Core {
	return &logBridge{logger: b.logger, closing: b.closing, fields: slices.Concat(b.fields, fields)}
}

// Check implements zapcore.Core.
func (b *logBridge) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(entry.Level) {
		return checked.AddCore(entry, b)
	}
	return checked
}

// Write implements zapcore.Core.
func (b *logBridge) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if b.spurious(entry) {
		return nil
	}
	fields = slices.Concat(b.fields, fields)
	switch {
	case entry.Level >= zapcore.ErrorLevel && !b.expected(entry):
		b.logger.Error(errors.Join(errorsIn(fields)...), entry.Message, keysAndValues(fields, true)...)
	case entry.Level == zapcore.WarnLevel && !b.expected(entry):
		b.logger.Info(entry.Message, append(keysAndValues(fields, false), "severity", "warning")...)
	case entry.Level >= zapcore.InfoLevel:
		b.logger.V(infoVerbosity).Info(entry.Message, keysAndValues(fields, false)...)
	default:
		b.logger.V(debugVerbosity).Info(entry.Message, keysAndValues(fields, false)...)
	}
	return nil
}

// Sync implements zapcore.Core. klog flushes by itself.
func (b *logBridge) Sync() error { return nil }

// spurious tells whether a line reports the end of a listener as an error although that is what Close is for.
func (b *logBridge) spurious(entry zapcore.Entry) bool {
	return b.closing.Load() && entry.Level == zapcore.ErrorLevel &&
		strings.HasPrefix(entry.Message, "setting up serving from embedded etcd failed")
}

// expected tells whether a warning is of no use to an operator: every one is, while etcd is being closed and its parts
// complain about each other's end. The others warn of what a socket in a private directory makes harmless, or of the first
// seconds of a new database, which has no schema version before the first election.
func (b *logBridge) expected(entry zapcore.Entry) bool {
	if b.closing.Load() && entry.Level == zapcore.WarnLevel {
		return true
	}
	return slices.ContainsFunc([]string{
		"Failed to detect schema version",
		"failed to update storage version",
		"serving client traffic insecurely",
		"Running http and grpc server on single port",
		"simple token is not cryptographically signed",
		"check file permission",
	}, func(prefix string) bool { return strings.HasPrefix(entry.Message, prefix) })
}

// errorsIn returns the errors among the fields.
func errorsIn(fields []zapcore.Field) (found []error) {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			found = append(found, err)
		}
	}
	return found
}

// keysAndValues turns the fields into what klog takes, without the error when it is passed separately.
func keysAndValues(fields []zapcore.Field, withoutError bool) []any {
	encoder := zapcore.NewMapObjectEncoder()
	pairs := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		if withoutError && f.Type == zapcore.ErrorType {
			continue
		}
		f.AddTo(encoder)
		if value, found := encoder.Fields[f.Key]; found {
			pairs = append(pairs, f.Key, value)
		}
	}
	return pairs
}

// A fatalHook catches the places where etcd gives up: it logs at the level Fatal or Panic and expects not to go on.
//
// The default would be os.Exit or a panic in a goroutine of etcd, and the cause would be somewhere in the log. The hook keeps
// the cause and freezes the goroutine instead: nothing after such a line may run, not even deferred functions, because etcd
// was written for a process that is gone by then. The frozen goroutine acknowledges no write. It lives until the process
// ends, which is soon: Done tells the owner of the Server.
type fatalHook struct {
	once  sync.Once
	fired chan struct{}
	// cause is why etcd gave up. It may be read only after fired is closed.
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

// entryError makes one error of a log line and the errors among its fields.
func entryError(message string, fields []zapcore.Field) error {
	if causes := errorsIn(fields); len(causes) > 0 {
		return fmt.Errorf("%s: %w", message, errors.Join(causes...))
	}
	return errors.New(message)
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
