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

package image

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

var commit = &Commit{Version: "v1.2.3", Hash: "0123abc", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}

func platforms() []program.Platform {
	return []program.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}
}

// newIndex makes the images of a program that is a text, on the real base.
func newIndex(t *testing.T) (v1.ImageIndex, []v1.Image) {
	t.Helper()
	base, err := NewBase(t.Context(), &program.Builder{Root: filepath.Join("..", "..", "..")})
	if err != nil {
		t.Fatal(err)
	}
	var images []v1.Image
	for _, platform := range platforms() {
		image, err := New(base, &program.Program{
			Name: program.Server, Platform: platform, Data: []byte("program for " + platform.String()),
			Licenses: []archive.File{{Name: "third-party-licenses/b/LICENSE", Data: []byte("b")}, {Name: "LICENSE", Data: []byte("a")}},
		}, commit, archive.File{Name: "further.json", Data: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	index, err := Index(commit, images...)
	if err != nil {
		t.Fatal(err)
	}
	return index, images
}

// entry is what an image has of a file.
type entry struct {
	text   string
	mode   int64
	owner  int
	folder bool
	link   string
}

// content reads the files of an image as they are when its layers lie upon each other.
func content(t *testing.T, image v1.Image) map[string]entry {
	t.Helper()
	flat := mutate.Extract(image)
	all := map[string]entry{}
	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			if err := flat.Close(); err != nil {
				t.Fatal(err)
			}
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != header.Gid || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s belongs to %d:%d %q:%q", header.Name, header.Uid, header.Gid, header.Uname, header.Gname)
		}
		if !header.ModTime.Equal(commit.Date) {
			t.Errorf("%s is of %s, not of the commit's date", header.Name, header.ModTime)
		}
		all[strings.TrimSuffix(header.Name, "/")] = entry{
			text: string(text), mode: header.Mode, owner: header.Uid, folder: header.Typeflag == tar.TypeDir, link: header.Linkname,
		}
	}
}

func TestAnImage(t *testing.T) {
	index, images := newIndex(t)
	t.Run("WhatIsInIt", func(t *testing.T) { whatIsIn(t, images) })
	t.Run("HowItIsRun", func(t *testing.T) { howItIsRun(t, index, images) })
	t.Run("TheSameProgramGivesTheSame", func(t *testing.T) { theSameAgain(t, index) })
	t.Run("ItsFormsAreOne", func(t *testing.T) { formsAreOne(t, index, images) })
}

func whatIsIn(t *testing.T, images []v1.Image) {
	for i, platform := range platforms() {
		got := content(t, images[i])
		for name, want := range map[string]entry{
			"usr/local/bin/metacontroller-apiserver": {text: "program for " + platform.String(), mode: 0o755},
			"usr/bin/metacontroller":                 {link: "/usr/local/bin/metacontroller-apiserver", mode: 0o755},
			"etc/passwd": {mode: 0o644, text: "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
				"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"},
			"etc/group":                        {mode: 0o644, text: "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"},
			"tmp":                              {mode: 0o1777, folder: true},
			"var/lib/metacontroller-apiserver": {mode: 0o700, owner: 65532, folder: true},
			"home/nonroot":                     {mode: 0o700, owner: 65532, folder: true},
			"usr":                              {mode: 0o755, folder: true},
			"usr/share/doc/metacontroller-apiserver/LICENSE":                        {mode: 0o644, text: "a"},
			"usr/share/doc/metacontroller-apiserver/third-party-licenses/b/LICENSE": {mode: 0o644, text: "b"},
			"usr/share/doc/metacontroller-apiserver/further.json":                   {mode: 0o644, text: "{}"},
		} {
			if got[name] != want {
				t.Errorf("%s: %s is %+v, want %+v", platform, name, got[name], want)
			}
		}
		for name, is := range got {
			if is.owner != 0 && is.owner != 65532 || is.mode&0o022 != 0 && name != "tmp" {
				t.Errorf("%s: %s has mode %o and owner %d", platform, name, is.mode, is.owner)
			}
			if parent := filepath.Dir(name); parent != "." && !got[parent].folder {
				t.Errorf("%s: the folder %s is missing", platform, parent)
			}
		}
		license := "usr/share/doc/metacontroller-apiserver/third-party-licenses/" + certificates + "/LICENSE"
		if got[license].text == "" {
			t.Errorf("%s: the license of the certificate authorities is missing", platform)
		}
		berlin, err := time.LoadLocationFromTZData("Europe/Berlin", []byte(got["usr/share/zoneinfo/Europe/Berlin"].text))
		if err != nil {
			t.Errorf("%s: the time zone of Berlin: %v", platform, err)
		} else if _, offset := commit.Date.In(berlin).Zone(); offset != 3600 {
			t.Errorf("%s: winter in Berlin is %d seconds from UTC", platform, offset)
		}
		checkAuthorities(t, []byte(got["etc/ssl/certs/ca-certificates.crt"].text))
	}
}

// checkAuthorities checks that certificates can be verified with what the image has.
func checkAuthorities(t *testing.T, data []byte) {
	t.Helper()
	names := map[string]bool{}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !authority.IsCA {
			t.Errorf("a certificate is none of an authority: %v", err)
			continue
		}
		names[authority.Subject.CommonName] = true
	}
	for _, want := range []string{"ISRG Root X1", "DigiCert Global Root G2", "GTS Root R1"} {
		if !names[want] {
			t.Errorf("%s is not among the %d authorities", want, len(names))
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		t.Error("the authorities make no pool")
	}
}

func howItIsRun(t *testing.T, index v1.ImageIndex, images []v1.Image) {
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Annotations["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("the index is annotated with %v", manifest.Annotations)
	}
	for i, platform := range platforms() {
		config, err := images[i].ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.OS != platform.OS || config.Architecture != platform.Arch || !config.Created.Equal(commit.Date) {
			t.Errorf("the image for %s is for %s/%s, of %s", platform, config.OS, config.Architecture, config.Created)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/metacontroller-apiserver"}) {
			t.Errorf("the image for %s runs %q as %s", platform, config.Config.Entrypoint, config.Config.User)
		}
		for _, name := range []string{"title", "description", "url", "documentation"} {
			if config.Config.Labels["org.opencontainers.image."+name] == "" {
				t.Errorf("the image for %s has no label %s", platform, name)
			}
		}
		for name, want := range map[string]string{
			"version": "v1.2.3", "revision": "0123abc", "created": "2026-01-02T03:04:05Z", "licenses": "Apache-2.0",
			"source": "https://github.com/metacontroller/metacontroller-apiserver",
		} {
			if got := config.Config.Labels["org.opencontainers.image."+name]; got != want {
				t.Errorf("the image for %s has the label %s with %q, want %q", platform, name, got, want)
			}
		}
		of, err := images[i].Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(of.Annotations, config.Config.Labels) {
			t.Errorf("the manifest of %s has the annotations %v, and the labels are %v", platform, of.Annotations, config.Config.Labels)
		}
		entry := manifest.Manifests[i]
		if entry.Platform == nil || entry.Platform.OS != platform.OS || entry.Platform.Architecture != platform.Arch {
			t.Errorf("the index has %v for %s", entry.Platform, platform)
		}
	}
}

func theSameAgain(t *testing.T, first v1.ImageIndex) {
	want, err := first.Digest()
	if err != nil {
		t.Fatal(err)
	}
	// What a machine may have of its own.
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	t.Setenv("HOSTNAME", "elsewhere")
	second, _ := newIndex(t)
	if got, err := second.Digest(); err != nil || got != want {
		t.Errorf("the second image has the digest %s, the first had %s: %v", got, want, err)
	}
}

// The layout, the archives of platforms and what is pushed are one image. The command that pushes is the one of docs/operations/release.md.
func formsAreOne(t *testing.T, index v1.ImageIndex, images []v1.Image) {
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := Reference("registry.example.org/metacontroller-apiserver", "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "oci")
	if err := WriteLayout(folder, tag, index); err != nil {
		t.Fatal(err)
	}
	checkLayout(t, folder, want)
	for i := range images {
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := WriteArchive(file, tag, images[i]); err != nil {
			t.Fatal(err)
		}
		loaded, err := tarball.ImageFromPath(file, &tag)
		if err != nil {
			t.Fatal(err)
		}
		wantName, wantErr := images[i].ConfigName()
		if got, err := loaded.ConfigName(); err != nil || wantErr != nil || got != wantName {
			t.Errorf("the archive has the image %s, want %s: %v, %v", got, wantName, err, wantErr)
		}
	}

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://") + "/metacontroller-apiserver:v1.2.3"
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+filepath.Join("..", "go.mod"), "crane", "push", folder, address)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("pushing: %v\n%s", err, output)
	}
	reference, err := name.ParseReference(address)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pushed.Digest(); err != nil || got != want {
		t.Errorf("the registry has %s, want %s: %v", got, want, err)
	}
}

// checkLayout checks that a layout has one entry, an index with names for those who load it.
func checkLayout(t *testing.T, folder string, want v1.Hash) {
	t.Helper()
	path, err := layout.FromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Errorf("the layout is not valid: %v", err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != want {
		t.Fatalf("the layout has %v, want one entry, %s", manifest.Manifests, want)
	}
	names := map[string]string{refName: "v1.2.3", containerdName: "registry.example.org/metacontroller-apiserver:v1.2.3"}
	if got := manifest.Manifests[0].Annotations; !maps.Equal(got, names) {
		t.Errorf("the entry is annotated with %v, want %v", got, names)
	}
}
