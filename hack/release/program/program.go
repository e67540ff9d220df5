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

package program

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
)

// Programs, by their folders under cmd.
const (
	Plugin = "kubectl-metacontroller"
	Server = "metacontroller-apiserver"
)

// stamp is the package whose variables have the version.
const stamp = "k8s.io/component-base/version"

// A Platform is what a program runs on, in Go's words.
type Platform struct {
	OS, Arch string
}

// String is the form that container engines write, such as linux/amd64.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// ParsePlatform reads a platform from the form of String.
func ParsePlatform(text string) (Platform, error) {
	system, arch, found := strings.Cut(text, "/")
	if !found || system == "" || arch == "" || strings.Contains(arch, "/") {
		return Platform{}, fmt.Errorf("a platform is given like linux/amd64, not %q", text)
	}
	return Platform{OS: system, Arch: arch}, nil
}

// A Program is a program that was built.
type Program struct {
	// Name is one of the programs' names.
	Name     string
	Platform Platform
	Data     []byte
	// Info is what the go command wrote into it: what is linked.
	Info *debug.BuildInfo
	// Modules are what it is built from: Go first, then modules by their paths, without the product's own.
	Modules []Module
	// Licenses are our license, LICENSE, and those of Go and of the modules under third-party-licenses.
	Licenses []archive.File
}

// Binary is the name of the program's file.
func (p *Program) Binary() string { return Binary(p.Name, p.Platform) }

// Binary is the name of a program's file on a platform.
func Binary(name string, platform Platform) string {
	if platform.OS == "windows" {
		return name + ".exe"
	}
	return name
}

// A Builder builds programs with the go command.
type Builder struct {
	// Root is the repository.
	Root string
	// Version and Commit are stamped in, and so is Date, the date of the commit.
	Version, Commit string
	Date            time.Time
}

// Build compiles a program and collects the licenses of what is in it. A module without a license is an error.
func (b *Builder) Build(ctx context.Context, name string, platform Platform) (*Program, error) {
	folder, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	data, err := b.compile(ctx, name, platform, folder)
	if err = errors.Join(err, os.RemoveAll(folder)); err != nil {
		return nil, fmt.Errorf("building %s for %s: %w", name, platform, err)
	}
	modules, err := b.modules(ctx, name, platform)
	if err != nil {
		return nil, fmt.Errorf("listing what is in %s for %s: %w", name, platform, err)
	}
	p := &Program{Name: name, Platform: platform, Data: data, Modules: modules}
	if p.Info, err = buildinfo.Read(bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("reading what is linked into %s: %w", name, err)
	}
	if p.Licenses, err = b.licenses(modules); err != nil {
		return nil, fmt.Errorf("collecting the licenses of what is in %s: %w", name, err)
	}
	return p, nil
}

// compile returns the bytes of a program.
func (b *Builder) compile(ctx context.Context, name string, platform Platform, folder string) ([]byte, error) {
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitCommit=%[3]s -X %[1]s.buildDate=%[4]s",
		stamp, b.Version, b.Commit, b.Date.UTC().Format(time.RFC3339))
	binary := filepath.Join(folder, Binary(name, platform))
	if _, err := b.goCommand(ctx, b.Root, platform, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, "./cmd/"+name); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	return data, nil
}

// goCommand runs go in a folder for a platform, with an environment that does not depend on the user's.
func (*Builder) goCommand(ctx context.Context, folder string, platform Platform, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(output), nil
}
