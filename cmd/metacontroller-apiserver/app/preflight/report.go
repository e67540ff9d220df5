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

package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Result is what a check came to.
type Result string

const (
	// OK says that nothing is in the way.
	OK Result = "ok"
	// Warning says that the server works, but perhaps not as it is wanted to.
	Warning Result = "warning"
	// Failed says that the server would not work, or a part of it would not.
	Failed Result = "failed"
	// Skipped says that the check was not made.
	Skipped Result = "skipped"
)

// A Finding is what one check found out.
type Finding struct {
	// Check names the check, for programs.
	Check string `json:"check"`
	// Result is what it came to.
	Result Result `json:"result"`
	// Message is a sentence.
	Message string `json:"message"`
	// Details are the single things of which Message speaks, such as missing rights. Empty: there are none.
	Details []string `json:"details,omitempty"`
	// Next is the next step, a sentence or commands. Empty: there is nothing to do.
	Next string `json:"next,omitempty"`
}

// A Report is all that was found out.
type Report struct {
	// Result is the worst of the findings: Failed, Warning or OK.
	Result Result `json:"result"`
	// Findings are in the order of the checks.
	Findings []Finding `json:"findings"`
}

// newReport sums findings up.
func newReport(findings []Finding) *Report {
	r := &Report{Result: OK, Findings: findings}
	switch {
	case r.count(Failed) > 0:
		r.Result = Failed
	case r.count(Warning) > 0:
		r.Result = Warning
	}
	return r
}

func (r *Report) count(result Result) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Result == result {
			n++
		}
	}
	return n
}

// print writes the report, as JSON or as text.
func (r *Report) print(out io.Writer, format string) error {
	if format == formatJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		return nil
	}
	var b strings.Builder
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "%-8s %s\n", f.Result, f.Message)
		for _, detail := range f.Details {
			fmt.Fprintf(&b, "           %s\n", detail)
		}
		if f.Next != "" {
			fmt.Fprintf(&b, "         %s\n", strings.ReplaceAll(f.Next, "\n", "\n           "))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// summary says in a sentence whether the server may be started.
func (r *Report) summary() string {
	failed, warnings := counted(r.count(Failed), "problem"), counted(r.count(Warning), "warning")
	switch r.Result {
	case Failed:
		return failed + " and " + warnings + ": solve the problems before the server is started."
	case Warning:
		return "No problem and " + warnings + ": the server can be started."
	case OK, Skipped:
	}
	return "Nothing is in the way."
}

func counted(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// An Error ends the process with a status. Its message is empty when everything was printed.
type Error struct {
	status int
	err    error
}

// Error returns what is left to print.
func (e *Error) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.err }

// ExitStatus is 1 when the checks found a problem, and 2 when they could not be made.
func (e *Error) ExitStatus() int { return e.status }
