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

package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// A Source is where manifests are read from.
type Source struct {
	// Path is a file, or the folder of a kustomization.
	Path string
	// Kustomization says that Path is a folder for `kubectl kustomize`.
	Kustomization bool
	// Found says that nobody named the file: it was found in a folder, where others than manifests may be, such as package.json.
	Found bool
}

// projectBase is where the project that `kubectl metacontroller init` writes has its kustomization, with slashes.
const projectBase = "manifests/base"

// Sources returns what has to be read for a path that a person gives: a file, or a folder. Of a folder that is its kustomization, if
// there is one. Else they are its YAML and JSON files, those of folders in it left out, and the kustomization in manifests/base.
func Sources(path string) ([]Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("looking for manifests: %w", err)
	}
	if !info.IsDir() {
		return []Source{{Path: path}}, nil
	}
	if isKustomization(path) {
		return []Source{{Path: path, Kustomization: true}}, nil
	}
	var found []Source
	if base := filepath.Join(path, filepath.FromSlash(projectBase)); isKustomization(base) {
		found = append(found, Source{Path: base, Kustomization: true})
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("looking for manifests: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			found = append(found, Source{Path: filepath.Join(path, entry.Name()), Found: true})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has neither a kustomization nor files that end with .yaml, .yml or .json", path)
	}
	return found, nil
}

func isKustomization(folder string) bool {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}
