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

package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// smallModule makes a Go module with two programs that build in no time, and one that does not build.
func smallModule(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":         "module example.com/small\n\ngo 1.26.0\n",
		"one/main.go":    "package main\n\nfunc main() { println(\"one\") }\n",
		"two/main.go":    "package main\n\nfunc main() { println(\"two\") }\n",
		"broken/main.go": "package main\n\nfunc main() { missing() }\n",
	} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func smallPrograms() []program {
	return []program{{name: "one", pkg: "./one"}, {name: "two", pkg: "./two"}}
}

func TestConcurrentBuildsBuildOnce(t *testing.T) {
	module, folder := smallModule(t), filepath.Join(t.TempDir(), "programs")
	outputs := make([]bytes.Buffer, 4)
	var all sync.WaitGroup
	for i := range outputs {
		all.Go(func() {
			if err := ensure(t.Context(), module, folder, smallPrograms(), &outputs[i]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var told strings.Builder
	for i := range outputs {
		told.Write(outputs[i].Bytes())
	}
	if n := strings.Count(told.String(), "done in"); n != 1 {
		t.Errorf("the programs were built %d times:\n%s", n, told.String())
	}
	for _, name := range []string{"one", "two"} {
		output, err := exec.CommandContext(t.Context(), filepath.Join(folder, name)).CombinedOutput()
		if err != nil || string(output) != name+"\n" {
			t.Errorf("the program %s printed %q, error %v", name, output, err)
		}
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	module, folder := smallModule(t), t.TempDir()
	err := ensure(t.Context(), module, folder, []program{{name: "broken", pkg: "./broken"}}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "building the control plane") || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("want an error with the compiler's words, got %v", err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 || entries[0].Name() != "LOCK" {
		t.Errorf("want the lock alone in the folder, got %v, error %v", entries, err)
	}
}

func TestAProgramOfAMajorVersionHasNoVersionForAName(t *testing.T) {
	for pkg, want := range map[string]string{"go.etcd.io/etcd/server/v3": "server", "k8s.io/kubernetes/cmd/kubectl": "kubectl"} {
		if got := (program{pkg: pkg}).file(); got != want {
			t.Errorf("go build gives %s the name %s, got %s", pkg, want, got)
		}
	}
}

// module is the folder of the real one, seen from this package.
const module = ".."

func TestFolderIsSharedByEqualModulesOnly(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(CacheVariable, cache)
	copied := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, there := folderOf(t, module), folderOf(t, copied)
	if here != there {
		t.Errorf("two checkouts of the same versions have %s and %s", here, there)
	}
	if !strings.HasPrefix(here, filepath.Join(cache, KubernetesVersion+"-")) {
		t.Errorf("%s is not in %s", here, cache)
	}
	if err := os.WriteFile(filepath.Join(copied, "go.sum"), []byte("other versions"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed := folderOf(t, copied); changed == here {
		t.Errorf("other versions have the same folder %s", changed)
	}
	if _, err := os.Stat(here); err == nil {
		t.Error("asking for the folder has made it")
	}
}

func folderOf(t *testing.T, module string) string {
	t.Helper()
	folder, err := Folder(module)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes (v\S+)`).FindSubmatch(content)
	if found == nil {
		t.Fatal("go.mod does not require k8s.io/kubernetes")
	}
	if string(found[1]) != KubernetesVersion {
		t.Errorf("go.mod has k8s.io/kubernetes %s, but programs are stamped %s", found[1], KubernetesVersion)
	}
	staging := "v0" + strings.TrimPrefix(KubernetesVersion, "v1")
	for _, replaced := range regexp.MustCompile(`(?m)^replace (\S+) => \S+ (\S+)$`).FindAllSubmatch(content, -1) {
		if string(replaced[2]) != staging {
			t.Errorf("%s is replaced by %s, want %s", replaced[1], replaced[2], staging)
		}
	}
	for _, p := range programs() {
		if !strings.Contains(string(content), "\t"+p.pkg+"\n") {
			t.Errorf("go.mod has no tool %s", p.pkg)
		}
	}
}

// Go compiles a package once for all that are built from the same sources with the same flags. kustomize alone is compiled twice: what kubectl needs of
// go-errors is newer than what the plugin needs.
func TestModulesThatTheProductHasTooAreOfOneVersion(t *testing.T) {
	versions := func(file string) map[string]string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, match := range regexp.MustCompile(`(?m)^\s+(\S+) (v\S+)`).FindAllStringSubmatch(string(content), -1) {
			found[match[1]] = match[2]
		}
		for _, match := range regexp.MustCompile(`(?m)^replace (\S+) => \S+ (v\S+)`).FindAllStringSubmatch(string(content), -1) {
			found[match[1]] = match[2]
		}
		return found
	}
	product, here := versions(filepath.Join(module, "..", "..", "go.mod")), versions(filepath.Join(module, "go.mod"))
	compared := 0
	for path, version := range product {
		other, ok := here[path]
		if !ok || path == "github.com/go-errors/errors" {
			continue
		}
		compared++
		if other != version {
			t.Errorf("%s is of version %s in the product, and of %s here", path, version, other)
		}
	}
	if compared < 50 {
		t.Errorf("only %d modules are in both", compared)
	}
}
