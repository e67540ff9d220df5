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
	"text/tabwriter"
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
