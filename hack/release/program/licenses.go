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
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
)

// GoModule is the path under which Go itself is among the modules of a program.
const GoModule = "go"

// thirdParty is the folder of the licenses of others.
const thirdParty = "third-party-licenses"

// legal matches the files of a module that have to be handed on with what is built from it. Sources have such names, too: license.go.
var legal = regexp.MustCompile(`^(?i)(LICEN[CS]E|COPYING|NOTICE|PATENTS|COPYRIGHT)[-.\w]*$`)

// A Module is something of others that is in a program or an image.
type Module struct {
	// Path is the module's path, or GoModule.
	Path string
	// Version is that of the module, with a leading v, or that of Go, such as go1.26.0.
	Version string
	// Folder is where its files are on this machine.
	Folder string
	// Packages are the paths, below the module's own, of its packages that a program is built from. A package of others that a module has a
	// copy of has a license beside it, or in a folder above.
	Packages []string
}

// Legal returns the license files of the module and of its packages, under third-party-licenses. A module without one is an error.
func (m *Module) Legal() ([]archive.File, error) {
	files, err := legalFiles(m.Folder, path.Join(thirdParty, m.Path))
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", m.Path, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("module %s: there is no license in %s", m.Path, m.Folder)
	}
	for _, below := range m.folders() {
		of, err := legalFiles(filepath.Join(m.Folder, filepath.FromSlash(below)), path.Join(thirdParty, m.Path, below))
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m.Path, err)
		}
		files = append(files, of...)
	}
	return files, nil
}

// folders returns those of the packages and those above them, without the module's own.
func (m *Module) folders() []string {
	seen := map[string]bool{}
	for _, folder := range m.Packages {
		for ; folder != "." && !seen[folder]; folder = path.Dir(folder) {
			seen[folder] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// modules returns Go and the modules from whose packages a program is built.
func (b *Builder) modules(ctx context.Context, name string, platform Platform) ([]Module, error) {
	goroot, err := b.Go(ctx)
	if err != nil {
		return nil, err
	}
	const format = `{{$package := .ImportPath}}{{with .Module}}{{if not .Main}}{{$package}} {{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}`
	listed, err := b.goCommand(ctx, b.Root, platform, "list", "-deps", "-f", format, "./cmd/"+name)
	if err != nil {
		return nil, err
	}
	found := map[string]*Module{}
	for line := range strings.Lines(listed) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(fields) != 4 {
			continue
		}
		module := found[fields[1]]
		if module == nil {
			module = &Module{Path: fields[1], Version: fields[2], Folder: fields[3]}
			found[module.Path] = module
		}
		if below, ok := strings.CutPrefix(fields[0], module.Path+"/"); ok {
			module.Packages = append(module.Packages, below)
		}
	}
	modules := []Module{goroot}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		modules = append(modules, *found[name])
	}
	return modules, nil
}

// Go returns the Go that builds: its version and its folder.
func (b *Builder) Go(ctx context.Context) (Module, error) {
	output, err := b.goCommand(ctx, b.Root, Platform{}, "env", "GOVERSION", "GOROOT")
	if err != nil {
		return Module{}, err
	}
	version, folder, _ := strings.Cut(strings.TrimSpace(output), "\n")
	return Module{Path: GoModule, Version: version, Folder: folder}, nil
}

// Tools returns modules that the module of this package requires, in the order of their paths as they are given.
func (b *Builder) Tools(ctx context.Context, paths ...string) ([]Module, error) {
	args := append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}} {{.Dir}}"}, paths...)
	output, err := b.goCommand(ctx, filepath.Join(b.Root, "hack", "release"), Platform{}, args...)
	if err != nil {
		return nil, err
	}
	var modules []Module
	for line := range strings.Lines(output) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("a module has no folder: %s", line)
		}
		modules = append(modules, Module{Path: fields[0], Version: fields[1], Folder: fields[2]})
	}
	if len(modules) != len(paths) {
		return nil, fmt.Errorf("%d modules have the paths %v", len(modules), paths)
	}
	return modules, nil
}

// licenses returns our license and those of modules.
func (b *Builder) licenses(modules []Module) ([]archive.File, error) {
	ours, err := os.ReadFile(filepath.Join(b.Root, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("reading our license: %w", err)
	}
	files := []archive.File{{Name: "LICENSE", Data: ours}}
	for i := range modules {
		of, err := modules[i].Legal()
		if err != nil {
			return nil, err
		}
		files = append(files, of...)
	}
	return files, nil
}

// legalFiles returns the legal files of a folder, for a folder of an archive.
func legalFiles(folder, to string) ([]archive.File, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("looking for its license: %w", err)
	}
	var files []archive.File
	for _, entry := range entries {
		if entry.IsDir() || !legal.MatchString(entry.Name()) || path.Ext(entry.Name()) == ".go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading its license: %w", err)
		}
		files = append(files, archive.File{Name: path.Join(to, entry.Name()), Data: data})
	}
	return files, nil
}
