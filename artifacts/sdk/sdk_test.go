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

package sdk_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The modules for authors of hooks have tests in their own languages.
func TestModulesForAuthorsOfHooks(t *testing.T) {
	for name, tc := range map[string]struct {
		folder  string
		command []string
	}{
		"python":     {"python", []string{"python3", "-m", "unittest"}},
		"javascript": {"javascript", []string{"node", "--test"}},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(tc.command[0])
			if err != nil && name == "javascript" {
				t.Skip("node is not installed")
			}
			if err != nil {
				t.Fatal(err)
			}
			read(t, tc.folder)
			read(t, filepath.Join("..", "..", "docs", "reference", "hook-schema"))
			command := exec.CommandContext(t.Context(), program, tc.command[1:]...)
			command.Dir = tc.folder
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// read reads the files of a folder, since go test keeps the result of a test as long as the files that the test itself reads stay the same.
func read(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
