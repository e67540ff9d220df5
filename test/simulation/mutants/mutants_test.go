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
	"go/parser"
	"go/token"
	"regexp"
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
			file, content, err := m.apply(root)
			if err != nil {
				t.Fatalf("%v; the engine has changed, so change the mutant", err)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution); err != nil {
				t.Errorf("it is no Go: %v", err)
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
