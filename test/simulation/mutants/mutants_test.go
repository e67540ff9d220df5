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

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is that of the repository, from this folder.
const root = "../../.."

func mutants(t *testing.T) []Mutant {
	t.Helper()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMutantsFitTheEngine(t *testing.T) {
	for _, m := range mutants(t) {
		t.Run(m.Name, func(t *testing.T) {
			files, err := weave(root, []Mutant{m})
			if err != nil {
				t.Fatalf("%v; the engine has changed, so change the mutant", err)
			}
			if len(files) != 2 {
				t.Errorf("%d files are woven, want that of the fault and that of its switch", len(files))
			}
		})
	}
}

func TestKeptHistoriesOfMutantsAreThere(t *testing.T) {
	kept := 0
	for _, m := range mutants(t) {
		if m.Kept == "" {
			continue
		}
		kept++
		if _, err := os.Stat(filepath.Join(root, tested, "history", "testdata", m.Kept+".json")); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if kept == 0 {
		t.Error("no mutant has one")
	}
}

func TestMutantsAreWovenTogether(t *testing.T) {
	all := mutants(t)
	files, err := weave(root, all)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(slices.Collect(maps.Values(files)), "")
	for _, m := range all {
		if n := strings.Count(text, strconv.Quote(m.Name)); n != 1 {
			t.Errorf("%s is switched on in %d places", m.Name, n)
		}
	}
}

func TestWovenFunctionsCallTheirCopies(t *testing.T) {
	for name, tc := range map[string]struct{ content, from, to, want string }{
		"Function": {
			"package p\n\nfunc f(a, b int) int { return a + b }\n", "a + b", "a - b",
			`package p

func f(a, b int) int {
	if simulationMutant == "one" {
		return f_one(a, b)
	}
	return a + b
}

func f_one(a, b int) int { return a - b }
`,
		},
		"Method": {
			"package p\n\nfunc (q *queue[K]) add(keys ...K) { q.keys = append(q.keys, keys...) }\n", "q.keys, keys", "keys, q.keys",
			`package p

func (q *queue[K]) add(keys ...K) {
	if simulationMutant == "one" {
		q.add_one(keys...)
		return
	}
	q.keys = append(q.keys, keys...)
}

func (q *queue[K]) add_one(keys ...K) { q.keys = append(keys, q.keys...) }
`,
		},
		"OutsideOfFunctions":   {"package p\n\nconst limit = 3\n", "3", "4", ""},
		"ParameterWithoutName": {"package p\n\nfunc f(_ int) int { return 1 }\n", "1", "2", ""},
		"Nowhere":              {"package p\n", "x", "y", ""},
		"Twice":                {"package p\n\nfunc f() int { return 1 + 1 }\n", "1", "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			files, err := weave(folder, []Mutant{{Name: "one", From: tc.from, To: tc.to}})
			if got := files[filepath.Join(folder, "p.go")]; got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("it becomes %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

func TestMutantsAreFaultsOfTheEngine(t *testing.T) {
	seen := map[string]bool{}
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, m := range mutants(t) {
		switch {
		case !name.MatchString(m.Name) || seen[m.Name]:
			t.Errorf("%q is no name, or that of two mutants", m.Name)
		case m.Breaks == "":
			t.Errorf("%s does not say what it breaks", m.Name)
		case !strings.HasPrefix(m.Folder, "pkg/"):
			t.Errorf("%s is in %s, which is not the engine", m.Name, m.Folder)
		}
		seen[m.Name] = true
	}
	if len(seen) < ofMutants {
		t.Errorf("there are %d mutants, and %d are needed at least", len(seen), ofMutants)
	}
}
