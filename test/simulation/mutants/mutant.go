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
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed mutants.yaml
var document []byte

// Mutant is a fault of the engine.
type Mutant struct {
	// Name identifies it.
	Name string `json:"name"`
	// Breaks says what goes wrong with it.
	Breaks string `json:"breaks"`
	// Folder is that of the package that it is in, from the root of the repository. From is a text that stands in its files once, tests
	// left out, and To what it becomes.
	Folder string `json:"folder"`
	From   string `json:"from"`
	To     string `json:"to"`
	// Unseen says why no history can show it, or hardly any. Empty: some do.
	Unseen string `json:"unseen,omitempty"`
	// Quick says that a few histories show it: those mutants are run with all other tests.
	Quick bool `json:"quick,omitempty"`
	// Kept is the kept history that shows it, where random ones rarely do. Empty: none is known.
	Kept string `json:"kept,omitempty"`
}

// load returns the mutants, in their order.
func load() ([]Mutant, error) {
	var all struct {
		Mutants []Mutant `json:"mutants"`
	}
	if err := yaml.UnmarshalStrict(document, &all); err != nil {
		return nil, fmt.Errorf("decoding mutants.yaml: %w", err)
	}
	return all.Mutants, nil
}

// place returns the file that the fault is in, and its present content. root is the root of the repository.
func (m Mutant) place(root string) (file, content string, err error) {
	files, err := filepath.Glob(filepath.Join(root, m.Folder, "*.go"))
	if err != nil {
		return "", "", fmt.Errorf("looking for the files of %s: %w", m.Name, err)
	}
	count := 0
	for _, each := range files {
		original, err := os.ReadFile(each)
		switch {
		case err != nil:
			return "", "", fmt.Errorf("reading a file of %s: %w", m.Name, err)
		case strings.HasSuffix(each, "_test.go"):
		case strings.Contains(string(original), m.From):
			file, content = each, string(original)
			count += strings.Count(content, m.From)
		}
	}
	if count != 1 || m.From == m.To {
		return "", "", fmt.Errorf("the text of %s is %d times in %s, and has to be there once and to change", m.Name, count, m.Folder)
	}
	return file, content, nil
}
