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
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
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
	quick := flag.Bool("quick", false, "run those mutants alone that a few histories show")
	patience := flag.Duration("patience", 5*time.Minute, "how long one history may take before it counts as one without an end")
	flag.Uint64Var(&s.histories, "histories", 20000, "how many histories of each mutant are run at most")
	flag.Uint64Var(&s.first, "first", 1, "the first seed")
	parallel := flag.Int("parallel", runtime.NumCPU(), "how many mutants are run at the same time")
	flag.Parse()
	names, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("reading -only: %w", err)
	}
	all, err := load()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m Mutant) bool { return !names.MatchString(m.Name) || *quick && !m.Quick })
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("making a folder for builds: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // Nothing depends on it.
	r := runner{root: *root, folder: folder, patience: *patience, parallel: *parallel, search: s}
	return r.run(ctx, all)
}

// runner builds and runs mutants.
type runner struct {
	// root is that of the repository, and folder where builds are put.
	root, folder string
	patience     time.Duration
	// parallel is the number of mutants that are run at the same time.
	parallel int
	search   search
}

func (r runner) run(ctx context.Context, all []Mutant) error {
	path, err := r.build(ctx, all)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(filepath.Join(r.root, tested))
	if err != nil {
		return fmt.Errorf("locating the simulation: %w", err)
	}
	plain := &binary{path: path, folder: folder, patience: r.patience}
	outcomes, slots := make([]outcome, len(all)), make(chan struct{}, max(1, r.parallel))
	var running sync.WaitGroup
	for i, m := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			mutated := &binary{path: path, folder: folder, patience: r.patience, mutant: m.Name}
			outcomes[i] = r.search.find(ctx, plain, mutated)
			outcomes[i].mutant = m
			if outcomes[i].err == nil && !outcomes[i].found() && m.Kept != "" {
				outcomes[i].shown, outcomes[i].err = mutated.shows(ctx, m.Kept)
			}
			fmt.Fprintln(os.Stderr, outcomes[i])
		})
	}
	running.Wait()
	fmt.Print(table(outcomes))
	return errors.Join(context.Cause(ctx), verdict(outcomes))
}

// build builds the tests with all mutants, and returns where they are.
func (r runner) build(ctx context.Context, all []Mutant) (string, error) {
	files, err := weave(r.root, all)
	if err != nil {
		return "", err
	}
	replaced, err := overlay(r.folder, files)
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(replaced)
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	replace, path := filepath.Join(r.folder, "overlay.json"), filepath.Join(r.folder, "simulation.test")
	if err := write(replace, encoded); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "test", "-c", "-o", path, "-ldflags=-s -w", "-overlay="+replace, tested)
	c.Dir = r.root
	if output, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the engine with the mutants: %w: %s", err, output)
	}
	return path, nil
}

func write(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing what is built: %w", err)
	}
	return nil
}

// Of so many mutants, so many must be found at least.
const (
	foundAtLeast = 23
	ofMutants    = 25
)

// String says in one line what came of the mutant.
func (o outcome) String() string {
	switch {
	case o.err != nil:
		return fmt.Sprintf("%s: %v", o.mutant.Name, o.err)
	case o.found():
		return fmt.Sprintf("%s: found after %d histories in %v by seed %d: %s",
			o.mutant.Name, o.run, o.took.Round(time.Second), o.violation.Seed, firstLine(o.violation.Text))
	}
	text := fmt.Sprintf("%s: not found in %d histories in %v", o.mutant.Name, o.run, o.took.Round(time.Second))
	if o.shown {
		text += "; the kept history " + o.mutant.Kept + " shows it"
	}
	return text
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// table returns what came of the mutants as a table. Histories that violate something without the mutant, too, are in its last column.
func table(outcomes []outcome) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "mutant\tfound after\tby\tseed\ttime\tdiscounted")
	for _, o := range outcomes {
		after, by, seed := "-", "not found", "-"
		switch {
		case o.err != nil:
			by = "error"
		case o.found():
			after, by, seed = fmt.Sprintf("%d histories", o.run), o.violation.Invariant, fmt.Sprint(o.violation.Seed)
		default:
			after = fmt.Sprintf("> %d histories", o.run)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%d\n", o.mutant.Name, after, by, seed, o.took.Round(time.Second), o.discounted)
	}
	_ = w.Flush() // A strings.Builder takes everything.
	for _, o := range outcomes {
		if o.mutant.Unseen != "" {
			fmt.Fprintf(&b, "%s: %s\n", o.mutant.Name, o.mutant.Unseen)
		}
		if o.shown {
			fmt.Fprintf(&b, "%s: shown by the kept history %s\n", o.mutant.Name, o.mutant.Kept)
		}
	}
	return b.String()
}

// verdict returns an error if a mutant could not be run, too few are found, or one is not found and it is not said why.
func verdict(outcomes []outcome) error {
	found := 0
	var failed, unexplained []string
	for _, o := range outcomes {
		switch {
		case o.err != nil:
			failed = append(failed, o.mutant.Name)
		case o.found():
			found++
		case !o.explained():
			unexplained = append(unexplained, o.mutant.Name)
		}
	}
	switch {
	case len(outcomes) == 0:
		return fmt.Errorf("no mutant was run")
	case len(failed) > 0:
		return fmt.Errorf("%d mutants could not be run: %s", len(failed), strings.Join(failed, ", "))
	case found*ofMutants < len(outcomes)*foundAtLeast:
		return fmt.Errorf("%d of %d mutants are found, and %d of %d must be; not found, and not explained: %s",
			found, len(outcomes), foundAtLeast, ofMutants, strings.Join(unexplained, ", "))
	case len(unexplained) > 0:
		return fmt.Errorf("not found, and mutants.yaml does not say why: %s", strings.Join(unexplained, ", "))
	}
	return nil
}
