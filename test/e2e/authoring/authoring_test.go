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

// Package authoring plays docs/tutorial.md, the pages of docs/how-to and the beginning of README.md: it runs every command as it stands there, and compares what is
// printed. `make run` in them is the program behind it, on the control plane of the tests.
package authoring

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

var update = flag.Bool("update", false, "write what is printed to the pages")

func TestMain(m *testing.M) { os.Exit(terminal.MainInParallel(m, 4)) }

// makeScript stands for make: it starts the program of the Makefile's target run with its variables, for the control plane of the test.
const makeScript = `#!/usr/bin/env bash
for argument; do
    case "${argument}" in
    HOOK=*) hook="${argument#HOOK=}" ;;
    CONTROLLER=*) controller="${argument#CONTROLLER=}" ;;
    esac
done
[[ "$1 $2 $3" == "-C metacontroller-apiserver run" ]] || exit 2
exec %s --kubeconfig "${KUBECONFIG}" --hook "${hook:?}" --controller "${controller:?}"
`

// TestPages has one server for all pages. Their kinds and the names of their objects differ, and the tutorial, which lists all Pods, is first.
func TestPages(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	demo := terminal.Program(t, "demo", "hack")
	scripts := t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "make"), fmt.Appendf(nil, makeScript, demo), 0o700); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(cluster.Root(), "docs", "how-to", "*.md"))
	if err != nil || len(pages) < 6 {
		t.Fatalf("there are the pages %v: %v", pages, err)
	}
	tutorial := filepath.Join(cluster.Root(), "docs", "tutorial.md")
	for _, page := range append([]string{tutorial}, pages...) {
		name, err := filepath.Rel(cluster.Root(), page)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			if page != tutorial {
				t.Parallel()
			}
			s := terminal.New(t, c)
			s.Prefer(scripts)
			least := 8
			if filepath.Base(page) == "in-go.md" {
				s.Prefer(goRun(t))
			}
			if filepath.Base(page) == "gitops.md" {
				least = 1 // It is about what other programs do.
				linkArtifacts(t, s)
			}
			if filepath.Base(page) == "dashboard.md" {
				least = 0 // Its commands do not end by themselves: test/e2e/dashboard runs them.
			}
			s.Play(t, filepath.ToSlash(name), least, *update)
		})
	}
	t.Run("README.md", func(t *testing.T) {
		t.Parallel()
		s := terminal.New(t, c)
		linkArtifacts(t, s)
		s.Play(t, "README.md", 3, *update)
	})
}

// goScript stands for go: it builds the program of a page as a part of this module, which the page's own module depends on, and runs it. It says what
// a program in the background is waited for by. What it is built of is that of make build.
const goScript = `#!/usr/bin/env bash
[[ "$*" == "run main.go" ]] || exit 2
folder="${PWD}"
(cd %q && CGO_ENABLED=0 %q build -trimpath -buildvcs=false -o "${folder}/program" "${folder}/main.go") || exit
echo "The logs are in ${folder}"
exec "${folder}/program"
`

// goRun returns a folder with the script.
func goRun(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "go"), fmt.Appendf(nil, goScript, cluster.Root(), program), 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

// linkArtifacts has the commands of a page see the artifacts of the repository, as in its root folder.
func linkArtifacts(t *testing.T, s *terminal.Shell) {
	t.Helper()
	if err := os.Symlink(filepath.Join(cluster.Root(), "artifacts"), filepath.Join(s.Folder, "artifacts")); err != nil {
		t.Fatal(err)
	}
}
