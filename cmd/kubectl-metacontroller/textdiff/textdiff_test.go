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

package textdiff_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
)

func TestHunksAreThoseOfAUnifiedDiff(t *testing.T) {
	for name, tc := range map[string]struct{ before, after, want string }{
		"the same":      {"a\nb\n", "a\nb\n", ""},
		"from nothing":  {"", "a\nb\n", "@@ -1,0 +1,2 @@\n+a\n+b\n"},
		"to nothing":    {"a\n", "", "@@ -1,1 +1,0 @@\n-a\n"},
		"a line":        {"a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		"moved lines":   {"a\nb\nc\nd\n", "b\nc\nd\na\n", "@@ -1,4 +1,4 @@\n-a\n b\n c\n d\n+a\n"},
		"no end":        {"a", "a\nb", "@@ -1,1 +1,2 @@\n a\n+b\n"},
		"between lines": {"a\nc\nd\nb\n", "a\nd\nc\nb\n", "@@ -1,4 +1,4 @@\n a\n-c\n d\n+c\n b\n"},
		"far apart": {
			"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", "x\n2\n3\n4\n5\n6\n7\n8\n9\ny\n",
			"@@ -1,4 +1,4 @@\n-1\n+x\n 2\n 3\n 4\n@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-10\n+y\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := textdiff.Lines(tc.before, tc.after)
			var out bytes.Buffer
			textdiff.Printer{Out: &out}.Hunks(lines)
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if textdiff.Different(lines) != (tc.want != "") {
				t.Errorf("different: %t", textdiff.Different(lines))
			}
		})
	}
}

// However they differ, the lines that are kept and removed are the one text, and those kept and added the other.
func TestBothTextsAreInTheLines(t *testing.T) {
	long := strings.Repeat("x\ny\n", 3000)
	for _, pair := range [][2]string{{"a\nb\nc", "c\nb\na"}, {"a\na\na\nb", "b\na\nb\na"}, {long + "a", strings.Repeat("z\n", 3000) + "b"}} {
		var before, after []string
		for _, line := range textdiff.Lines(pair[0], pair[1]) {
			if line.Mark != textdiff.Added {
				before = append(before, line.Text)
			}
			if line.Mark != textdiff.Removed {
				after = append(after, line.Text)
			}
		}
		if strings.Join(before, "\n") != pair[0] || strings.Join(after, "\n") != pair[1] {
			t.Errorf("the lines of a pair that begins with %.20q are not those of both", pair[0])
		}
	}
}

func TestColorsAreForTerminals(t *testing.T) {
	var out bytes.Buffer
	for flag, want := range map[string]bool{"always": true, "never": false, "auto": false} {
		if got, err := textdiff.WantsColor(flag, &out); err != nil || got != want {
			t.Errorf("%s: got %t, %v", flag, got, err)
		}
	}
	if _, err := textdiff.WantsColor("red", &out); err == nil || !strings.Contains(err.Error(), "auto, always or never") {
		t.Errorf("a color that is not known: %v", err)
	}
	p := textdiff.Printer{Out: &out, Color: true}
	p.Titlef("it")
	p.Files("a", "")
	p.Place("here")
	p.Notef("%d", 1)
	p.Whole(textdiff.Lines("a\nb", "b\nc"))
	want := "\x1b[1mit\x1b[0m\n\x1b[1m--- a\x1b[0m\n\x1b[1m+++ /dev/null\x1b[0m\n\x1b[36m@@ here @@\x1b[0m\n\x1b[33m# 1\x1b[0m\n" +
		"\x1b[31m-a\x1b[0m\n b\n\x1b[32m+c\x1b[0m\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
