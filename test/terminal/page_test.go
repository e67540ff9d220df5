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

package terminal

import "testing"

func TestSplit(t *testing.T) {
	for text, want := range map[string][2]string{
		"one\nprinted\n":                          {"one", "printed\n"},
		"one\n":                                   {"one", ""},
		"one \\\n  more\nprinted\n":               {"one \\\n  more", "printed\n"},
		"cat > a <<'END'\nb\n\nEND\nprinted\n":    {"cat > a <<'END'\nb\n\nEND", "printed\n"},
		"cat > a <<'END' && \\\nb\nEND\nc\nEND\n": {"cat > a <<'END' && \\\nb\nEND", "c\nEND\n"},
	} {
		command, printed := split(text)
		if command != want[0] || printed != want[1] {
			t.Errorf("%q is split into %q and %q, want %q", text, command, printed, want)
		}
	}
}

func TestCut(t *testing.T) {
	const page = "# Page\n\n## One\n\na\n\n### Deeper\n\nb\n\n## Two\n\nc\n"
	for heading, want := range map[string]string{
		"":           page,
		"## One":     "\n## One\n\na\n\n### Deeper\n\nb\n",
		"### Deeper": "\n### Deeper\n\nb\n\n## Two\n\nc\n",
		"## Two":     "\n## Two\n\nc\n",
		"## Three":   "",
	} {
		before, section, after := cut(page, heading)
		if section != want {
			t.Errorf("%s is %q, want %q", heading, section, want)
		}
		if section != "" && before+section+after != page {
			t.Errorf("%s: the page has become %q", heading, before+section+after)
		}
	}
}
