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
	"archive/zip"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

const (
	// nonroot is the number of the user and of the group that the program runs as.
	nonroot = 65532
	// certificates is the module of the certificate authorities.
	certificates = "golang.org/x/crypto/x509roots/fallback"
	// papers is the folder of licenses.
	papers = "usr/share/doc/" + program.Server
	// zones is the folder of time zones, in which Go and others look for them.
	zones = "usr/share/zoneinfo"
	// dataFolder is the default of --data-dir in the manifests.
	dataFolder = "var/lib/" + program.Server

	folderMode, stickyMode, privateMode = 0o755, 0o1777, 0o700
)

// A Base is what an image has beside the program. It is the same for all platforms.
type Base struct {
	Files []archive.File
	// Modules are those whose content is in Files, or is copied from.
	Modules []program.Module
}

// NewBase makes the base from the Go and the modules of the builder's repository.
func NewBase(ctx context.Context, b *program.Builder) (*Base, error) {
	roots, err := b.Tools(ctx, certificates)
	if err != nil {
		return nil, fmt.Errorf("finding the certificate authorities: %w", err)
	}
	goroot, err := b.Go(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the time zones: %w", err)
	}
	timeZones, err := readZones(filepath.Join(goroot.Folder, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	legal, err := roots[0].Legal()
	if err != nil {
		return nil, fmt.Errorf("reading the license of the certificate authorities: %w", err)
	}
	base := &Base{Files: append(users(), timeZones...), Modules: roots}
	base.Files = append(base.Files, archive.File{Name: "etc/ssl/certs/ca-certificates.crt", Data: authorities()})
	base.Files = append(base.Files, inPapers(legal)...)
	return base, nil
}

// users returns the users, and the folders that belong to somebody or that everybody writes.
func users() []archive.File {
	return []archive.File{
		{Name: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/sbin/nologin\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
			"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{Name: "etc/group", Data: []byte("root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n")},
		{Name: "root/", Mode: privateMode},
		{Name: "home/nonroot/", Mode: privateMode, Owner: nonroot},
		{Name: dataFolder + "/", Mode: privateMode, Owner: nonroot},
		{Name: "tmp/", Mode: stickyMode},
	}
}

// authorities returns the certificate authorities that are trusted without conditions, as PEM. Those with one, such as that only what
// they issued before a date is trusted, would be trusted for everything in a PEM file.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

// readZones returns the time zones of an archive as files.
func readZones(from string) ([]archive.File, error) {
	r, err := zip.OpenReader(from)
	if err != nil {
		return nil, fmt.Errorf("opening the time zones: %w", err)
	}
	var files []archive.File
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		data, err := unzip(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading the time zone %s: %w", f.Name, err), r.Close())
		}
		files = append(files, archive.File{Name: path.Join(zones, f.Name), Data: data}) //nolint:gosec // The archive is that of Go, and its names are names in another one.
	}
	return files, r.Close()
}

func unzip(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

// inPapers moves licenses to where an image has them.
func inPapers(files []archive.File) []archive.File {
	moved := make([]archive.File, 0, len(files))
	for _, f := range files {
		f.Name = path.Join(papers, f.Name)
		moved = append(moved, f)
	}
	return moved
}

// withFolders adds the folders of files that are not among them.
func withFolders(files []archive.File) []archive.File {
	have := map[string]bool{}
	for i := range files {
		have[files[i].Name] = true
	}
	all := files
	for i := range files {
		for folder := path.Dir(path.Clean(files[i].Name)); folder != "."; folder = path.Dir(folder) {
			if name := folder + "/"; !have[name] {
				have[name] = true
				all = append(all, archive.File{Name: name, Mode: folderMode})
			}
		}
	}
	return all
}
