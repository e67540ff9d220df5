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
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

var date = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// simple is a release whose programs are texts.
func simple(t *testing.T, folder string) *release {
	t.Helper()
	return &release{
		version: "v1.2.3-rc.1", commit: "abc", date: date, folder: folder, uri: "https://example.com/download/v1.2.3-rc.1/",
		build: func(_ context.Context, of target) ([]file, error) {
			program := []byte("program of " + of.archive("")) // The order is not that of an archive.
			return []file{{name: of.binary(), data: program, executable: true}, {name: "b/NOTICE", data: []byte("b")}, {name: "LICENSE", data: []byte("a")}}, nil
		},
	}
}

// entry is what an archive has of a file.
type entry struct {
	name, text string
	mode       int64
	modified   time.Time
}

// entries reads an archive.
func entries(t *testing.T, archive string) []entry {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(archive, ".zip") {
		return zipEntries(t, data)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !compressed.ModTime.IsZero() || compressed.Name != "" {
		t.Errorf("%s has a time or a name of its own: %v %q", archive, compressed.ModTime, compressed.Name)
	}
	var all []entry
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s: %s belongs to somebody", archive, header.Name)
		}
		all = append(all, entry{header.Name, string(text), header.Mode, header.ModTime.UTC()})
	}
}

func zipEntries(t *testing.T, data []byte) []entry {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	for _, f := range r.File {
		opened, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(opened)
		if err := errors.Join(err, opened.Close()); err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{f.Name, string(text), int64(f.Mode().Perm()), f.Modified.UTC()})
	}
	return all
}

func TestARelease(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "release")
	if err := simple(t, folder).write(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		names = append(names, name)
		data, err := os.ReadFile(filepath.Join(folder, name))
		if got := sha256.Sum256(data); err != nil || hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s has not the checksum of SHA256SUMS: %v", name, err)
		}
		got := entries(t, filepath.Join(folder, name))
		binary := plugin
		if strings.HasPrefix(name, server) {
			binary = server
		}
		if strings.Contains(name, "windows") {
			binary += ".exe"
		}
		want := []entry{
			{"LICENSE", "a", 0o644, date},
			{"b/NOTICE", "b", 0o644, date},
			{binary, "program of " + strings.Replace(name, "v1.2.3-rc.1", "", 1), 0o755, date},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	if want := []string{
		"kubectl-metacontroller_v1.2.3-rc.1_darwin_amd64.tar.gz", "kubectl-metacontroller_v1.2.3-rc.1_darwin_arm64.tar.gz",
		"kubectl-metacontroller_v1.2.3-rc.1_linux_amd64.tar.gz", "kubectl-metacontroller_v1.2.3-rc.1_linux_arm64.tar.gz",
		"kubectl-metacontroller_v1.2.3-rc.1_windows_amd64.zip", "kubectl-metacontroller_v1.2.3-rc.1_windows_arm64.zip",
		"metacontroller-apiserver_v1.2.3-rc.1_linux_amd64.tar.gz", "metacontroller-apiserver_v1.2.3-rc.1_linux_arm64.tar.gz",
	}; !slices.Equal(names, want) {
		t.Errorf("the release has %v, want %v", names, want)
	}

	again := filepath.Join(t.TempDir(), "again")
	if err := simple(t, again).write(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "SHA256SUMS", krewName+".yaml") {
		first, firstErr := os.ReadFile(filepath.Join(folder, name))
		second, secondErr := os.ReadFile(filepath.Join(again, name))
		if firstErr != nil || secondErr != nil || !bytes.Equal(first, second) {
			t.Errorf("%s is another one the second time: %v, %v", name, firstErr, secondErr)
		}
	}
}

