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

package outputformat

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// Columns is how many characters a line of a table has at most, unless it is wide.
	Columns = 120
	// gap is between columns, as kubectl has it.
	gap = 3
	// leastLast is how many characters the last column has at least.
	leastLast = 24
)

// Colors of states, as far as they are no state of waiting.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// stateColors are those of words that stand in a cell alone.
var stateColors = map[string]string{
	"Synced": green, "True": green, "Ready": green, "Running": green, "Available": green, "Complete": green, "Succeeded": green,
	"Failing": red, "False": red, "NotReady": red, "Failed": red,
	"Pending": yellow, "Syncing": yellow, "Waiting": yellow, "Held": yellow, "Paused": yellow, "being deleted": yellow,
}

// Table prints rows in columns. It keeps the widths of columns, so that what is printed later stands below what was printed before. It is for one
// goroutine.
type Table struct {
	Out io.Writer
	// Wide has lines as long as they are.
	Wide bool

	widths []int
}

// Print writes rows. The last column is cut in its middle where a line would be too long: the reason of an error stands at its end.
func (t *Table) Print(rows ...[]string) error {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	color := WantsColor(t.Out)
	for _, row := range rows {
		var b strings.Builder
		left := Columns
		for i, cell := range row {
			padding := t.widths[i] - utf8.RuneCountInString(cell) + gap
			left -= t.widths[i] + gap
			if i == len(row)-1 {
				padding = 0
				if !t.Wide {
					cell = Middle(cell, max(leastLast, left+t.widths[i]+gap))
				}
			}
			if color && stateColors[cell] != "" {
				cell = stateColors[cell] + cell + reset
			}
			b.WriteString(cell + strings.Repeat(" ", padding))
		}
		if _, err := fmt.Fprintln(t.Out, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// expressions are those that Kubernetes adds to what is wrong with a name, longer than what is said before.
var expressions = regexp.MustCompile(` \((e\.g\. .*, )?regex used for validation is '[^']*'\)`)

// longWord is how long a word is that is cut.
const longWord = 12

// Middle returns a text of at most so many characters, without its middle if it has more. Short words stay whole.
func Middle(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	if short := expressions.ReplaceAllString(text, ""); short != text {
		return Middle(short, most)
	}
	head := most / 3
	first, last := string(runes[:head]), string(runes[len(runes)-(most-head-1):])
	if end := strings.LastIndex(first, " "); end >= len(first)-longWord {
		first = first[:end+1]
	}
	if begin := strings.Index(last, " "); begin >= 0 && begin < min(longWord, len(last)/2) {
		last = last[begin:]
	}
	return first + "…" + last
}

// WantsColor tells whether an output is a terminal, unless the environment variable NO_COLOR is set.
func WantsColor(out io.Writer) bool {
	file, ok := out.(interface{ Fd() uintptr })
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}

// Duration returns a duration as kubectl prints it. One below zero, which there is where the clock of the server is ahead, is printed as none.
func Duration(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Count returns a number with the word for what it counts, such as 1 sync or 2 syncs.
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
