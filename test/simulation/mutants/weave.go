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
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// variable names the environment variable that has the name of the mutant with which the engine runs. Empty: none.
const variable = "SIMULATION_MUTANT"

// switched is the variable in each mutated package that has its value.
const switched = "simulationMutant"

// weave returns the files of the engine with all mutants in them, by path: of each function with a fault there is a copy for each of its
// mutants, which it calls when that mutant is switched on. So one build has all mutants.
func weave(root string, mutants []Mutant) (map[string]string, error) {
	woven := map[string]string{}
	byFile := map[string][]Mutant{}
	contents := map[string]string{}
	for _, m := range mutants {
		file, content, err := m.place(root)
		if err != nil {
			return nil, err
		}
		byFile[file], contents[file] = append(byFile[file], m), content
	}
	for file, content := range contents {
		w := weaver{content: content, calls: map[int]string{}}
		var err error
		if w.parsed, err = parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution); err != nil {
			return nil, fmt.Errorf("parsing the engine: %w", err)
		}
		for _, m := range byFile[file] {
			if err := w.add(m); err != nil {
				return nil, err
			}
		}
		formatted, err := format.Source([]byte(w.source()))
		if err != nil {
			return nil, fmt.Errorf("the mutants of %s are no Go: %w", file, err)
		}
		woven[file] = string(formatted)
		woven[filepath.Join(filepath.Dir(file), "simulation_mutant.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(%q)\n", w.parsed.Name.Name, switched, variable)
	}
	return woven, nil
}

// weaver puts mutants into one file.
type weaver struct {
	content string
	parsed  *ast.File
	// calls are what is to be inserted, by position, and copies the mutated functions.
	calls  map[int]string
	copies []string
}

// offset returns where a position is in the file, which is the only one of its set.
func offset(p token.Pos) int { return int(p) - 1 }

func (w *weaver) add(m Mutant) error {
	at := strings.Index(w.content, m.From)
	for _, declared := range w.parsed.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Body == nil || at < offset(f.Body.Lbrace) || at+len(m.From) > offset(f.End()) {
			continue
		}
		call, err := callOf(f, copyOf(f, m))
		if err != nil {
			return fmt.Errorf("mutating for %s: %w", m.Name, err)
		}
		begin, end := offset(f.Name.End()), offset(f.End())
		mutated := w.content[begin:at] + m.To + w.content[at+len(m.From):end]
		w.copies = append(w.copies, w.content[offset(f.Pos()):offset(f.Name.Pos())]+copyOf(f, m)+mutated)
		w.calls[offset(f.Body.Lbrace)+1] += fmt.Sprintf("\nif %s == %q {\n%s\n}\n", switched, m.Name, call)
		return nil
	}
	return fmt.Errorf("the text of %s is not within a function", m.Name)
}

// copyOf names the copy of a function.
func copyOf(f *ast.FuncDecl, m Mutant) string {
	return f.Name.Name + "_" + strings.ReplaceAll(m.Name, "-", "_")
}

// callOf returns the statements by which a function returns what its copy does.
func callOf(f *ast.FuncDecl, name string) (string, error) {
	var args []string
	for _, field := range f.Type.Params.List {
		for _, param := range field.Names {
			args = append(args, param.Name)
		}
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
		if len(field.Names) == 0 {
			args = append(args, "_")
		}
	}
	if f.Recv != nil {
		if len(f.Recv.List[0].Names) == 0 {
			return "", fmt.Errorf("the receiver of %s has no name", f.Name)
		}
		name = f.Recv.List[0].Names[0].Name + "." + name
	}
	if slices.Contains(args, "_") || strings.HasPrefix(name, "_") {
		return "", fmt.Errorf("a parameter of %s has no name", f.Name)
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results == nil {
		return call + "\nreturn", nil
	}
	return "return " + call, nil
}

// source returns the file with the mutants.
func (w *weaver) source() string {
	var b strings.Builder
	for at := range len(w.content) {
		b.WriteString(w.calls[at])
		b.WriteByte(w.content[at])
	}
	for _, mutated := range w.copies {
		b.WriteString("\n" + mutated + "\n")
	}
	return b.String()
}

// overlay returns an overlay of the go command with files, which it writes into a folder.
func overlay(folder string, files map[string]string) (encoded map[string]map[string]string, err error) {
	replace := map[string]string{}
	for path, content := range files {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("locating %s: %w", path, err)
		}
		replace[absolute] = filepath.Join(folder, "overlay"+strconv.Itoa(len(replace))+".go")
		if err := write(replace[absolute], []byte(content)); err != nil {
			return nil, err
		}
	}
	return map[string]map[string]string{"Replace": replace}, nil
}

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
