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
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Programs, by their folders under cmd.
const (
	plugin = "kubectl-metacontroller"
	server = "metacontroller-apiserver"
)

// A target is a program for a platform.
type target struct {
	program, os, arch string
}

// targets is what a release has, in the order in which it is built.
func targets() []target {
	var all []target
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, target{plugin, os, arch})
		}
	}
	return append(all, target{server, "linux", "amd64"}, target{server, "linux", "arm64"})
}

// binary is the name of the program's file.
func (t target) binary() string {
	if t.os == "windows" {
		return t.program + ".exe"
	}
	return t.program
}

// archive is the name of the archive of a version.
func (t target) archive(version string) string {
	extension := ".tar.gz"
	if t.os == "windows" {
		extension = ".zip"
	}
	return strings.Join([]string{t.program, version, t.os, t.arch}, "_") + extension
}

// release is what is released, and how. root is the repository, build makes the files of a target: the program and the licenses.
type release struct {
	version, commit, folder, uri, root string
	date                               time.Time
	build                              func(context.Context, target) ([]file, error)
}

// write writes the archives, SHA256SUMS and the manifest for krew into the folder.
func (r *release) write(ctx context.Context, out io.Writer) error {
	if err := os.RemoveAll(r.folder); err != nil {
		return fmt.Errorf("removing the release before: %w", err)
	}
	if err := os.MkdirAll(r.folder, 0o755); err != nil { //nolint:gosec // What is published is for everybody.
		return fmt.Errorf("making the folder of the release: %w", err)
	}
	sums := map[string]string{}
	var names []string
	for _, t := range targets() {
		name := t.archive(r.version)
		fmt.Fprintln(out, "Building", name)
		data, err := r.archive(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(r.folder, name), data, 0o644); err != nil { //nolint:gosec // The same.
			return fmt.Errorf("writing an archive: %w", err)
		}
		sum := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(sum[:])
		names = append(names, name)
	}
	slices.Sort(names)
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%s  %s\n", sums[name], name)
	}
	manifest, err := r.krewManifest(sums)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"SHA256SUMS": lines.String(), krewName + ".yaml": manifest} {
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o644); err != nil { //nolint:gosec // The same.
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	fmt.Fprintln(out, "Everything is in", r.folder)
	return nil
}

// archive returns the archive of a target.
func (r *release) archive(ctx context.Context, t target) ([]byte, error) {
	files, err := r.build(ctx, t)
	if err != nil {
		return nil, err
	}
	pack := tarGz
	if t.os == "windows" {
		pack = zipped
	}
	var b bytes.Buffer
	if err := pack(&b, files, r.date); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
