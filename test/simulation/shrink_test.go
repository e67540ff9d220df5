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

package simulation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/history"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// once is the work of a process that runs the history of a file as TestReplay does.
const once = "once "

func runOnce(t *testing.T, file string) {
	t.Helper()
	h, err := history.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	result := run(t, h, true)
	m := message{Seed: h.Seed, Steps: result.Steps}
	if v := result.Violation; v != nil {
		m.Invariant, m.Text, m.Table = v.Invariant, v.String(), table(h, result)
	}
	send(m)
}

func table(h history.History, r history.Result) string {
	var b strings.Builder
	history.Table(&b, h, r)
	return b.String()
}

// shrink shrinks the history of a violation, keeps it if that was asked for, and returns what is to be printed of it. Each candidate runs in a process
// of its own, so that it is replayed as it was found: what a process makes once, and what its pools hold, decide about a history, too.
func (f *fleet) shrink(found message) string {
	h := history.Generate(found.Seed)
	file := filepath.Join(f.t.TempDir(), "candidate.json")
	first := f.runAlone(h, file)
	if first.Invariant != found.Invariant {
		return f.shrinkElsewhere(found.Seed)
	}
	h = h.Until(first.Steps)
	last := first
	small := shrinkInTime(h, func(candidate history.History) bool {
		m := f.runAlone(candidate, file)
		if m.Invariant != found.Invariant {
			return false
		}
		last = m
		return true
	})
	return last.Table + kept(f.t, small, found.Invariant, len(h.Steps))
}

// shrinkInTime shrinks a history until the time for that is over.
func shrinkInTime(h history.History, violates func(history.History) bool) history.History {
	end := time.Now().Add(*shrinks)
	return history.Shrink(h, *attempts, func(candidate history.History) bool { return time.Now().Before(end) && violates(candidate) })
}

// runAlone runs a history, which it writes to a file, in a process of its own.
func (f *fleet) runAlone(h history.History, file string) message {
	if err := h.Write(file); err != nil {
		f.t.Fatal(err)
	}
	var result message
	_, _, _ = f.process(once+file, func(m message) { result = m })
	return result
}

// shrinkElsewhere shrinks a history that violates nothing in a process that has run no other, in one that runs all candidates.
func (f *fleet) shrinkElsewhere(seed uint64) string {
	printed := ""
	if _, ended, output := f.process(fmt.Sprintf("shrink %d", seed), func(m message) { printed = m.Table }); !ended {
		printed += output
	}
	return printed
}

// again runs a history until it violates something. The history that is returned has the steps that were done until then.
func again(t *testing.T, h history.History) (history.History, *invariant.Violation) {
	t.Helper()
	for range 5 * *attempts {
		if r := run(t, h, false); r.Violation != nil {
			return h.Until(r.Steps), r.Violation
		}
	}
	return h, nil
}

// shrinkHere shrinks a history in this process, prints it, and keeps it if that was asked for.
func shrinkHere(t *testing.T, h history.History) {
	t.Helper()
	h, v := again(t, h)
	if v == nil {
		t.Fatalf("seed %d violates nothing when it is run again", h.Seed)
	}
	small := shrinkInTime(h, func(candidate history.History) bool {
		found := run(t, candidate, false).Violation
		return found != nil && found.Invariant == v.Invariant
	})
	result := run(t, small, true)
	text := table(small, result)
	if result.Violation == nil {
		text += "It violated this after other histories in the same process, and did not when it was printed.\n"
	}
	send(message{Seed: h.Seed, Table: text + kept(t, small, v.Invariant, len(h.Steps))})
}

// kept stores a shrunk history, and returns how to replay it.
func kept(t *testing.T, small history.History, violated string, steps int) string {
	t.Helper()
	small.Invariant = violated
	dir := *keep
	if dir == "" {
		dir = os.TempDir()
	}
	file := filepath.Join(dir, fmt.Sprintf("%s-%d.json", violated, small.Seed))
	if err := small.Write(file); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d of %d steps are left. Replay with:\n  make simulate-replay HISTORY=%s\n", len(small.Steps), steps, file)
}
