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

package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// unfinished marks files that a build has not finished.
const unfinished = ".unfinished"

// Programs returns the folder that holds the programs, and builds those that are missing from the Go module in folder
// module. What is built is told to w, since it takes minutes the first time. Several processes may call it at once: one
// builds, the others wait.
func Programs(ctx context.Context, module string, w io.Writer) (string, error) {
	folder, err := Folder(module)
	if err != nil {
		return "", err
	}
	return folder, ensure(ctx, module, folder, programs(), w)
}

// ensure builds those of the programs that are not in folder.
func ensure(ctx context.Context, module, folder string, all []program, w io.Writer) error {
	if len(missing(folder, all)) == 0 {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("creating the folder for the control plane's programs: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(folder, "LOCK"), func() {
		fmt.Fprintln(w, "Another process is building the control plane; waiting for it.")
	})
	if err != nil {
		return err
	}
	defer unlock()

	wanted := missing(folder, all)
	if len(wanted) == 0 {
		return nil
	}
	fmt.Fprintf(w, "Building the control plane (Kubernetes %s) into %s.\n"+
		"This is done once. On two cores it takes about six minutes, and less where Go has compiled parts of it before.\n",
		KubernetesVersion, folder)
	removeUnfinished(folder)
	for i, p := range wanted {
		fmt.Fprintf(w, "  %d/%d %s (about %s) … ", i+1, len(wanted), p.name, p.usual)
		started := time.Now()
		if err := p.build(ctx, module, folder); err != nil {
			fmt.Fprintln(w, "failed")
			return err
		}
		fmt.Fprintf(w, "done in %s\n", time.Since(started).Round(time.Second))
	}
	return nil
}

// missing returns those of the programs that the folder does not have.
func missing(folder string, all []program) []program {
	var found []program
	for _, p := range all {
		if _, err := os.Stat(filepath.Join(folder, p.name)); err != nil {
			found = append(found, p)
		}
	}
	return found
}

// removeUnfinished removes what builds left behind that were killed. The caller holds the lock.
func removeUnfinished(folder string) {
	// The pattern is well formed, and what cannot be removed is only in the way.
	names, _ := filepath.Glob(filepath.Join(folder, "*"+unfinished))
	for _, name := range names {
		_ = os.Remove(name)
	}
}

// build builds one program. Nobody sees it half written.
func (p program) build(ctx context.Context, module, folder string) error {
	target := filepath.Join(folder, p.name)
	// A killed process may leave its compiler running, so the file is not shared with the next one.
	result := fmt.Sprintf("%s.%d%s", target, os.Getpid(), unfinished)
	command := exec.CommandContext(ctx, "go", append(arguments(), "-o", result, p.pkg)...)
	command.Dir = module
	command.Env = append(os.Environ(), environment()...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", p.name, err, output)
	}
	if err := os.Rename(result, target); err != nil {
		return fmt.Errorf("installing %s: %w", p.name, err)
	}
	return nil
}
