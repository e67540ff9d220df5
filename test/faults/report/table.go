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

package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Begin and End are the lines between which a document has the table.
const (
	Begin = "<!-- faults: what stands below is written by make faults -->"
	End   = "<!-- faults: end -->"
)

// unmeasured stands where a row has no figures.
const unmeasured = "not measured"

// Write returns a document with the table of the figures in place of the one between Begin and End. Where a test has several lines the
// last one counts; those of short forms do not.
func Write(document []byte, figures io.Reader) ([]byte, error) {
	lines, err := read(figures)
	if err != nil {
		return nil, err
	}
	before, rest, found := bytes.Cut(document, []byte(Begin))
	_, after, ended := bytes.Cut(rest, []byte(End))
	if !found || !ended {
		return nil, fmt.Errorf("the document has no place for the table: %q and %q", Begin, End)
	}
	return slices.Concat(before, []byte(Begin+"\n"+table(lines)+End), after), nil
}

func read(figures io.Reader) ([]line, error) {
	var lines []line
	scanner := bufio.NewScanner(figures)
	for scanner.Scan() {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("reading the figure %q: %w", scanner.Text(), err)
		}
		if !slices.ContainsFunc(descriptions, func(d description) bool { return d.row == l.Row }) {
			return nil, fmt.Errorf("%s has figures of a row %q, which there is not", l.Test, l.Row)
		}
		if !l.Long {
			continue
		}
		same := func(other line) bool { return other.Row == l.Row && other.Test == l.Test }
		lines = append(slices.DeleteFunc(lines, same), l)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the figures: %w", err)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.Test, b.Test) })
	return lines, nil
}

func table(lines []line) string {
	var text strings.Builder
	text.WriteString("| Fault | Promise | Measured |\n|---|---|---|\n")
	for _, d := range descriptions {
		var cells []string
		for _, l := range lines {
			if l.Row != d.row {
				continue
			}
			said := strings.Join(l.Said, "; ")
			if l.Failed {
				said = strings.TrimSuffix("**broken**, see "+l.Test+"; "+said, "; ")
			}
			if said != "" {
				cells = append(cells, said)
			}
		}
		if len(cells) == 0 {
			cells = []string{unmeasured}
		}
		measured := strings.ReplaceAll(strings.Join(cells, ". "), "|", `\|`)
		fmt.Fprintf(&text, "| %s | %s | %s |\n", d.fault, d.promise, measured)
	}
	return text.String()
}
