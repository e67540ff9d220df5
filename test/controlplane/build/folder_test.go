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
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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

func TestFolderNeedsAModule(t *testing.T) {
	if folder, err := Folder(t.TempDir()); err == nil {
		t.Errorf("a folder without go.mod has the programs' folder %s", folder)
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

func TestStampIsTheSameEveryTime(t *testing.T) {
	if one, two := stamp(), stamp(); one != two {
		t.Errorf("the linker flags differ:\n%s\n%s", one, two)
	}
	for _, want := range []string{"component-base/version.gitVersion=v1.36.3", "component-base/version.gitMinor=36"} {
		if !strings.Contains(stamp(), want) {
			t.Errorf("%s is not in %s", want, stamp())
		}
	}
}