// The rules are those of krew's own validation, and that every platform is selected once.
func TestTheManifestForKrew(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "release")
	if err := simple(t, folder).write(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, krewName+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var p krewPlugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" {
		t.Errorf("it is a %s of %s", p.Kind, p.APIVersion)
	}
	if !regexp.MustCompile(`^[\w-]+$`).MatchString(p.Metadata.Name) || "kubectl-"+p.Metadata.Name != plugin {
		t.Errorf("the name is %q", p.Metadata.Name)
	}
	if _, err := version.ParseSemantic(p.Spec.Version); err != nil || !strings.HasPrefix(p.Spec.Version, "v") {
		t.Errorf("the version is %q: %v", p.Spec.Version, err)
	}
	if d := p.Spec.ShortDescription; d == "" || len(d) > 50 || strings.ContainsAny(d, "\r\n") || strings.HasSuffix(d, ".") {
		t.Errorf("the short description is %q", d)
	}
	if p.Spec.Description == "" || !strings.HasPrefix(p.Spec.Homepage, "https://") {
		t.Error("there is no description or homepage")
	}
	selected := map[string]int{}
	for _, platform := range p.Spec.Platforms {
		selector, err := metav1.LabelSelectorAsSelector(&platform.Selector)
		if err != nil || selector.Empty() {
			t.Errorf("the selector %v selects nothing or everything: %v", platform.Selector, err)
			continue
		}
		for key := range platform.Selector.MatchLabels {
			if key != "os" && key != "arch" {
				t.Errorf("krew knows no label %s", key)
			}
		}
		for _, of := range targets() {
			if of.program == plugin && selector.Matches(labels.Set{"os": of.os, "arch": of.arch}) {
				selected[of.os+"/"+of.arch]++
			}
		}
		checkPlatform(t, folder, &platform)
	}
	if fmt.Sprint(selected) != "map[darwin/amd64:1 darwin/arm64:1 linux/amd64:1 linux/arm64:1 windows/amd64:1 windows/arm64:1]" {
		t.Errorf("platforms are selected so often: %v", selected)
	}
}

// checkPlatform checks that the archive of a platform is what the manifest says of it.
func checkPlatform(t *testing.T, folder string, platform *krewPlatform) {
	t.Helper()
	name := path.Base(platform.URI)
	if platform.URI != "https://example.com/download/v1.2.3-rc.1/"+name {
		t.Errorf("the archive is at %s", platform.URI)
	}
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != platform.SHA256 {
		t.Errorf("%s has not the checksum %s", name, platform.SHA256)
	}
	if path.IsAbs(platform.Bin) || strings.Contains(platform.Bin, "..") {
		t.Errorf("the program %s is outside of the archive", platform.Bin)
	}
	if !slices.ContainsFunc(entries(t, filepath.Join(folder, name)), func(e entry) bool { return e.name == platform.Bin && e.mode == 0o755 }) {
		t.Errorf("%s has no program %s", name, platform.Bin)
	}
}

// The plugin for one platform is built here and in a copy of the sources at another place: the archives are the same, byte for byte.
func TestTheSameSourcesGiveTheSameArchive(t *testing.T) {
	root := filepath.Join("..", "..")
	elsewhere := t.TempDir()
	for _, folder := range []string{"cmd", "pkg", "artifacts"} {
		if err := os.CopyFS(filepath.Join(elsewhere, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(elsewhere, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var archives [][]byte
	for _, sources := range []string{root, elsewhere} {
		r := &release{version: "v1.2.3", commit: "abc", date: date, root: sources}
		r.build = (&compiler{release: r}).build
		archive, err := r.archive(t.Context(), target{plugin, "linux", "amd64"})
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, archive)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the archives differ")
	}
	written := filepath.Join(t.TempDir(), "archive.tar.gz")
	if err := os.WriteFile(written, archives[0], 0o600); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries(t, written) {
		names[e.name] = true
	}
	for _, want := range []string{plugin, "LICENSE", "third-party-licenses/go/LICENSE", "third-party-licenses/k8s.io/client-go/LICENSE", "third-party-licenses/github.com/spf13/cobra/LICENSE.txt"} {
		if !names[want] {
			t.Errorf("the archive has no %s", want)
		}
	}
}
