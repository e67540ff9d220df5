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
	"path/filepath"
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	const changes = "# Changelog\n\nThe form.\n\n## [Unreleased]\n\n### Added\n\n- New.\n\n## [1.2.3] - 2026-01-02\n\n### Fixed\n\n- Old, see [there].\n\n" +
		"## [1.2.0] - 2025-01-02\n\n- Oldest.\n\n[there]: https://example.org\n"
	for name, c := range map[string]struct {
		version, changes, want, wantErr string
	}{
		"a release":                       {version: "v1.2.3", changes: changes, want: "# v1.2.3\n\n### Fixed\n\n- Old, see [there].\n"},
		"the last section":                {version: "v1.2.0", changes: changes, want: "# v1.2.0\n\n- Oldest.\n"},
		"a commit after a release":        {version: "v1.2.3-4-g0123abc", changes: changes, want: "# v1.2.3-4-g0123abc\n\n### Added\n\n- New.\n"},
		"a commit before any release":     {version: "v0.0.0-12-g0123abc", changes: changes, want: "# v0.0.0-12-g0123abc\n\n### Added\n\n- New.\n"},
		"a tree with changes":             {version: "v1.2.3-dirty", changes: changes, want: "# v1.2.3-dirty\n\n### Added\n\n- New.\n"},
		"a release that nobody describes": {version: "v1.3.0", changes: changes, wantErr: "has no section [1.3.0]"},
		"a candidate is a release too":    {version: "v1.3.0-rc.1", changes: changes, wantErr: "has no section [1.3.0-rc.1]"},
		"a section with nothing in it":    {version: "v1.2.3", changes: "## [1.2.3]\n\n## [1.2.2]\n", wantErr: "has no section"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(c.changes), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := (&release{version: c.version, root: root}).notes()
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("the error is %v, want %q", err, c.wantErr)
				}
				return
			}
			if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// What is there now can be described.
func TestTheChangelogHasNotes(t *testing.T) {
	got, err := (&release{version: "v0.0.0-1-g0123abc", root: filepath.Join("..", "..")}).notes()
	if err != nil || !strings.Contains(string(got), "\n- ") {
		t.Errorf("got %q, %v", got, err)
	}
}
