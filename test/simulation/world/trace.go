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
	"text/tabwriter"
	"time"
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
