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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

// tryAHook edits a hook on disk while it is tried: what is shown changes with each edit, and nothing does in the cluster.
func tryAHook(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s := terminal.New(t, c)
	namespace := c.Namespace(t)
	s.Must(t, "kubectl metacontroller init tried --parent Shop.try.example.com --child configmaps,services")
	s.Start(t, "cd tried && exec python3 hook.py")
	s.Must(t, "kubectl apply -k tried/manifests/local")
	t.Cleanup(func() { remove(t, c, "compositecontroller/tried", "crd/shops.try.example.com") })
	s.Must(t, "kubectl wait --for=condition=Established crd/shops.try.example.com && kubectl -n "+namespace+" apply -f tried/example.yaml")
	plan := fmt.Sprintf("kubectl metacontroller -n %s plan cc/tried", namespace)
	awaitStatus(t, s, plan, 0, "2 left as they are")
	before := versions(t, c, namespace)

	try := fmt.Sprintf("kubectl metacontroller -n %s try cc/tried example --hook http://localhost:%s/sync --directory tried --exec 'python3 hook.py'", namespace, terminal.TrialPort)
	awaitStatus(t, s, try, 0, "2 left as they are")
	watch, output := follow(t, s, "exec "+try+" --watch")
	await(t, output, "0 would change", 1)
	edit(t, s, `"port": 80,`, `"port": 8000,`)
	await(t, output, "8000", 1)
	await(t, output, "1 would change", 1)
	edit(t, s, `"kind": "ConfigMap"`, `"kind": "ConfigMap", "data": None, "oops`)
	await(t, output, "it ended before it listened", 1)
	edit(t, s, `"kind": "ConfigMap", "data": None, "oops`, `"kind": "ConfigMap"`)
	await(t, output, "1 would change", 2)
	awaitStatus(t, s, fmt.Sprintf("kubectl metacontroller -n %s record cc/tried -o recorded && kubectl metacontroller replay recorded --hook http://localhost:%s/sync "+
		"--directory tried --exec 'python3 hook.py'", namespace, terminal.TrialPort), 1, `"port": 8000`)
	edit(t, s, `"port": 8000,`, `"port": 80,`)
	await(t, output, "0 would change", 2)
	if err := watch.Stop(terminal.Patience); err != nil {
		t.Errorf("it was interrupted, and ended with %v", err)
	}
	awaitStatus(t, s, fmt.Sprintf("kubectl metacontroller replay recorded --hook http://localhost:%s/sync", terminal.TrialPort), 2, "nothing listens at")

	awaitStatus(t, s, plan, 0, "2 left as they are")
	if after := versions(t, c, namespace); after != before {
		t.Errorf("something changed in the cluster: there was\n%s\nand there is\n%s", before, after)
	}
}

// versions are the objects of a controller, with the versions that change with every write.
func versions(t *testing.T, c *cluster.Cluster, namespace string) string {
	t.Helper()
	return c.Kubectl(t, "-n", namespace, "get", "shops.try.example.com,configmaps,services,controllerrevisions.metacontroller.k8s.io", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
}

// edit replaces a text in the hook.
func edit(t *testing.T, s *terminal.Shell, old, replacement string) {
	t.Helper()
	path := filepath.Join(s.Folder, "tried", "hook.py")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("there is no %s in\n%s", old, text)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitStatus runs a command until it has an exit status and prints a text.
func awaitStatus(t *testing.T, s *terminal.Shell, text string, status int, printed string) {
	t.Helper()
	cluster.Eventually(t, terminal.Patience, fmt.Sprintf("%q to end with status %d", text, status), func(ctx context.Context) (bool, string) {
		output, err := s.Command(ctx, text).CombinedOutput()
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		} else if err != nil {
			return false, err.Error()
		}
		return got == status && strings.Contains(string(output), printed), fmt.Sprintf("status %d\n%s", got, output)
	})
}

// follow runs a command until it is stopped, and returns what it has printed.
func follow(t *testing.T, s *terminal.Shell, text string) (running *process.Process, output func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "follow.log")
	running, err := process.Start(s.Command(context.WithoutCancel(t.Context()), text), process.Options{Name: text, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Kill)
	return running, func() string {
		printed, err := os.ReadFile(log)
		if err != nil {
			return err.Error()
		}
		return string(printed)
	}
}

// await waits until a text was printed so many times.
func await(t *testing.T, output func() string, text string, times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), terminal.Patience)
	defer cancel()
	terminal.Poll(ctx, func() bool { return strings.Count(output(), text) >= times })
	if got := strings.Count(output(), text); got < times {
		t.Fatalf("%q was printed %d times after %s, want %d:\n%s", text, got, terminal.Patience.Round(time.Second), times, output())
	}
}
