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

package sbom

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

var release = &Release{Version: "v1.2.3", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}

// root is the repository.
var root = filepath.Join("..", "..", "..")

// built is the program that makes releases, which has modules too, as if it were one of the product.
var built = sync.OnceValues(func() (*program.Program, error) {
	folder, err := os.MkdirTemp("", "sbom-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)                                          //nolint:errcheck // What is in it has been read.
	ctx, path := context.Background(), filepath.Join(folder, "release") //nolint:forbidigo // It is built for all tests.
	command := exec.CommandContext(ctx, "go", "build", "-o", path, "..")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building a program: %w\n%s", err, output)
	}
	p := &program.Program{Name: program.Server, Platform: program.Platform{OS: "linux", Arch: "amd64"}}
	if p.Data, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	if p.Info, err = buildinfo.Read(bytes.NewReader(p.Data)); err != nil {
		return nil, err
	}
	b := &program.Builder{Root: root}
	goroot, err := b.Go(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := b.Tools(ctx, linked(p)...)
	p.Modules = append([]program.Module{goroot}, tools...)
	return p, err
})

// own returns the program, which the test may change.
func own(t *testing.T) *program.Program {
	t.Helper()
	p, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if len(linked(p)) == 0 {
		t.Fatal("nothing is linked into the program")
	}
	changed := *p
	return &changed
}

// linked returns the modules that `go version -m` shows of a program.
func linked(p *program.Program) []string {
	var paths []string
	for _, dependency := range p.Info.Deps {
		paths = append(paths, dependency.Path)
	}
	return paths
}

// read reads a document as others do, and checks what the specification demands.
func read(t *testing.T, encoded []byte) *v2_3.Document {
	t.Helper()
	var d v2_3.Document
	if err := spdxjson.ReadInto(bytes.NewReader(encoded), &d); err != nil {
		t.Fatalf("nobody can read the document: %v", err)
	}
	if err := spdxlib.ValidateDocument(&d); err != nil {
		t.Errorf("the document is not valid: %v", err)
	}
	if d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || d.SPDXIdentifier != "DOCUMENT" || d.DocumentName == "" {
		t.Errorf("the document is %s %s %s %q", d.SPDXVersion, d.DataLicense, d.SPDXIdentifier, d.DocumentName)
	}
	if !regexp.MustCompile(`^https://[^#]+/[0-9a-f]{64}$`).MatchString(d.DocumentNamespace) {
		t.Errorf("the namespace is %q", d.DocumentNamespace)
	}
	if d.CreationInfo == nil || d.CreationInfo.Created != "2026-01-02T03:04:05Z" || len(d.CreationInfo.Creators) == 0 {
		t.Errorf("the document was created by %v", d.CreationInfo)
	}
	seen := map[common.ElementID]bool{}
	for _, p := range d.Packages {
		if seen[p.PackageSPDXIdentifier] || p.PackageName == "" || p.PackageVersion == "" || p.PackageDownloadLocation == "" || p.PackageCopyrightText == "" ||
			p.FilesAnalyzed || p.PackageLicenseDeclared == "" || len(p.PackageExternalReferences) != 1 {
			t.Errorf("the package %s lacks something: %+v", p.PackageSPDXIdentifier, p)
		}
		seen[p.PackageSPDXIdentifier] = true
	}
	if bytes.Count(encoded, []byte(`"filesAnalyzed": false`)) != len(d.Packages) {
		t.Error("a package does not say that its files were not analyzed, so that it needs a code that verifies them")
	}
	return &d
}

// byName returns the packages of a document by their names.
func byName(d *v2_3.Document, purpose string) map[string]*v2_3.Package {
	found := map[string]*v2_3.Package{}
	for _, p := range d.Packages {
		if p.PrimaryPackagePurpose == purpose {
			found[p.PackageName] = p
		}
	}
	return found
}

// related returns what elements of a document are related to.
func related(d *v2_3.Document, a common.ElementID, relationship string) []common.ElementID {
	var found []common.ElementID
	for _, r := range d.Relationships {
		if r.RefA.ElementRefID == a && r.Relationship == relationship {
			found = append(found, r.RefB.ElementRefID)
		}
	}
	return found
}

func TestTheDocumentOfAProgram(t *testing.T) {
	p := own(t)
	encoded, err := release.Program(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := release.Program(p)
	if err != nil || !bytes.Equal(encoded, again) {
		t.Errorf("the document is another one the second time: %v", err)
	}
	d := read(t, encoded)
	if got := related(d, "DOCUMENT", "DESCRIBES"); !slices.Equal(got, []common.ElementID{"Program"}) {
		t.Errorf("the document describes %v", got)
	}
	modules, depends := byName(d, "LIBRARY"), related(d, "Program", "DEPENDS_ON")
	for _, path := range append(linked(p), standardLibrary) {
		m := modules[path]
		if m == nil {
			t.Errorf("the document has no %s", path)
			continue
		}
		if !slices.Contains(depends, m.PackageSPDXIdentifier) {
			t.Errorf("the program does not depend on %s", path)
		}
		if want := "pkg:golang/" + strings.ToLower(path) + "@" + m.PackageVersion; m.PackageExternalReferences[0].Locator != want {
			t.Errorf("%s is found by %s, want %s", path, m.PackageExternalReferences[0].Locator, want)
		}
	}
	if len(modules) != len(linked(p))+1 {
		t.Errorf("the document has %d modules, and %d are linked", len(modules), len(linked(p)))
	}
	for path, want := range map[string]string{
		standardLibrary: "BSD-3-Clause", "golang.org/x/crypto/x509roots/fallback": "BSD-3-Clause", "k8s.io/apimachinery": "Apache-2.0", "sigs.k8s.io/yaml": "Apache-2.0 AND BSD-3-Clause AND MIT",
	} {
		if m := modules[path]; m == nil || m.PackageLicenseDeclared != want {
			t.Errorf("%s is %+v, want the license %s", path, m, want)
		}
	}
	main := byName(d, "APPLICATION")[program.Server]
	if main == nil || main.PackageLicenseDeclared != "Apache-2.0" || main.PackageVersion != "v1.2.3" || len(main.PackageChecksums) != 1 {
		t.Errorf("the program is %+v", main)
	}
}

func TestTheDocumentOfAnImage(t *testing.T) {
	p := own(t)
	base, err := (&program.Builder{Root: root}).Tools(t.Context(), "github.com/spf13/cobra")
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	encoded, err := release.Image(p, base, digest)
	if err != nil {
		t.Fatal(err)
	}
	d := read(t, encoded)
	if got := related(d, "DOCUMENT", "DESCRIBES"); !slices.Equal(got, []common.ElementID{"Image"}) {
		t.Errorf("the document describes %v", got)
	}
	if got := related(d, "Image", "CONTAINS"); !slices.Equal(got, []common.ElementID{"Program", identifier(base[0].Path)}) {
		t.Errorf("the image contains %v", got)
	}
	image := byName(d, "CONTAINER")[program.Server]
	if image == nil || len(image.PackageChecksums) != 1 || "sha256:"+image.PackageChecksums[0].Value != digest {
		t.Errorf("the image is %+v", image)
	}
	if got, want := len(byName(d, "LIBRARY")), len(linked(p))+2; got != want {
		t.Errorf("the document has %d modules, want %d", got, want)
	}
}

func TestAModuleThatNobodyKnowsIsAnError(t *testing.T) {
	p := own(t)
	p.Modules = p.Modules[:1]
	if _, err := release.Program(p); err == nil || !strings.Contains(err.Error(), "nor its license") {
		t.Errorf("got %v", err)
	}
}

func TestLicenses(t *testing.T) {
	mit, err := os.ReadFile(filepath.Join("testdata", "mit.txt"))
	if err != nil {
		t.Fatal(err)
	}
	apache, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"one":                         {files: map[string][]byte{"LICENSE": apache}, want: "Apache-2.0"},
		"two files":                   {files: map[string][]byte{"LICENSE": apache, "LICENSE.MIT": mit}, want: "Apache-2.0 AND MIT"},
		"a notice beside":             {files: map[string][]byte{"LICENSE.txt": mit, "NOTICE": []byte("who")}, want: "MIT"},
		"a text that nobody knows":    {files: map[string][]byte{"LICENSE": []byte(strings.Repeat("do as you like with this ", 20))}, want: "NOASSERTION"},
		"a known and an unknown text": {files: map[string][]byte{"LICENSE": mit, "LICENSE.other": []byte("do as you like")}, want: "NOASSERTION"},
		"a copy of another module":    {files: map[string][]byte{"LICENSE": apache, "third_party/forked/LICENSE": mit}, want: "Apache-2.0 AND MIT"},
		"a copy that is not linked":   {files: map[string][]byte{"LICENSE": apache, "third_party/other/LICENSE": mit}, want: "Apache-2.0"},
		"source beside":               {files: map[string][]byte{"LICENSE": apache, "license.go": []byte("package a")}, want: "Apache-2.0"},
		"only a notice":               {files: map[string][]byte{"NOTICE": []byte("who")}, want: "NOASSERTION"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range c.files {
				file := filepath.Join(folder, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, text, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			packages := []string{"third_party/forked/b"}
			if err := os.MkdirAll(filepath.Join(folder, packages[0]), 0o750); err != nil {
				t.Fatal(err)
			}
			got, err := recognize(&program.Module{Path: "example.org/a", Folder: folder, Packages: packages})
			if err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
