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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/image"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/sbom"
)

const (
	// layoutFolder is the folder that `make image` writes as an image layout.
	layoutFolder = "oci"
	// documentEnding is what the names of files of SPDX end with.
	documentEnding = ".spdx.json"
)

// images are the images of the server for some platforms, joined by an index.
type images struct {
	tag        name.Tag
	commit     image.Commit
	byPlatform []platformImage
	index      v1.ImageIndex
	digest     v1.Hash
}

type platformImage struct {
	platform program.Platform
	image    v1.Image
	digest   v1.Hash
	// document says what the image is made of.
	document []byte
}

// images makes the images of programs.
func (r *release) images(ctx context.Context, programs ...*program.Program) (*images, error) {
	tag, err := image.Reference(r.repository, r.version)
	if err != nil {
		return nil, err
	}
	all := &images{tag: tag, commit: image.Commit{Version: r.version, Hash: r.commit, Date: r.date}}
	base, err := r.base(ctx)
	if err != nil {
		return nil, err
	}
	var made []v1.Image
	for _, p := range programs {
		of, err := r.newImage(base, p, &all.commit)
		if err != nil {
			return nil, fmt.Errorf("making the image for %s: %w", p.Platform, err)
		}
		made = append(made, of.image)
		all.byPlatform = append(all.byPlatform, *of)
	}
	if all.index, err = image.Index(&all.commit, made...); err != nil {
		return nil, err
	}
	if all.digest, err = all.index.Digest(); err != nil {
		return nil, fmt.Errorf("making the index of images: %w", err)
	}
	return all, nil
}

// newImage makes the image of a program, with what the program is made of in it.
func (r *release) newImage(base *image.Base, p *program.Program, c *image.Commit) (*platformImage, error) {
	documents := &sbom.Release{Version: r.version, Date: r.date}
	inside, err := documents.Program(p)
	if err != nil {
		return nil, err
	}
	made, err := image.New(base, p, c, archive.File{Name: p.Name + documentEnding, Data: inside})
	if err != nil {
		return nil, err
	}
	digest, err := made.Digest()
	if err != nil {
		return nil, err
	}
	document, err := documents.Image(p, base.Modules, digest.String())
	if err != nil {
		return nil, err
	}
	return &platformImage{p.Platform, made, digest, document}, nil
}

// imageStem is what the names of the files of images begin with.
func (r *release) imageStem(platform ...string) string {
	return strings.Join(append([]string{program.Server, r.version, "image"}, platform...), "_")
}

// archiveName is the name of the archive of a platform's image.
func (r *release) archiveName(platform program.Platform) string {
	return r.imageStem(platform.OS, platform.Arch) + ".tar"
}

// writeImage writes the image for the platforms, as a layout with all of them and as an archive of each.
func (r *release) writeImage(ctx context.Context) error {
	o, err := newOutput(r.folder)
	if err != nil {
		return err
	}
	var programs []*program.Program
	for _, platform := range r.platforms {
		fmt.Fprintln(r.out, "Building", program.Server, r.version, "for", platform)
		p, err := r.build(ctx, program.Server, platform)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	all, err := r.images(ctx, programs...)
	if err != nil {
		return err
	}
	if err := image.WriteLayout(o.path(layoutFolder), all.tag, all.index); err != nil {
		return err
	}
	if err := r.writeArchives(o, all); err != nil {
		return err
	}
	for _, of := range all.byPlatform {
		fmt.Fprintf(r.out, "%s  %s\n", of.digest, o.path(r.archiveName(of.platform)))
	}
	fmt.Fprintf(r.out, "%s  %s\n", all.digest, o.path(layoutFolder))
	return nil
}

// writeArchives writes an archive for each platform, and what its image is made of.
func (r *release) writeArchives(o *output, all *images) error {
	for _, of := range all.byPlatform {
		file := r.archiveName(of.platform)
		if err := image.WriteArchive(o.path(file), all.tag, of.image); err != nil {
			return err
		}
		if err := o.add(file); err != nil {
			return err
		}
		if err := o.write(r.imageStem(of.platform.OS, of.platform.Arch)+documentEnding, of.document); err != nil {
			return err
		}
	}
	return nil
}

// writeImages adds images to what is published: the archives, and the layout with all platforms as one file.
func (r *release) writeImages(o *output, all *images) error {
	if err := r.writeArchives(o, all); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "release-")
	if err != nil {
		return fmt.Errorf("making a folder for an image layout: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	layout := filepath.Join(folder, layoutFolder)
	if err := image.WriteLayout(layout, all.tag, all.index); err != nil {
		return err
	}
	file := r.imageStem() + ".oci.tar"
	if err := image.PackLayout(o.path(file), layout, &all.commit); err != nil {
		return err
	}
	return o.add(file)
}
