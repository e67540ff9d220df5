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
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	ggcrlayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/image"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

var date = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// simple is a release whose programs are texts, in a repository with the real manifests and a chart of a file.
func simple(t *testing.T, folder string) *release {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "artifacts"), os.DirFS(filepath.Join("..", "..", "artifacts"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"CHANGELOG.md":                       "# Changelog\n\n## [Unreleased]\n\n## [1.2.3-rc.1] - 2026-01-02\n\n### Added\n\n- A thing.\n",
		"pkg/features/features.go":           "package features\n\nconst (\n\tBinaryVersion = \"1.2\"\n)\n",
		"artifacts/chart/example/Chart.yaml": "apiVersion: v2\nname: example\nversion: 0.0.0\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	goroot := program.Module{Path: program.GoModule, Version: "go1.26.0", Folder: filepath.Join("..", "..")}
	return &release{
		version: "v1.2.3-rc.1", commit: "abc", date: date, folder: folder, uri: "https://example.com/download/v1.2.3-rc.1/",
		repository: "registry.example.org/metacontroller-apiserver", root: root, out: io.Discard,
		build: func(_ context.Context, name string, platform program.Platform) (*program.Program, error) {
			return &program.Program{
				Name: name, Platform: platform, Data: []byte("program of " + target{name, platform}.archive("")),
				Info: &debug.BuildInfo{GoVersion: "go1.26.0"}, Modules: []program.Module{goroot},
				// The order is not that of an archive.
				Licenses: []archive.File{{Name: "b/NOTICE", Data: []byte("b")}, {Name: "LICENSE", Data: []byte("a")}},
			}, nil
		},
		base: func(context.Context) (*image.Base, error) {
			return &image.Base{Files: []archive.File{{Name: "etc/passwd", Data: []byte("root:x:0:0:::\n")}}}, nil
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
	return untar(t, archive, compressed)
}

func untar(t *testing.T, archive string, data io.Reader) []entry {
	t.Helper()
	var all []entry
	for r := tar.NewReader(data); ; {
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

// published is what a release has beside SHA256SUMS.
func published() []string {
	return []string{
		"RELEASE_NOTES.md", "example-1.2.3-rc.1.tgz", "install-definitions.yaml", "install-least-privilege.yaml", "install-production.yaml", "install-single-node.yaml",
		"kubectl-metacontroller_v1.2.3-rc.1_darwin_amd64.spdx.json", "kubectl-metacontroller_v1.2.3-rc.1_darwin_amd64.tar.gz",
		"kubectl-metacontroller_v1.2.3-rc.1_darwin_arm64.spdx.json", "kubectl-metacontroller_v1.2.3-rc.1_darwin_arm64.tar.gz",
		"kubectl-metacontroller_v1.2.3-rc.1_linux_amd64.spdx.json", "kubectl-metacontroller_v1.2.3-rc.1_linux_amd64.tar.gz",
		"kubectl-metacontroller_v1.2.3-rc.1_linux_arm64.spdx.json", "kubectl-metacontroller_v1.2.3-rc.1_linux_arm64.tar.gz",
		"kubectl-metacontroller_v1.2.3-rc.1_windows_amd64.spdx.json", "kubectl-metacontroller_v1.2.3-rc.1_windows_amd64.zip",
		"kubectl-metacontroller_v1.2.3-rc.1_windows_arm64.spdx.json", "kubectl-metacontroller_v1.2.3-rc.1_windows_arm64.zip",
		"metacontroller-apiserver-1.2.3-rc.1.tgz", "metacontroller-apiserver_v1.2.3-rc.1_image.oci.tar",
		"metacontroller-apiserver_v1.2.3-rc.1_image_linux_amd64.spdx.json", "metacontroller-apiserver_v1.2.3-rc.1_image_linux_amd64.tar",
		"metacontroller-apiserver_v1.2.3-rc.1_image_linux_arm64.spdx.json", "metacontroller-apiserver_v1.2.3-rc.1_image_linux_arm64.tar",
		"metacontroller-apiserver_v1.2.3-rc.1_linux_amd64.spdx.json", "metacontroller-apiserver_v1.2.3-rc.1_linux_amd64.tar.gz",
		"metacontroller-apiserver_v1.2.3-rc.1_linux_arm64.spdx.json", "metacontroller-apiserver_v1.2.3-rc.1_linux_arm64.tar.gz",
		"metacontroller.yaml",
	}
}

func TestARelease(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "release")
	if err := simple(t, folder).writeArtifacts(t.Context()); err != nil {
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
		if strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".zip") {
			checkArchive(t, folder, name)
		}
	}
	if want := published(); !slices.Equal(names, want) {
		t.Errorf("the release has %v, want %v", names, want)
	}
	written, err := os.ReadDir(folder)
	if err != nil || len(written) != len(names)+1 {
		t.Errorf("%d files are written, and SHA256SUMS has %d: %v", len(written), len(names), err)
	}

	again := filepath.Join(t.TempDir(), "again")
	if err := simple(t, again).writeArtifacts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "SHA256SUMS") {
		first, firstErr := os.ReadFile(filepath.Join(folder, name))
		second, secondErr := os.ReadFile(filepath.Join(again, name))
		if firstErr != nil || secondErr != nil || !bytes.Equal(first, second) {
			t.Errorf("%s is another one the second time: %v, %v", name, firstErr, secondErr)
		}
	}
	t.Run("Manifests", func(t *testing.T) { manifestsOf(t, folder) })
	t.Run("Krew", func(t *testing.T) { krewManifestOf(t, folder) })
}

// checkArchive checks what is in the archive of a program.
func checkArchive(t *testing.T, folder, name string) {
	t.Helper()
	binary := program.Plugin
	if strings.HasPrefix(name, program.Server) {
		binary = program.Server
	}
	if strings.Contains(name, "windows") {
		binary += ".exe"
	}
	want := []entry{
		{"LICENSE", "a", 0o644, date},
		{"b/NOTICE", "b", 0o644, date},
		{binary, "program of " + strings.Replace(name, "v1.2.3-rc.1", "", 1), 0o755, date},
	}
	if got := entries(t, filepath.Join(folder, name)); !slices.Equal(got, want) {
		t.Errorf("%s has %v, want %v", name, got, want)
	}
}

// The manifests of a release run the image of the release, and no other.
func manifestsOf(t *testing.T, folder string) {
	const archive = "metacontroller-apiserver_v1.2.3-rc.1_image.oci.tar"
	data, err := os.ReadFile(filepath.Join(folder, archive))
	if err != nil {
		t.Fatal(err)
	}
	layout := filepath.Join(t.TempDir(), "oci")
	for _, f := range untar(t, archive, bytes.NewReader(data)) {
		path := filepath.Join(layout, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(f.text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := ggcrlayout.ImageIndexFromPath(layout)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the image is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the image is %v: %v", manifest, err)
	}
	want := "image: registry.example.org/metacontroller-apiserver:v1.2.3-rc.1@" + manifest.Manifests[0].Digest.String()
	for _, name := range []string{"install-definitions.yaml", "install-least-privilege.yaml", "install-production.yaml", "install-single-node.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		images := regexp.MustCompile(`\bimage: .*`).FindAllString(string(text), -1)
		if len(images) == 0 {
			t.Errorf("%s runs nothing", name)
		}
		for _, got := range images {
			if got != want {
				t.Errorf("%s has %q, want %q", name, got, want)
			}
		}
	}
}

func TestMakeImage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "image")
	r := simple(t, folder)
	r.platforms = []program.Platform{{OS: "linux", Arch: "arm64"}}
	var out bytes.Buffer
	r.out = &out
	if err := r.writeImage(t.Context()); err != nil {
		t.Fatal(err)
	}
	index, err := ggcrlayout.ImageIndexFromPath(filepath.Join(folder, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the image is %v: %v", manifest, err)
	}
	if digest := manifest.Manifests[0].Digest.String(); !strings.Contains(out.String(), digest+"  ") {
		t.Errorf("the digest %s is not printed:\n%s", digest, &out)
	}
	for _, name := range []string{"metacontroller-apiserver_v1.2.3-rc.1_image_linux_arm64.tar", "metacontroller-apiserver_v1.2.3-rc.1_image_linux_arm64.spdx.json"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Errorf("the file is missing: %v", err)
		}
	}
}

// The rules are those of krew's own validation, and that every platform is selected once.
func krewManifestOf(t *testing.T, folder string) {
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
	if !regexp.MustCompile(`^[\w-]+$`).MatchString(p.Metadata.Name) || "kubectl-"+p.Metadata.Name != program.Plugin {
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
			if of.name == program.Plugin && selector.Matches(labels.Set{"os": of.platform.OS, "arch": of.platform.Arch}) {
				selected[of.platform.String()]++
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
