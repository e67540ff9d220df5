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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
)

// Annotations by which those who read a layout name the image in it.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// Index joins the images of platforms into one, of which an engine takes the one for its machine.
func Index(c *Commit, images ...v1.Image) (v1.ImageIndex, error) {
	index := v1.ImageIndex(empty.Index)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("reading the configuration of an image: %w", err)
		}
		descriptor, err := partial.Descriptor(image)
		if err != nil {
			return nil, fmt.Errorf("describing an image: %w", err)
		}
		descriptor.Platform = &v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: *descriptor})
	}
	annotated, ok := mutate.Annotations(index, c.annotations()).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotating an index of type %T", index)
	}
	return annotated, nil
}

// Reference is the name under which engines show an image: a repository, with or without a registry, and a version.
func Reference(repository, version string) (name.Tag, error) {
	tag, err := name.NewTag(repository + ":" + version)
	if err != nil {
		return name.Tag{}, fmt.Errorf("naming the image: %w", err)
	}
	return tag, nil
}

// WriteLayout writes an index into a folder as an OCI image layout. The folder must not exist.
func WriteLayout(folder string, tag name.Tag, index v1.ImageIndex) error {
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("making an image layout: %w", err)
	}
	// Tools that push a layout take the one entry that it has. containerd calls the default registry by its domain alone.
	containerd := strings.TrimPrefix(tag.Name(), strings.SplitAfter(name.DefaultRegistry, ".")[0])
	annotations := map[string]string{refName: tag.TagStr(), containerdName: containerd}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return fmt.Errorf("writing an image layout: %w", err)
	}
	return nil
}

// WriteArchive writes the image of one platform as the archive that `docker save` writes, which all engines load.
func WriteArchive(file string, tag name.Tag, image v1.Image) error {
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return fmt.Errorf("writing the archive of an image: %w", err)
	}
	return nil
}

// PackLayout writes a layout's folder as one file.
func PackLayout(file, folder string, c *Commit) error {
	var files []archive.File
	for _, pattern := range []string{"oci-layout", "index.json", "blobs/*/*"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return fmt.Errorf("looking for %s: %w", pattern, err)
		}
		slices.Sort(found)
		for _, path := range found {
			data, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading an image layout: %w", err)
			}
			relative, err := filepath.Rel(folder, path)
			if err != nil {
				return fmt.Errorf("reading an image layout: %w", err)
			}
			files = append(files, archive.File{Name: filepath.ToSlash(relative), Data: data})
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("packing an image layout: %w", err)
	}
	if err := errors.Join(archive.Tar(out, files, c.Date), out.Close()); err != nil {
		return fmt.Errorf("packing an image layout: %w", err)
	}
	return nil
}
