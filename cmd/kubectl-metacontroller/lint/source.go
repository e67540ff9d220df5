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

package lint

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is one file.
type source struct {
	name string
	text []byte
}

// open reads files, and the manifests in folders.
func open(names []string, recursive bool, in io.Reader) ([]source, error) {
	var sources []source
	for _, name := range names {
		if name == "-" {
			text, err := io.ReadAll(in)
			if err != nil {
				return nil, fmt.Errorf("reading the standard input: %w", err)
			}
			sources = append(sources, source{"-", text})
			continue
		}
		files, err := Files(name, recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("reading manifests: %w", err)
			}
			sources = append(sources, source{file, text})
		}
	}
	return sources, nil
}

// Files returns a file itself, and the files of a folder, with recursive of the folders in it, too, that hold manifests by their name.
func Files(name string, recursive bool) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && (!recursive || foreign(entry.Name())):
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the folder %s: %w", name, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the folder %s holds no file *.yaml, *.yml or *.json: name others with -f, or look into its folders with -R", name)
	}
	return files, nil
}

// foreign tells of a folder in another one whether its files are no manifests: recorded requests, and what other programs install or hide.
func foreign(folder string) bool {
	return strings.HasPrefix(folder, ".") || slices.Contains([]string{"testdata", "node_modules", "vendor"}, folder)
}
