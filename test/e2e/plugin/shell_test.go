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

package plugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	// patience is more than anything here takes on a busy machine.
	patience = 2 * time.Minute
	// settledPolls is how often a command prints the same before it is taken to be settled.
	settledPolls = 8
	// pagePort is the port of hooks in the page, and trialPort that of those that are tried; tests take free ones.
	pagePort  = "8080"
	trialPort = "8081"
)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "plugin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the plugin:", err)
		os.Exit(1)
	}
	pluginFolder = folder
	code := cluster.Main(m)
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, "removing the plugin:", err)
	}
	os.Exit(code)
}

// pluginFolder is where the plugin is built.
var pluginFolder string

// plugin builds the plugin, once.
var plugin = sync.OnceValues(func() (string, error) {
	folder := pluginFolder
	command := exec.Command("go", "build", "-o", filepath.Join(folder, "kubectl-metacontroller"), "./cmd/kubectl-metacontroller")
	command.Dir = cluster.Root()
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the plugin: %w\n%s", err, output)
	}
	return folder, nil
})

// shell runs commands in an empty folder, with kubectl and the plugin on PATH.
type shell struct {
	folder string
	// port is a free one for the hook, and trial one for a hook that is tried.
	port, trial int
	environment []string
}

// newShell returns a shell for a cluster.
func newShell(t *testing.T, c *cluster.Cluster) *shell {
	t.Helper()
	folder, err := plugin()
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{folder, filepath.Dir(c.KubectlPath), os.Getenv("PATH")}, string(os.PathListSeparator))
	s := &shell{folder: t.TempDir(), port: freePort(t), trial: freePort(t)}
	s.environment = append(os.Environ(), "PATH="+path, "KUBECONFIG="+c.Kubeconfig, "KUBECACHEDIR="+t.TempDir(), "HOST=127.0.0.1", "GOPROXY=off",
		"PYTHONDONTWRITEBYTECODE=1")
	return s
}

// freePort returns a port at which nobody listens.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // Nothing was written.
	return listener.Addr().(*net.TCPAddr).Port
}

// command makes a command of the shell. Hooks listen at the shell's port: it is that of init, and of those that are started.
func (s *shell) command(ctx context.Context, text string) *exec.Cmd {
	if strings.HasPrefix(text, "kubectl metacontroller init ") {
		text += fmt.Sprintf(" --port=%d", s.port)
	}
	text = strings.ReplaceAll(text, trialPort, strconv.Itoa(s.trial))
	command := exec.CommandContext(ctx, "bash", "-c", text)
	command.Dir, command.Env = s.folder, append(slices.Clone(s.environment), "PORT="+strconv.Itoa(s.port))
	return command
}

// run returns what a command prints on both outputs, whatever its exit status is.
func (s *shell) run(t *testing.T, text string) string {
	t.Helper()
	output, err := s.command(t.Context(), text).CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok { //nolint:errorlint // It is what CombinedOutput returns.
		t.Fatalf("$ %s\n%v", text, err)
	}
	printed := strings.ReplaceAll(string(output), "PORT="+strconv.Itoa(s.port)+" ", "")
	printed = strings.ReplaceAll(printed, strconv.Itoa(s.trial), trialPort)
	return strings.ReplaceAll(printed, strconv.Itoa(s.port), pagePort)
}

// must is run for commands that have to succeed.
func (s *shell) must(t *testing.T, text string) {
	t.Helper()
	if output, err := s.command(t.Context(), text).CombinedOutput(); err != nil {
		t.Fatalf("$ %s\n%v\n%s", text, err, output)
	}
}

// start runs a hook until the test ends.
func (s *shell) start(t *testing.T, text string) {
	t.Helper()
	hook, err := process.Start(s.command(context.WithoutCancel(t.Context()), text), process.Options{
		Name: "the hook", Log: filepath.Join(t.TempDir(), "hook.log"),
		Wanted: func(line string) bool { return strings.HasPrefix(line, "hook listens on port ") },
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

// poll asks until it is done, or the context ends.
func poll(ctx context.Context, done func() bool) {
	_ = wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(context.Context) (bool, error) { return done(), nil })
}
