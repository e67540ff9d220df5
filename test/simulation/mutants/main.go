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
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// tested is the package whose tests are built.
const tested = "./test/simulation"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// command runs the histories of the mutants and prints what came of them.
func command(ctx context.Context) error {
	var s search
	root := flag.String("root", ".", "the root of the repository")
	only := flag.String("only", "", "a regular expression: the names of the mutants that are run")
	patience := flag.Duration("patience", 5*time.Minute, "how long one history may take before it counts as one without an end")
	flag.Uint64Var(&s.histories, "histories", 20000, "how many histories of each mutant are run at most")
	flag.Uint64Var(&s.first, "first", 1, "the first seed")
	flag.IntVar(&s.workers, "workers", runtime.NumCPU(), "how many processes run histories")
	flag.DurationVar(&s.limit, "limit", 0, "how long histories of each mutant are run at most; 0: until their number is reached")
	flag.Parse()
	names, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("reading -only: %w", err)
	}
	all, err := load()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("making a folder for builds: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // Nothing depends on it.
	r := runner{root: *root, folder: folder, patience: *patience, search: s}
	return r.run(ctx, all, names)
}

// runner builds and runs mutants.
type runner struct {
	// root is that of the repository, and folder where builds are put.
	root, folder string
	patience     time.Duration
	search       search
}

func (r runner) run(ctx context.Context, all []Mutant, names *regexp.Regexp) error {
	plain, err := r.build(ctx, "plain")
	if err != nil {
		return err
	}
	var outcomes []outcome
	for _, m := range all {
		if !names.MatchString(m.Name) {
			continue
		}
		o := r.one(ctx, plain, m)
		fmt.Fprintln(os.Stderr, o)
		outcomes = append(outcomes, o)
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Print(table(outcomes))
	return errors.Join(context.Cause(ctx), verdict(outcomes))
}

// one runs the histories of one mutant.
func (r runner) one(ctx context.Context, plain *binary, m Mutant) outcome {
	overlay, err := m.overlay(r.root, r.folder)
	if err != nil {
		return outcome{mutant: m, err: err}
	}
	mutated, err := r.build(ctx, m.Name, "-overlay="+overlay)
	if err != nil {
		return outcome{mutant: m, err: err}
	}
	defer os.Remove(mutated.path) //nolint:errcheck // The folder goes, too.
	o := r.search.find(ctx, plain, mutated)
	o.mutant = m
	return o
}

func (r runner) build(ctx context.Context, name string, flags ...string) (*binary, error) {
	folder, err := filepath.Abs(filepath.Join(r.root, tested))
	if err != nil {
		return nil, fmt.Errorf("locating the simulation: %w", err)
	}
	path := filepath.Join(r.folder, name+".test")
	args := append([]string{"test", "-c", "-o", path, "-ldflags=-s -w"}, flags...)
	c := exec.CommandContext(ctx, "go", append(args, tested)...) //nolint:gosec // Its arguments are ours.
	c.Dir = r.root
	if output, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w: %s", name, err, output)
	}
	return &binary{path: path, folder: folder, patience: r.patience, known: map[uint64]message{}}, nil
}
