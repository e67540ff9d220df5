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

package terminal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	// Patience is more than any command takes on a busy machine.
	Patience = 2 * time.Minute
	// TrialPort is the port of hooks that are tried, in documents and commands; a shell takes a free one.
	TrialPort = "8081"
	// pagePort is the port of other hooks in documents.
	pagePort = "8080"
)

// programs is the folder of the programs: that of make, or one in which they are built.
var programs = process.Built()

// MainInParallel is [Main] for pages of which so many are played at once: most of the time each waits for the cluster.
func MainInParallel(m *testing.M, pages int) int {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(pages)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Main(m)
}

// Main runs the tests of a package with a control plane that they share, as cluster.Main does, and returns the code to exit with.
func Main(m *testing.M) int {
	if programs != "" {
		return cluster.Main(m)
	}
	folder, err := os.MkdirTemp("", "terminal-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for programs:", err)
		return 1
	}
	programs = folder
	code := cluster.Main(m)
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, "removing the programs:", err)
	}
	return code
}

// plugin builds the plugin, once, as [build] does.
var plugin = sync.OnceValue(func() error { return build("kubectl-metacontroller", "cmd") })

// build builds a program of the repository, named like its folder, unless make has built it.
func build(name, parent string) error {
	if process.Built() != "" {
		return nil
	}
	command := exec.Command("go", "build", "-o", filepath.Join(programs, name), "./"+parent+"/"+name) //nolint:noctx // It is built for all tests, and ends by itself.
	command.Dir = cluster.Root()
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // As it is shipped.
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", name, err, output)
	}
	return nil
}

// Program returns the path of a program in a folder of the repository, such as hack. The plugin is beside it.
func Program(t *testing.T, name, parent string) string {
	t.Helper()
	if err := errors.Join(plugin(), build(name, parent)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(programs, name)
}

// A Shell runs commands in an empty folder, with kubectl and the plugin on PATH. It is for one test goroutine.
type Shell struct {
	// Folder is where commands run. The test removes it.
	Folder string
	// port is a free one for the hook, and trial one for a hook that is tried.
	port, trial int
	environment []string
}

// New returns a shell for a cluster. The package's TestMain must call Main.
func New(t *testing.T, c *cluster.Cluster) *Shell {
	t.Helper()
	if err := plugin(); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{programs, filepath.Dir(c.KubectlPath), os.Getenv("PATH")}, string(os.PathListSeparator))
	s := &Shell{Folder: t.TempDir(), port: freeport.Find(t), trial: freeport.Find(t)}
	// What is killed leaves its temporary files.
	s.environment = append(os.Environ(), "PATH="+path, "KUBECONFIG="+c.Kubeconfig, "KUBECACHEDIR="+t.TempDir(), "TMPDIR="+t.TempDir(),
		"HOST=127.0.0.1", "GOPROXY=off", "PYTHONDONTWRITEBYTECODE=1")
	return s
}

// Prefer has programs in a folder found before all others.
func (s *Shell) Prefer(folder string) {
	for i, variable := range s.environment {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			s.environment[i] = "PATH=" + folder + string(os.PathListSeparator) + path
		}
	}
}

// Command makes a command of the shell. Hooks listen at the shell's port: it is that of init, and of those that are started.
func (s *Shell) Command(ctx context.Context, text string) *exec.Cmd {
	if strings.HasPrefix(text, "kubectl metacontroller init ") && !strings.Contains(text, " --inline") {
		text += fmt.Sprintf(" --port=%d", s.port)
	}
	text = strings.ReplaceAll(text, TrialPort, strconv.Itoa(s.trial))
	command := exec.CommandContext(ctx, "bash", "-c", text)
	command.Dir, command.Env = s.Folder, append(slices.Clone(s.environment), "PORT="+strconv.Itoa(s.port))
	return command
}

// Run returns what a command prints on both outputs, whatever its exit status is.
func (s *Shell) Run(t *testing.T, text string) string {
	t.Helper()
	output, err := s.Command(t.Context(), text).CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok { //nolint:errorlint // It is what CombinedOutput returns.
		t.Fatalf("$ %s\n%v", text, err)
	}
	printed := strings.ReplaceAll(string(output), "PORT="+strconv.Itoa(s.port)+" ", "")
	printed = strings.ReplaceAll(printed, strconv.Itoa(s.trial), TrialPort)
	return strings.ReplaceAll(printed, strconv.Itoa(s.port), pagePort)
}

// Must runs a command that has to succeed, and returns what it prints on both outputs.
func (s *Shell) Must(t *testing.T, text string) string {
	t.Helper()
	output, err := s.Command(t.Context(), text).CombinedOutput()
	if err != nil {
		t.Fatalf("$ %s\n%v\n%s", text, err, output)
	}
	return string(output)
}

// listening tells whether a line says that a hook listens, or that `make run` has shown its result.
func listening(line string) bool {
	return strings.HasPrefix(line, "hook listens on port ") || strings.HasPrefix(line, "The logs are in ")
}

// Start runs a hook, or `make run`, until the test ends.
func (s *Shell) Start(t *testing.T, text string) {
	t.Helper()
	hook, err := process.Start(s.Command(context.WithoutCancel(t.Context()), text), process.Options{
		Name: "the hook", Log: filepath.Join(t.TempDir(), "hook.log"),
		Wanted: listening,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hook.Kill()
		<-hook.Ended()
		if t.Failed() {
			t.Log(hook.Tail(20))
		}
	})
	if _, err := hook.Line(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Poll asks until it is done, or the context ends, as process.Poll does.
func Poll(ctx context.Context, done func() bool) {
	_ = process.Poll(ctx, func(context.Context) (bool, error) { return done(), nil }) // The caller looks at ctx.
}
