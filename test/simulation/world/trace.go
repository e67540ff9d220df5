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

package world

import (
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Entry is something that happened.
type Entry struct {
	// At is the time since the world began.
	At time.Duration
	// Actor is who did it: an engine, a user, or the world.
	Actor string
	// What happened.
	What string
}

// Trace returns what happened, oldest first. It is empty without [Options.Trace].
func (w *World) Trace() []Entry { return w.trace }

// Note adds an entry, for what the world cannot know.
func (w *World) Note(actor, what string) {
	if w.options.Trace {
		w.trace = append(w.trace, Entry{w.Now(), actor, what})
	}
}

// PrintTrace prints entries as a table.
func PrintTrace(out io.Writer, entries []Entry) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AT\tWHO\tWHAT")
	for _, e := range entries {
		fmt.Fprintf(t, "%.3fs\t%s\t%s\n", e.At.Seconds(), e.Actor, e.What)
	}
	_ = t.Flush() // What cannot be written cannot be reported there either.
}

// released notes a release of i in the state before it.
func (w *World) released(p Pending, f Fault, outcome string) {
	if !w.options.Trace {
		return
	}
	what := p.String()
	if f.Kind != None {
		what += ": " + f.String()
	}
	if outcome != "" {
		what += " → " + outcome
	}
	w.trace = append(w.trace, Entry{w.Now(), fmt.Sprintf("engine %d", p.Engine), what})
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text) // A hash does not fail.
	return h.Sum64()
}

// LogEntry is a panic that an engine logged.
type LogEntry struct {
	// At is the time since the world began.
	At time.Duration
	// Engine is the number of the engine.
	Engine int
	// Text is the message with its values.
	Text string
}

// recovered is the message with which package recovery logs a panic.
const recovered = "Recovered from a panic"

// silence keeps what is logged without a context from being printed, and client-go from sleeping when it handles errors: it counts
// the time since the error before, which may be of another bubble.
var silence = sync.OnceFunc(func() {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // It is made for that.
})

// sink keeps the panics that an engine logs. It is safe for concurrent use.
type sink struct {
	engine *engine
	values string
}

var _ logr.LogSink = sink{}

// Init implements logr.LogSink.
func (s sink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: only errors are kept.
func (s sink) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (s sink) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (s sink) Error(_ error, message string, values ...any) {
	if strings.HasPrefix(message, recovered) {
		s.engine.panicked(message + s.values + text(values))
	}
}

// WithValues implements logr.LogSink.
func (s sink) WithValues(values ...any) logr.LogSink {
	s.values += text(values)
	return s
}

// WithName implements logr.LogSink.
func (s sink) WithName(string) logr.LogSink { return s }

func text(values []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(values); i += 2 {
		fmt.Fprintf(&b, " %v=%v", values[i], values[i+1])
	}
	return b.String()
}

// panicked keeps what an engine logged.
func (e *engine) panicked(text string) {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	e.world.panics = append(e.world.panics, LogEntry{At: e.world.Now(), Engine: e.number, Text: text})
}

// Panics returns the panics from which engines have recovered, those of killed engines among them.
func (w *World) Panics() []LogEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.panics
}
