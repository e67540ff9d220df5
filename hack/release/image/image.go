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
	"bytes"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

const (
	source      = "https://github.com/metacontroller/metacontroller-apiserver"
	description = "The aggregated API server of metacontroller.k8s.io: controllers made of webhooks"
	// pathVariable lets those who attach to a container name the program alone.
	pathVariable = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	binFolder    = "usr/local/bin/"
	// former is where images of Metacontroller have its program: its manifests start this one there, with --api=definitions as the default.
	former = "usr/bin/metacontroller"
)

// A Commit is what an image says of where it comes from.
type Commit struct {
	Version, Hash string
	Date          time.Time
}

// annotations are what the OCI image specification has for it. Images have them as labels as well, since these are what engines show.
func (c *Commit) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         program.Server,
		"org.opencontainers.image.description":   description,
		"org.opencontainers.image.version":       c.Version,
		"org.opencontainers.image.revision":      c.Hash,
		"org.opencontainers.image.created":       c.Date.UTC().Format(time.RFC3339),
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        source,
		"org.opencontainers.image.url":           source,
		"org.opencontainers.image.documentation": source + "/blob/main/docs/operations/install.md",
	}
}

// New makes the image of the server for the program's platform. further are files beside the licenses.
func New(base *Base, p *program.Program, c *Commit, further ...archive.File) (v1.Image, error) {
	created := v1.Time{Time: c.Date.UTC().Truncate(time.Second)}
	var layers []mutate.Addendum
	for _, of := range []struct {
		what  string
		files []archive.File
	}{
		// What changes most is last: layers before it are shared by versions.
		{"certificate authorities, time zones, users and folders", base.Files},
		{"licenses of the program and what it is made of", inPapers(append(further, p.Licenses...))},
		{"the program", []archive.File{
			{Name: binFolder + p.Binary(), Data: p.Data, Mode: folderMode},
			{Name: former, Link: "/" + binFolder + p.Binary(), Mode: folderMode},
		}},
	} {
		layer, err := newLayer(of.files, c.Date)
		if err != nil {
			return nil, fmt.Errorf("making the layer with %s: %w", of.what, err)
		}
		layers = append(layers, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "make image", Comment: of.what}})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.Platform.OS, Architecture: p.Platform.Arch, Variant: variant(p.Platform), Created: created,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", nonroot, nonroot),
			Entrypoint: []string{"/" + binFolder + p.Binary()},
			Env:        []string{pathVariable},
			WorkingDir: "/",
			Labels:     c.annotations(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	if image, err = mutate.Append(image, layers...); err != nil {
		return nil, fmt.Errorf("adding layers to the image: %w", err)
	}
	annotated, ok := mutate.Annotations(image, c.annotations()).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("annotating an image of type %T", image)
	}
	return annotated, nil
}

// variant is the version of the processor that clients ask for.
func variant(p program.Platform) string {
	if p.Arch == "arm64" {
		return "v8"
	}
	return ""
}

// newLayer compresses files once; the library would do it again whenever it reads the layer.
func newLayer(files []archive.File, date time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	if err := archive.Layer(&b, withFolders(files), date); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
