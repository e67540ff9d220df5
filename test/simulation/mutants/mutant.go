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
	"encoding/json"
	"errors"
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
	// File is the file that it is in, from the root of the repository. From is a text that stands there once, and To what it becomes.
	File string `json:"file"`
	From string `json:"from"`
	To   string `json:"to"`
	// Unseen says why no history can show it. Empty: some do.
	Unseen string `json:"unseen,omitempty"`
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

// apply returns the file with the fault. root is the root of the repository.
func (m Mutant) apply(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", fmt.Errorf("reading the file of %s: %w", m.Name, err)
	}
	if m.From == m.To {
		return "", fmt.Errorf("%s changes nothing", m.Name)
	}
	switch n := strings.Count(string(content), m.From); n {
	case 1:
		return strings.Replace(string(content), m.From, m.To, 1), nil
	case 0:
		return "", fmt.Errorf("the text of %s is not in %s", m.Name, m.File)
	default:
		return "", fmt.Errorf("the text of %s is %d times in %s", m.Name, n, m.File)
	}
}

// overlay writes the mutated file and the overlay that the go command reads into a folder, and returns the path of the latter.
func (m Mutant) overlay(root, folder string) (string, error) {
	mutated, err := m.apply(root)
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(filepath.Join(root, m.File))
	if err != nil {
		return "", fmt.Errorf("locating %s: %w", m.File, err)
	}
	source, path := filepath.Join(folder, m.Name+".go"), filepath.Join(folder, m.Name+".json")
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": {original: source}})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay of %s: %w", m.Name, err)
	}
	if err := errors.Join(os.WriteFile(source, []byte(mutated), 0o600), os.WriteFile(path, encoded, 0o600)); err != nil {
		return "", fmt.Errorf("writing the overlay of %s: %w", m.Name, err)
	}
	return path, nil
}
