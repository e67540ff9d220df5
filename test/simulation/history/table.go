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

package history

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

// Table prints what happened in a history: who did what when, and which invariant was violated.
func Table(out io.Writer, h History, r Result) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "STEP\tAT\tWHO\tWHAT") // What cannot be written cannot be reported there either.
	for _, d := range r.Log {
		step := "end"
		if d.Step >= 0 && d.Step < len(h.Steps) {
			step = fmt.Sprintf("%d %s", d.Step, h.Steps[d.Step].Do)
		}
		_, _ = fmt.Fprintf(t, "%s\t%.3fs\t%s\t%s\n", step, d.At.Seconds(), d.Who, d.What)
	}
	_ = t.Flush()
	if r.Violation != nil {
		_, _ = fmt.Fprintf(out, "VIOLATED %v\n", r.Violation)
	}
}

// PrintTrace prints what the world did.
func PrintTrace(out io.Writer, r Result) { world.PrintTrace(out, r.Trace) }

// Pairs counts which action followed which.
type Pairs map[string]int

// Add adds the actions of a history.
func (p Pairs) Add(happened []Action) {
	for i := 1; i < len(happened); i++ {
		p[string(happened[i-1])+" "+string(happened[i])]++
	}
}

// Merge adds the counts of others.
func (p Pairs) Merge(others Pairs) {
	for pair, n := range others {
		p[pair] += n
	}
}

// Table says how many pairs there were, and which were not.
func (p Pairs) Table() string {
	var b strings.Builder
	var absent []string
	actions := acting()
	for _, first := range actions {
		for _, second := range actions {
			if first != second && p[string(first)+" "+string(second)] == 0 {
				absent = append(absent, string(first)+" → "+string(second))
			}
		}
	}
	all := len(actions) * (len(actions) - 1)
	fmt.Fprintf(&b, "%d of %d pairs of different actions followed each other.", all-len(absent), all)
	if len(absent) > 0 {
		fmt.Fprintf(&b, " Not: %s", strings.Join(absent[:min(len(absent), 20)], ", "))
	}
	return b.String()
}

// acting are the actions that are not the scheduler's.
func acting() []Action {
	var all []Action
	for _, a := range slices.Sorted(maps.Keys(actions)) {
		switch a {
		case RunOn, Pass, Rest, StaleAfterWrite, SkipEvents, KillAfterWrite:
		default:
			all = append(all, a)
		}
	}
	return all
}
