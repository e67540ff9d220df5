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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/build"
	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/plane"
)

func TestTwoControlPlanesDoNotMeet(t *testing.T) {
	// Folders of their own, so that both can be told to keep theirs or not.
	kept := filepath.Join(t.TempDir(), "kept")
	flags := [][]string{{"--with-stdin"}, {"--dir", kept, "--keep", "--fsync", "--frugal"}}
	running := make([]*controlPlane, len(flags))
	var starts sync.WaitGroup
	for i := range flags {
		starts.Go(func() { running[i] = startControlPlane(t, flags[i]...) })
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	one, two := running[0], running[1]
	if one.Server == two.Server || one.EtcdServers == two.EtcdServers || one.Dir == two.Dir {
		t.Errorf("they share something: %+v and %+v", one.Info, two.Info)
	}
	one.kubectl(t, "create", "namespace", "only-in-one")
	if found := two.kubectl(t, "get", "namespace", "only-in-one", "--ignore-not-found"); found != "" {
		t.Errorf("a namespace of one is in the other: %s", found)
	}

	// What stands in for a kubelet. All else that users of the control plane rely on is Kubernetes' own, which the product's suites use.
	t.Run("a Pod that is to stay runs and is ready", func(t *testing.T) { podStays(t, one) })
	t.Run("a Pod with a grace period is gone when it is deleted", func(t *testing.T) { podIsDeleted(t, one) })

	// One ends with its starter, the other by Ctrl-C.
	if err := one.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	one.awaitEnd(t)
	two.end(t, os.Interrupt)
	for name, c := range map[string]*controlPlane{"standard input closed": one, "Ctrl-C": two} {
		if code := c.command.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s: the command ended with %d:\n%s", name, code, c.stderr)
		}
	}
	if exists(t, one.Dir) {
		t.Errorf("the folder %s is still there", one.Dir)
	}
	if !exists(t, filepath.Join(kept, "logs", "kube-apiserver.log")) {
		t.Errorf("the folder %s was to be kept", kept)
	}
}

func TestDeathOfAProgramEndsAll(t *testing.T) {
	c := startControlPlane(t)
	if err := syscall.Kill(c.Processes["etcd"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.awaitEnd(t)
	if code := c.command.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the command ended with %d, want 1", code)
	}
	for _, want := range []string{"etcd ended (signal: killed)", "the end of its log"} {
		if !strings.Contains(c.stderr.String(), want) {
			t.Errorf("%q is not in what was printed:\n%s", want, c.stderr)
		}
	}
	if exists(t, c.Dir) {
		t.Errorf("the folder %s is still there", c.Dir)
	}
}

func TestUse(t *testing.T) {
	programs := buildPrograms(t)
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"no command":         {nil, 2, "", "usage: controlplane"},
		"unknown command":    {[]string{"stop"}, 2, "", "usage: controlplane"},
		"help":               {[]string{"start", "-h"}, 0, "", "--with-stdin"},
		"flag of another":    {[]string{"path", "--keep"}, 2, "", "usage: controlplane"},
		"argument":           {[]string{"path", "more"}, 1, "", `unexpected argument "more"`},
		"path":               {[]string{"path"}, 0, programs + "\n", ""},
		"build of the built": {[]string{"build"}, 0, "", ""},
		"no module":          {[]string{"path", "--module", occupied}, 1, "", "reading the versions of the control plane"},
		"occupied folder":    {[]string{"start", "--dir", occupied}, 1, "", "is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := mainCode(test.args, stdio{strings.NewReader(""), &out, &errs})
			if code != test.code || out.String() != test.out || !strings.Contains(errs.String(), test.err) {
				t.Errorf("got code %d, output %q, errors %q", code, out.String(), errs.String())
			}
		})
	}
	if !exists(t, filepath.Join(occupied, "precious")) {
		t.Error("a folder that was refused was emptied")
	}
}

func TestAPodRunsBeforeTheControllersAreBuilt(t *testing.T) {
	const late = "kube-controller-manager"
	built := buildPrograms(t)
	t.Setenv(build.CacheVariable, t.TempDir())
	folder, err := build.Folder(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	install := func(name string) {
		if err := os.Symlink(filepath.Join(built, name), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-scheduler", "kubectl", "kwok"} {
		install(name)
	}
	// Who holds the lock builds, and the others wait for it.
	lock, err := os.Create(filepath.Join(folder, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	c := startAsBuilt(t, "--soon", "--with-stdin", "--frugal")
	if _, runs := c.Processes[late]; runs {
		t.Fatal("it runs although it is not built")
	}
	c.kubectl(t, "run", "pod", "--image=example.com/none", "--restart=Never")
	c.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s", "pod/pod")
	install(late)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	c.namespace(t, "has-a-service-account")
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

// namespace makes a namespace that goes with the control plane.
func (c *controlPlane) namespace(t *testing.T, name string) string {
	t.Helper()
	c.kubectl(t, "create", "namespace", name)
	c.eventuallyPrints(t, "default", "get", "-n", name, "serviceaccount", "default", "--ignore-not-found", "-o", "jsonpath={.metadata.name}")
	return name
}

func podStays(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "pod-stays")
	c.kubectl(t, "-n", namespace, "run", "stays", "--image=example.com/none", "--restart=Always")
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=90s", "pod/stays")
	c.eventuallyPrints(t, "Running kwok-node-0 true 0", "-n", namespace, "get", "pod", "stays", "-o",
		"jsonpath={.status.phase} {.spec.nodeName} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}")
	// One that ends later shows that this one had the time to.
	c.kubectl(t, "-n", namespace, "run", "ends", "--image=example.com/none", "--restart=Never")
	c.kubectl(t, "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s", "pod/ends")
	if phase := c.kubectl(t, "-n", namespace, "get", "pod", "stays", "-o", "jsonpath={.status.phase}"); phase != "Running" {
		t.Errorf("the Pod that is to stay is %s", phase)
	}
}

func podIsDeleted(t *testing.T, c *controlPlane) {
	namespace := c.namespace(t, "pod-deleted")
	if _, err := c.tryKubectl(t.Context(), `
apiVersion: v1
kind: Pod
metadata: {name: pod, namespace: pod-deleted}
spec: {terminationGracePeriodSeconds: 3600, containers: [{name: main, image: example.com/none}]}
`, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=90s", "pod/pod")
	c.kubectl(t, "-n", namespace, "delete", "pod", "pod", "--timeout=90s")
}

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

// startControlPlane runs "start" with flags and returns when the control plane is ready.
func startControlPlane(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	buildPrograms(t)
	return startAsBuilt(t, flags...)
}

// startAsBuilt is startControlPlane with the programs that are there.
func startAsBuilt(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
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
