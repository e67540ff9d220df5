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

package engine

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is exported to testdata/exported.txt")

// TestWhatIsExported has what programs use in a file, so that nobody changes it without noticing: what the package exports, and the types of
// others that it gives a name.
func TestWhatIsExported(t *testing.T) {
	own := exported(t, ".")
	lines := slices.Clone(own)
	for _, line := range own {
		if _, name, ok := strings.Cut(line, " = hook."); ok {
			for _, of := range exported(t, filepath.Join("..", "hook")) {
				if strings.HasPrefix(of, "type "+name+" ") || strings.HasPrefix(of, "field "+name+".") || strings.HasPrefix(of, "method "+name+".") {
					lines = append(lines, "pkg/hook: "+of)
				}
			}
		}
	}
	got, file := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", "exported.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("what programs use has changed; if that is meant, run the test with -update, and say so in CHANGELOG.md:\n%s", diff)
	}
}

// exported returns the exported declarations of a package, in order.
func exported(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				lines = append(lines, ofFunction(set, d)...)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					lines = append(lines, ofSpec(set, d.Tok, spec)...)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func ofFunction(set *token.FileSet, d *ast.FuncDecl) []string {
	receiver := ""
	if d.Recv != nil {
		receiver = strings.TrimPrefix(text(set, d.Recv.List[0].Type), "*")
	}
	if !d.Name.IsExported() || receiver != "" && !ast.IsExported(receiver) {
		return nil
	}
	signature := strings.TrimPrefix(text(set, d.Type), "func")
	if receiver != "" {
		return []string{"method " + receiver + "." + d.Name.Name + signature}
	}
	return []string{"func " + d.Name.Name + signature}
}

func ofSpec(set *token.FileSet, kind token.Token, spec ast.Spec) (lines []string) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				lines = append(lines, kind.String()+" "+name.Name)
			}
		}
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return nil
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return []string{"type " + text(set, spec)}
		}
		lines = append(lines, "type "+spec.Name.Name+" struct")
		for _, f := range structure.Fields.List {
			for _, name := range f.Names {
				if name.IsExported() {
					tag := ""
					if f.Tag != nil {
						tag = " " + f.Tag.Value
					}
					lines = append(lines, fmt.Sprintf("field %s.%s %s%s", spec.Name.Name, name.Name, text(set, f.Type), tag))
				}
			}
		}
	}
	return lines
}

func text(set *token.FileSet, node ast.Node) string {
	var b bytes.Buffer
	_ = printer.Fprint(&b, set, node)
	return b.String()
}

// TestNothingOfAServerIsLinked holds the size of programs: neither half of an API server is a part of them.
func TestNothingOfAServerIsLinked(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/metacontroller/metacontroller-apiserver/"
	for dependency := range strings.Lines(string(output)) {
		dependency = strings.TrimSpace(dependency)
		for _, server := range []string{
			ours + "cmd", ours + "pkg/apiserver", ours + "pkg/registry", ours + "pkg/admission", ours + "pkg/embeddedetcd", ours + "pkg/registration",
			"go.etcd.io", "k8s.io/kube-aggregator", "k8s.io/kms", "k8s.io/apiserver/pkg/admission", "k8s.io/apiserver/pkg/endpoints",
			"k8s.io/apiserver/pkg/registry", "k8s.io/apiserver/pkg/server", "k8s.io/apiserver/pkg/storage",
		} {
			if dependency == server || strings.HasPrefix(dependency, server+"/") {
				t.Errorf("programs link %s", dependency)
			}
		}
	}
}

// TestTheExampleIsThatOfThePage lets the page and the documentation of the package have the same program, which a test of the page runs.
func TestTheExampleIsThatOfThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "in-go.md"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "cat > main.go <<'END'\n")
	program, _, _ = strings.Cut(program, "\nEND\n")
	_, declared, _ := strings.Cut(program, "\n)\n")
	declared, body, _ := strings.Cut(declared, "func main() {\n")
	if declared = strings.TrimSpace(declared); declared == "" || !strings.Contains(string(example), declared) {
		t.Errorf("the example does not have what the page has:\n%s", declared)
	}
	_, done, _ := strings.Cut(string(example), "func Example() {")
	_, done, _ = strings.Cut(done, "\n")
	if body == "" || !strings.HasPrefix(done, body+"\n") {
		t.Errorf("the example does not do what the page does:\n%s", body)
	}
}
