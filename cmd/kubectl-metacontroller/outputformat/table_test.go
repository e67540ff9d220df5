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
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestATableKeepsItsColumnsAndItsWidth(t *testing.T) {
	var out bytes.Buffer
	table := &Table{Out: &out}
	long := "sync hook failed: " + strings.Repeat("x", 200) + ": the reason"
	for _, rows := range [][][]string{{{"NAME", "STATE", "MESSAGE"}, {"a-long-name", "Failing", long}}, {{"b", "Synced", "-"}}} {
		if err := table.Print(rows...); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(out.String(), "\n")
	if want := "NAME          STATE     MESSAGE"; lines[0] != want {
		t.Errorf("got %q, want %q", lines[0], want)
	}
	if n := utf8.RuneCountInString(lines[1]); n != Columns || !strings.HasSuffix(lines[1], ": the reason") || !strings.Contains(lines[1], "Failing   sync hook failed: x") {
		t.Errorf("got %d characters in %q", n, lines[1])
	}
	if want := "b             Synced    -"; lines[2] != want {
		t.Errorf("got %q, want %q", lines[2], want)
	}
	out.Reset()
	if err := (&Table{Out: &out, Wide: true}).Print([]string{"a", long}); err != nil || out.String() != "a   "+long+"\n" {
		t.Errorf("wide: got %q, error %v", out.String(), err)
	}
}
