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

package firsthour

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// rest is the heading of messages that no test of this package causes.
const rest = "\n## Other messages\n"

// quoted is the message of a row: the first cell, up to its backquote.
var quoted = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestThePageQuotesEachMessage holds the rows of docs/mistakes.md to what was printed: the rows above the other messages have the order of the
// mistakes, and each quotes what was printed after its mistake. An ellipsis stands for words that are left out.
func TestThePageQuotesEachMessage(t *testing.T) {
	printed, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(cluster.Root(), "docs", "mistakes.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, _, found := strings.Cut(string(page), rest)
	if !found {
		t.Fatalf("docs/mistakes.md has no heading %q", rest)
	}
	sections := strings.Split(strings.TrimPrefix(string(printed), "## "), "\n\n## ")
	rows := quoted.FindAllStringSubmatch(table, -1)
	if len(rows) != len(sections) {
		t.Fatalf("docs/mistakes.md has %d rows for %d mistakes", len(rows), len(sections))
	}
	for i, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		after := section
		for part := range strings.SplitSeq(rows[i][1], " … ") {
			_, after, found = strings.Cut(after, part)
			if !found {
				t.Errorf("%s: row %d of docs/mistakes.md quotes %q, which is not printed", title, i+1, part)
			}
		}
	}
}
