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
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/image"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/manifests"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
	"github.com/metacontroller/metacontroller-apiserver/hack/release/sbom"
)

// A target is a program for a platform.
type target struct {
	name     string
	platform program.Platform
}

// targets is what a release has, in the order in which it is built.
func targets() []target {
	var all []target
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, target{program.Plugin, program.Platform{OS: system, Arch: arch}})
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		all = append(all, target{program.Server, program.Platform{OS: "linux", Arch: arch}})
	}
	return all
}

// stem is what the names of the target's files begin with.
func (t target) stem(version string) string {
	return strings.Join([]string{t.name, version, t.platform.OS, t.platform.Arch}, "_")
}

// archive is the name of the archive of a version.
func (t target) archive(version string) string {
	if t.platform.OS == "windows" {
		return t.stem(version) + ".zip"
	}
	return t.stem(version) + ".tar.gz"
}

// release is what is released, and how. root is the repository; build and base are replaced by tests.
type release struct {
	version, commit, folder, repository, uri, root string

	date      time.Time
	platforms []program.Platform
	out       io.Writer
	build     func(context.Context, string, program.Platform) (*program.Program, error)
	base      func(context.Context) (*image.Base, error)
}

// prepare sets what follows from the flags.
func (r *release) prepare(platforms string) error {
	builder := &program.Builder{Root: r.root, Version: r.version, Commit: r.commit, Date: r.date}
	r.build = builder.Build
	r.base = func(ctx context.Context) (*image.Base, error) { return image.NewBase(ctx, builder) }
	if platforms == "" {
		return nil
	}
	for text := range strings.SplitSeq(platforms, ",") {
		platform, err := program.ParsePlatform(text)
		if err != nil {
			return fmt.Errorf("--platforms: %w", err)
		}
		r.platforms = append(r.platforms, platform)
	}
	return nil
}

// writeArtifacts writes all that is published.
func (r *release) writeArtifacts(ctx context.Context) error {
	o, err := newOutput(r.folder)
	if err != nil {
		return err
	}
	if err := r.checkVersion(); err != nil {
		return err
	}
	notes, err := r.notes()
	if err != nil {
		return err
	}
	servers, err := r.writePrograms(ctx, o)
	if err != nil {
		return err
	}
	all, err := r.images(ctx, servers...)
	if err != nil {
		return err
	}
	if err := r.writeImages(o, all); err != nil {
		return err
	}
	if err := r.writeManifests(o, all); err != nil {
		return err
	}
	krew, err := r.krewManifest(o.sums)
	if err != nil {
		return err
	}
	if err := o.write(krewName+".yaml", []byte(krew)); err != nil {
		return err
	}
	if err := o.write(notesName, notes); err != nil {
		return err
	}
	fmt.Fprintln(r.out, "Everything is in", r.folder)
	return o.writeSums()
}

// writePrograms writes the archives of programs and what these are made of, and returns those of the server.
func (r *release) writePrograms(ctx context.Context, o *output) ([]*program.Program, error) {
	var servers []*program.Program
	documents := &sbom.Release{Version: r.version, Date: r.date}
	for _, t := range targets() {
		fmt.Fprintln(r.out, "Building", t.archive(r.version))
		p, err := r.build(ctx, t.name, t.platform)
		if err != nil {
			return nil, err
		}
		data, err := r.archive(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.archive(r.version), err)
		}
		if err := o.write(t.archive(r.version), data); err != nil {
			return nil, err
		}
		document, err := documents.Program(p)
		if err != nil {
			return nil, err
		}
		if err := o.write(t.stem(r.version)+documentEnding, document); err != nil {
			return nil, err
		}
		if t.name == program.Server {
			servers = append(servers, p)
		}
	}
	return servers, nil
}

// writeManifests writes the overlays with the image, and the charts.
func (r *release) writeManifests(o *output, all *images) error {
	artifacts := filepath.Join(r.root, "artifacts")
	overlays, err := manifests.Overlays(artifacts, manifests.Image{Repository: r.repository, Version: r.version, Digest: all.digest.String()})
	if err != nil {
		return err
	}
	for name, rendered := range overlays {
		if err := o.write("install-"+name+".yaml", rendered); err != nil {
			return err
		}
	}
	charts, err := manifests.Charts(filepath.Join(artifacts, "chart"), r.repository, r.version, r.date)
	if err != nil {
		return err
	}
	for _, chart := range charts {
		if err := o.write(chart.Name, chart.Data); err != nil {
			return err
		}
	}
	return nil
}

// archive returns the archive of a program.
func (r *release) archive(p *program.Program) ([]byte, error) {
	pack := archive.TarGz
	if p.Platform.OS == "windows" {
		pack = archive.Zip
	}
	files := append([]archive.File{{Name: p.Binary(), Data: p.Data, Mode: 0o755}}, p.Licenses...)
	var b bytes.Buffer
	if err := pack(&b, files, r.date); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
