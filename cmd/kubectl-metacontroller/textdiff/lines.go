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
	"slices"
	"strings"
)

// Mark says what a line is in a difference.
type Mark byte

// The marks, as they are printed at the beginning of the line.
const (
	Same    Mark = ' '
	Removed Mark = '-'
	Added   Mark = '+'
)

// Marks of lines around those of a difference, which are printed without it: what belongs to one thing, names of what is compared, a place, a remark.
const (
	Title Mark = '='
	File  Mark = '/'
	Place Mark = '@'
	Note  Mark = '#'
)

// Line is a line of a difference, without its end.
type Line struct {
	Mark Mark
	Text string
}

// maxCells bounds the memory of a comparison. Texts that differ in more than that are removed and added as a whole.
const maxCells = 4 << 20

// Lines returns all lines of two texts, with as many of them the same as can be. An empty text has no lines.
func Lines(before, after string) []Line {
	a, b := split(before), split(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	lines := marked(nil, Same, a[:head])
	lines = between(lines, a[head:len(a)-tail], b[head:len(b)-tail])
	return marked(lines, Same, a[len(a)-tail:])
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func marked(lines []Line, mark Mark, texts []string) []Line {
	for _, text := range texts {
		lines = append(lines, Line{mark, text})
	}
	return lines
}

// between compares by the longest common subsequence.
func between(lines []Line, a, b []string) []Line {
	if (len(a)+1)*(len(b)+1) > maxCells {
		return marked(marked(lines, Removed, a), Added, b)
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i, one := range slices.Backward(a) {
		for j, other := range slices.Backward(b) {
			if one == other {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			lines = append(lines, Line{Same, a[i]})
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			lines = append(lines, Line{Removed, a[i]})
			i++
		default:
			lines = append(lines, Line{Added, b[j]})
			j++
		}
	}
	return marked(marked(lines, Removed, a[i:]), Added, b[j:])
}

// Different tells whether a difference has lines that are not the same.
func Different(lines []Line) bool {
	return slices.ContainsFunc(lines, func(line Line) bool { return line.Mark != Same })
}
