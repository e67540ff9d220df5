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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Git takes fewer digits in a clone with fewer objects, and the version is stamped in.
func TestVersionsHaveTheSameDigitsInEachClone(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "hack", "lib"), os.DirFS(filepath.Join("..", "lib"))); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join("..", "version.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "hack", "version.sh"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(program string, args ...string) string {
		command := exec.CommandContext(t.Context(), program, args...)
		command.Dir = root
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	do("git", "init", "--quiet")
	do("git", "add", ".")
	do("git", "commit", "--quiet", "--message", "One")
	for _, step := range []struct{ tag, want string }{
		{want: `^v0\.0\.0-1-g[0-9a-f]{12}$`}, {tag: "v1.2.0", want: `^v1\.2\.0$`}, {want: `^v1\.2\.0-1-g[0-9a-f]{12}$`},
	} {
		if step.tag != "" {
			do("git", "tag", step.tag)
		}
		if version := do("bash", "hack/version.sh", "version"); !regexp.MustCompile(step.want).MatchString(version) {
			t.Errorf("the version is %s, want one like %s", version, step.want)
		}
		if step.tag != "" {
			do("git", "commit", "--quiet", "--allow-empty", "--message", "Another")
		}
	}
}
