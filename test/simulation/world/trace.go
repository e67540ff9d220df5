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

// TraceHash is a hash of all that happened: equal for two worlds in which the same happened at the same times.
func (w *World) TraceHash() uint64 { return w.hash }

// Note adds an entry, for what the world cannot know.
func (w *World) Note(actor, what string) {
	w.mix(actor)
	w.mix(what)
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
func (w *World) released(p Pending, key string, f Fault, outcome string) {
	w.mix(key)
	w.mixNumber(uint64(w.Now())<<8 | uint64(f.Kind))
	w.mix(outcome)
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

// The constants of FNV-1a for 64 bits.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (w *World) mix(text string) {
	h := w.hash
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	w.hash = (h ^ 0xff) * fnvPrime
}

func (w *World) mixNumber(n uint64) {
	h := w.hash
	for ; n != 0; n >>= 8 {
		h = (h ^ n&0xff) * fnvPrime
	}
	w.hash = (h ^ 0xff) * fnvPrime
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text) // A hash does not fail.
	return h.Sum64()
}
