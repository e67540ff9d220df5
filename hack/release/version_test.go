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

func TestAReleaseHasTheVersionOfItsFeatures(t *testing.T) {
	const sources = "package features\n\nconst (\n\t// BinaryVersion is a version.\n\tBinaryVersion = \"1.2\"\n)\n"
	for name, c := range map[string]struct{ version, sources, want string }{
		"the release":                   {version: "v1.2.0", sources: sources},
		"a patch of it":                 {version: "v1.2.13", sources: sources},
		"a candidate":                   {version: "v1.2.0-rc.1", sources: sources},
		"the next one":                  {version: "v1.3.0", sources: sources, want: "BinaryVersion in pkg/features/features.go is 1.2, and the release is v1.3.0"},
		"one that begins with the same": {version: "v1.20.0", sources: sources, want: "and the release is v1.20.0"},
		"a commit after a release":      {version: "v1.1.0-4-g0123abc", sources: sources},
		"a commit before any release":   {version: "v0.0.0-12-g0123abc", sources: sources},
		"no version":                    {version: "v1.2.0", sources: "package features\n", want: "there is no BinaryVersion in pkg/features/features.go"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&release{version: c.version, root: writeFeatures(t, t.TempDir(), c.sources)}).checkVersion()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// writeFeatures writes the sources of the features into a repository, which it returns.
func writeFeatures(t *testing.T, root, sources string) string {
	t.Helper()
	file := filepath.Join(root, "pkg", "features", "features.go")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(sources), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestOtherVersionsOfTheFeaturesAreNotReleased(t *testing.T) {
	r := simple(t, filepath.Join(t.TempDir(), "release"))
	writeFeatures(t, r.root, "const BinaryVersion = \"0.1\"\n\tBinaryVersion = \"0.1\"\n")
	if err := r.writeArtifacts(t.Context()); err == nil || !strings.Contains(err.Error(), "is 0.1, and the release is v1.2.3-rc.1") {
		t.Errorf("got %v", err)
	}
}

// What is there now has a version.
func TestTheSourcesHaveAVersionOfTheirFeatures(t *testing.T) {
	if err := (&release{version: "v0.0.0-1-g0123abc", root: filepath.Join("..", "..")}).checkVersion(); err != nil {
		t.Error(err)
	}
}

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
