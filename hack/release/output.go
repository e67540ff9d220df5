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
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sumsName is the file with the checksums of all others.
const sumsName = "SHA256SUMS"

// An output is the folder of what is published, and the checksums of the files in it by their names.
type output struct {
	folder string
	sums   map[string]string
}

// newOutput empties a folder.
func newOutput(folder string) (*output, error) {
	if err := os.RemoveAll(folder); err != nil {
		return nil, fmt.Errorf("removing what was written before: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // What is published is for everybody.
		return nil, fmt.Errorf("making the folder of what is published: %w", err)
	}
	return &output{folder: folder, sums: map[string]string{}}, nil
}

// path is where a file is.
func (o *output) path(name string) string { return filepath.Join(o.folder, name) }

// write writes a file.
func (o *output) write(name string, data []byte) error {
	if err := os.WriteFile(o.path(name), data, 0o644); err != nil { //nolint:gosec // What is published is for everybody.
		return fmt.Errorf("writing %s: %w", name, err)
	}
	sum := sha256.Sum256(data)
	o.sums[name] = hex.EncodeToString(sum[:])
	return nil
}

// add takes a file into the checksums that somebody else has written.
func (o *output) add(name string) error {
	file, err := os.Open(o.path(name))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	o.sums[name] = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// writeSums writes the checksums of all files.
func (o *output) writeSums() error {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.sums)) {
		fmt.Fprintf(&lines, "%s  %s\n", o.sums[name], name)
	}
	if err := os.WriteFile(o.path(sumsName), []byte(lines.String()), 0o644); err != nil { //nolint:gosec // What is published is for everybody.
		return fmt.Errorf("writing the checksums: %w", err)
	}
	return nil
}
