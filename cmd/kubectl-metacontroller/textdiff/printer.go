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

package textdiff

import (
	"cmp"
	"fmt"
	"io"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
)

// context is how many lines around a difference are printed, as diff -u does.
const context = 3

// The colors of git diff.
const (
	reset  = "\x1b[0m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// WantsColor reads the value of a flag --color: always, never, or auto, which is a terminal unless the environment variable NO_COLOR is set.
func WantsColor(flag string, out io.Writer) (bool, error) {
	switch flag {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return outputformat.WantsColor(out), nil
	}
	return false, fmt.Errorf("--color: %q is not known: use auto, always or never", flag)
}

// Printer writes differences. It is for one goroutine.
type Printer struct {
	Out io.Writer
	// Color has lines colored, for a terminal.
	Color bool
	// Each gets the lines in place of Out, if it is there.
	Each func(Line)
}

// colors are those of lines.
var colors = map[Mark]string{Title: bold, File: bold, Place: cyan, Note: yellow, Removed: red, Added: green}

// Titlef writes a line above all that belongs to one thing.
func (p Printer) Titlef(format string, args ...any) { p.line(Title, fmt.Sprintf(format, args...)) }

// Files writes what is compared with what. An empty name is written as /dev/null: there is none.
func (p Printer) Files(before, after string) {
	p.line(File, "--- "+cmp.Or(before, "/dev/null"))
	p.line(File, "+++ "+cmp.Or(after, "/dev/null"))
}

// Place writes where the lines that follow are.
func (p Printer) Place(place string) { p.line(Place, "@@ "+place+" @@") }

// Notef writes a remark.
func (p Printer) Notef(format string, args ...any) { p.line(Note, "# "+fmt.Sprintf(format, args...)) }

// Whole writes all lines.
func (p Printer) Whole(lines []Line) {
	for _, line := range lines {
		p.marked(line)
	}
}

// Hunks writes the lines that differ and three around them, with their numbers, as diff -u does.
func (p Printer) Hunks(lines []Line) {
	shown := make([]bool, len(lines))
	for i, line := range lines {
		if line.Mark != Same {
			for near := max(0, i-context); near < min(len(lines), i+context+1); near++ {
				shown[near] = true
			}
		}
	}
	before, after := 1, 1
	for i, line := range lines {
		if shown[i] && (i == 0 || !shown[i-1]) {
			p.Place(numbers(lines[i:], shown[i:], before, after))
		}
		if shown[i] {
			p.marked(line)
		}
		if line.Mark != Added {
			before++
		}
		if line.Mark != Removed {
			after++
		}
	}
}

// numbers are those of the lines of a hunk, as in -3,7 +3,8.
func numbers(lines []Line, shown []bool, before, after int) string {
	removed, added := 0, 0
	for i := 0; i < len(lines) && shown[i]; i++ {
		if lines[i].Mark != Added {
			removed++
		}
		if lines[i].Mark != Removed {
			added++
		}
	}
	return fmt.Sprintf("-%d,%d +%d,%d", before, removed, after, added)
}

func (p Printer) marked(line Line) {
	p.line(line.Mark, string(line.Mark)+line.Text)
}

func (p Printer) line(mark Mark, text string) {
	if p.Each != nil {
		p.Each(Line{mark, text})
		return
	}
	if color := colors[mark]; p.Color && color != "" {
		text = color + text + reset
	}
	fmt.Fprintln(p.Out, text)
}
