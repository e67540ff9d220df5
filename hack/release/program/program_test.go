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

package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The plugin for one platform is built here and in a copy of the sources at another place: the programs are the same, byte for byte. What
// is made of programs depends on nothing else: the tests of archives and images show that.
func TestTheSameSourcesGiveTheSameProgram(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	elsewhere := t.TempDir()
	for _, folder := range []string{"cmd", "pkg", "artifacts"} {
		if err := os.CopyFS(filepath.Join(elsewhere, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(elsewhere, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var programs []*Program
	for _, sources := range []string{root, elsewhere} {
		b := &Builder{Root: sources, Version: "v1.2.3", Commit: "abc", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		p, err := b.Build(t.Context(), Plugin, Platform{OS: "linux", Arch: "amd64"})
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	if !bytes.Equal(programs[0].Data, programs[1].Data) {
		t.Error("the programs differ")
	}
	if len(programs[0].Licenses) != len(programs[1].Licenses) {
		t.Errorf("the programs have %d and %d licenses", len(programs[0].Licenses), len(programs[1].Licenses))
	}
	checkPapers(t, programs[0])
}

// checkPapers checks that a program comes with the licenses of all that its build information has.
func checkPapers(t *testing.T, p *Program) {
	t.Helper()
	names := map[string]bool{}
	for _, f := range p.Licenses {
		names[f.Name] = true
	}
	for _, want := range []string{
		"LICENSE", "third-party-licenses/go/LICENSE", "third-party-licenses/k8s.io/client-go/LICENSE", "third-party-licenses/github.com/spf13/cobra/LICENSE.txt",
		"third-party-licenses/k8s.io/client-go/third_party/forked/httpcache/LICENSE",
	} {
		if !names[want] {
			t.Errorf("the program has no %s", want)
		}
	}
	for name := range names {
		if strings.HasSuffix(name, ".go") {
			t.Errorf("%s is source", name)
		}
	}
	versions := map[string]string{}
	for _, m := range p.Modules {
		versions[m.Path] = m.Version
	}
	if versions[GoModule] != p.Info.GoVersion {
		t.Errorf("the program is built with %s, and %s is among its modules", p.Info.GoVersion, versions[GoModule])
	}
	for _, dependency := range p.Info.Deps {
		if versions[dependency.Path] != dependency.Version {
			t.Errorf("the program has %s of %s, and %q is among its modules", dependency.Version, dependency.Path, versions[dependency.Path])
		}
	}
	if len(p.Info.Deps)+1 != len(p.Modules) {
		t.Errorf("the program is built from %d modules, and has %d with Go", len(p.Info.Deps), len(p.Modules))
	}
}

func TestParsePlatform(t *testing.T) {
	for text, want := range map[string]Platform{
		"linux/amd64": {OS: "linux", Arch: "amd64"}, "linux": {}, "/amd64": {}, "linux/": {}, "linux/arm64/v8": {}, "": {},
	} {
		if got, err := ParsePlatform(text); got != want || (err == nil) != (want != Platform{}) {
			t.Errorf("ParsePlatform(%q) is %v, %v, want %v", text, got, err, want)
		}
	}
}
