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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/build"
	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/plane"
)

// commandVariable makes this test's program the command instead.
const commandVariable = "CONTROL_PLANE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// buildPrograms builds the control plane's programs where they are missing, and returns their folder.
func buildPrograms(t *testing.T) string {
	t.Helper()
	folder, err := build.Programs(t.Context(), ".", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// controlPlane is the command, running in a process of its own.
type controlPlane struct {
	plane.Info
	command *exec.Cmd
	stdin   io.Closer
	// stderr may be read when ended is closed.
	stderr *bytes.Buffer
	ended  chan struct{}
}

// startControlPlane runs "start" with flags and returns when the control plane is ready.
func startControlPlane(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	buildPrograms(t)
	c := &controlPlane{stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	c.command = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], append([]string{"start"}, flags...)...)
	c.command.Env = append(os.Environ(), commandVariable+"=yes")
	c.command.Stderr = c.stderr
	stdin, err := c.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	// Not StdoutPipe: its reader must be done before Wait is called.
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = output.Close() }()
	c.command.Stdout = input
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = input.Close()
	go func() {
		defer close(c.ended)
		// How it ended is in ProcessState.
		_ = c.command.Wait()
	}()
	t.Cleanup(func() { c.end(t, syscall.SIGTERM) })

	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		<-c.ended
		t.Fatalf("the command ended before the control plane was ready: %v\n%s", c.command.ProcessState, c.stderr)
	}
	if err := json.Unmarshal(line, &c.Info); err != nil {
		t.Fatalf("want a line of JSON, got %q: %v", line, err)
	}
	return c
}

// end sends a signal and waits for the end of the command and of all its programs.
func (c *controlPlane) end(t *testing.T, signal os.Signal) {
	t.Helper()
	// There may be nobody left to take it.
	_ = c.command.Process.Signal(signal)
	c.awaitEnd(t)
}

// awaitEnd waits for the end of the command and of all its programs.
func (c *controlPlane) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatal("the command has not ended")
	}
	for name, id := range c.Processes {
		eventually(t, name+" to end", func(context.Context) (bool, string) {
			err := syscall.Kill(id, 0)
			return errors.Is(err, syscall.ESRCH), fmt.Sprintf("asking for process %d: %v", id, err)
		})
	}
}

// kubectl returns what kubectl printed on its standard output; the test ends when it fails.
func (c *controlPlane) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := c.tryKubectl(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// apply applies a manifest.
func (c *controlPlane) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := c.tryKubectl(t.Context(), manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func (c *controlPlane) tryKubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, c.Kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(c.Dir, "kubectl-cache"))
	command.Stdin = strings.NewReader(input)
	output, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(output), err
}

// eventuallyPrints waits until kubectl prints what is wanted.
func (c *controlPlane) eventuallyPrints(t *testing.T, want string, args ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q from kubectl %s", want, strings.Join(args, " ")), func(ctx context.Context) (bool, string) {
		got, err := c.tryKubectl(ctx, "", args...)
		return err == nil && got == want, fmt.Sprintf("%q, error %v", got, err)
	})
}

// eventually asks until the answer is true. The text that comes with a false one is shown when the time is over.
func eventually(t *testing.T, what string, ask func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 90*time.Second)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		done, seen := ask(ctx)
		if done {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s; last seen: %s", what, seen)
		}
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
