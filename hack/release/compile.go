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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// stamp is the package whose variables have the version.
const stamp = "k8s.io/component-base/version"

// legal matches the files of a module that have to be handed on with what is built from it.
var legal = regexp.MustCompile(`^(?i)(LICEN[CS]E|COPYING|NOTICE|PATENTS|COPYRIGHT)[-.\w]*$`)

// compiler builds with the go command.
type compiler struct {
	release *release
}

// build compiles a program and collects the licenses of what is in it.
func (c *compiler) build(ctx context.Context, t target) ([]file, error) {
	folder, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	files, err := c.buildIn(ctx, t, folder)
	return files, errors.Join(err, os.RemoveAll(folder))
}

func (c *compiler) buildIn(ctx context.Context, t target, folder string) ([]file, error) {
	r := c.release
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitCommit=%[3]s -X %[1]s.buildDate=%[4]s", stamp, r.version, r.commit, r.date.UTC().Format(time.RFC3339))
	binary := filepath.Join(folder, t.binary())
	if _, err := c.goCommand(ctx, t, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, "./cmd/"+t.program); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("reading the license: %w", err)
	}
	files := []file{{name: t.binary(), data: data, executable: true}, {name: "LICENSE", data: license}}
	others, err := c.licenses(ctx, t)
	return append(files, others...), err
}

// licenses returns the licenses of Go and of the modules from which a program is built. A module without one is an error.
func (c *compiler) licenses(ctx context.Context, t target) ([]file, error) {
	listed, err := c.goCommand(ctx, t, "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`, "./cmd/"+t.program)
	if err != nil {
		return nil, err
	}
	root, err := c.goCommand(ctx, t, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var files []file
	seen := map[string]bool{}
	for line := range strings.Lines("go " + root + listed) {
		name, folder, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || seen[name] {
			continue
		}
		seen[name] = true
		of, err := legalFiles(folder, path.Join("third-party-licenses", name))
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		files = append(files, of...)
	}
	return files, nil
}

// legalFiles returns the legal files of a module's folder, for a folder of the archive.
func legalFiles(folder, to string) ([]file, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("looking for its license: %w", err)
	}
	var files []file
	for _, entry := range entries {
		if entry.IsDir() || !legal.MatchString(entry.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading its license: %w", err)
		}
		files = append(files, file{name: path.Join(to, entry.Name()), data: data})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no license in %s", folder)
	}
	return files, nil
}

// goCommand runs go for a target, with an environment that does not depend on the user's.
func (c *compiler) goCommand(ctx context.Context, t target, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = c.release.root
	command.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(output), nil
}
