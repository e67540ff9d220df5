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

// Package plugin runs the commands of docs/kubectl-plugin.md as they stand, in a shell, with the real kubectl and the plugin's binary on
// PATH, a real control plane and the server; and compares what is printed with the page, which the flag -update writes. It also goes from an
// empty folder to a changed Deployment with each language of init. It holds tests only.
package plugin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

var update = flag.Bool("update", false, "write what is printed to docs/kubectl-plugin.md and testdata")

func TestMain(m *testing.M) { os.Exit(terminal.Main(m)) }

// TestPlugin has one server for all, since the first to come is the page, which lists all controllers.
func TestPlugin(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	t.Run("Page", func(t *testing.T) { playPage(t, c) })
	t.Run("Try", func(t *testing.T) { tryAHook(t, c) })
	t.Run("TryInline", func(t *testing.T) { tryInlineHooks(t, c) })
	t.Run("Init", func(t *testing.T) { begin(t, c) })
	t.Run("InitADecorator", func(t *testing.T) { beginADecorator(t, c) })
}

// transcript is a command of which a table or a difference is printed, and what it prints.
var transcript = regexp.MustCompile("(?s)```console\n\\$ kubectl metacontroller (status cc|parents|syncs|tree|plan)\\b[^\n]*\n(.*?)```")

// Lines of tables and differences are as long as a terminal is wide at most. Errors are not cut.
func TestTranscriptsFitATerminal(t *testing.T) {
	commands := sets.New[string]()
	for _, page := range []string{"docs/kubectl-plugin.md", "docs/tutorial.md", "test/e2e/plugin/testdata/more.md"} {
		text, err := os.ReadFile(filepath.Join(cluster.Root(), filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range transcript.FindAllStringSubmatch(string(text), -1) {
			commands.Insert(found[1])
			for line := range strings.Lines(found[2]) {
				if n := utf8.RuneCountInString(line); n > 121 && !strings.HasPrefix(line, "Error: ") {
					t.Errorf("%s: %s: %d characters: %s", page, found[1], n, line)
				}
			}
		}
	}
	if len(commands) != 5 {
		t.Errorf("there are transcripts of %v", sets.List(commands))
	}
}

// playPage runs the page docs/kubectl-plugin.md from its top to its end, and then what is too long for it.
func playPage(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s := terminal.New(t, c)
	s.Play(t, "docs/kubectl-plugin.md", 20, *update)
	s.Play(t, "test/e2e/plugin/testdata/more.md", 20, *update)
}

// begin goes from an empty folder to a Deployment in four commands, and to a changed one with a fifth. The pages do it in Python.
func begin(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for language, run := range map[string]string{"javascript": "node main.js", "go": "go run ."} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath("node"); err != nil && language == "javascript" {
				t.Skip("node is not installed")
			}
			s := terminal.New(t, c)
			namespace := c.Namespace(t)
			s.Must(t, "kubectl metacontroller init begun --lang "+language+" --parent Shop."+language+".example.com --child deployments,services")
			s.Start(t, "cd begun && exec "+run)
			s.Must(t, "kubectl apply -k begun/manifests/local")
			t.Cleanup(func() { remove(t, c, "compositecontroller/begun", "crd/shops."+language+".example.com") })
			s.Must(t, "kubectl wait --for=condition=Established crd/shops."+language+".example.com && kubectl -n "+namespace+" apply -f begun/example.yaml")
			awaitReplicas(t, c, namespace, "example", 2)

			s.Must(t, fmt.Sprintf(`kubectl -n %s patch shops.%s.example.com example --type=merge -p '{"spec":{"replicas":3}}'`, namespace, language))
			awaitReplicas(t, c, namespace, "example", 3)
		})
	}
}

// beginADecorator shows that a decorator adds to what is there and asks for it, and to nothing else.
func beginADecorator(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s := terminal.New(t, c)
	namespace := c.Namespace(t)
	s.Must(t, "kubectl metacontroller init budget --decorator --parent Deployment.apps --child poddisruptionbudgets")
	s.Start(t, "cd budget && exec python3 hook.py")
	s.Must(t, "kubectl apply -k budget/manifests/local")
	t.Cleanup(func() { remove(t, c, "decoratorcontroller/budget") })
	for _, name := range []string{"asks", "other"} {
		s.Must(t, fmt.Sprintf("kubectl -n %s create deployment %s --image=nginx:1.29", namespace, name))
	}
	s.Must(t, fmt.Sprintf("kubectl -n %s annotate deployment asks budget=enabled", namespace))
	cluster.Eventually(t, terminal.Patience, "the PodDisruptionBudget of the Deployment that asks", func(ctx context.Context) (bool, string) {
		got, err := c.Field(ctx, namespace, "poddisruptionbudgets", "{.items[*].metadata.name} {.items[*].spec.selector.matchLabels.app}")
		return err == nil && got == "asks-budget asks", fmt.Sprintf("%s %v", got, err)
	})
}

// awaitReplicas waits until a Deployment has so many replicas.
func awaitReplicas(t *testing.T, c *cluster.Cluster, namespace, name string, want int) {
	t.Helper()
	cluster.Eventually(t, terminal.Patience, fmt.Sprintf("%d replicas", want), func(ctx context.Context) (bool, string) {
		got, err := c.Field(ctx, namespace, "deployment/"+name, "{.spec.replicas}")
		return err == nil && got == fmt.Sprint(want), fmt.Sprintf("%s %v", got, err)
	})
}

// remove deletes objects after a test.
func remove(t *testing.T, c *cluster.Cluster, objects ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), terminal.Patience)
	defer cancel()
	for _, object := range objects {
		if output, err := c.TryKubectl(ctx, "", "delete", object, "--ignore-not-found"); err != nil {
			t.Errorf("deleting %s: %v\n%s", object, err, output)
		}
	}
}

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
	edit(t, s, "tried/hook.py", `"port": 80,`, `"port": 8000,`)
	await(t, output, "8000", 1)
	await(t, output, "1 would change", 1)
	edit(t, s, "tried/hook.py", `"kind": "ConfigMap"`, `"kind": "ConfigMap", "data": None, "oops`)
	await(t, output, "it ended before it listened", 1)
	edit(t, s, "tried/hook.py", `"kind": "ConfigMap", "data": None, "oops`, `"kind": "ConfigMap"`)
	await(t, output, "1 would change", 2)
	awaitStatus(t, s, fmt.Sprintf("kubectl metacontroller -n %s record cc/tried -o recorded && kubectl metacontroller replay recorded --hook http://localhost:%s/sync "+
		"--directory tried --exec 'python3 hook.py'", namespace, terminal.TrialPort), 1, `"port": 8000`)
	edit(t, s, "tried/hook.py", `"port": 8000,`, `"port": 80,`)
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

// tryInlineHooks edits inline hooks on disk while they are tried: what is shown changes with each edit, a mistake is named, and nothing changes in
// the cluster. What is recorded of the controller, its file returns.
func tryInlineHooks(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s := terminal.New(t, c)
	namespace := c.Namespace(t)
	s.Must(t, "kubectl metacontroller init tried --inline --parent Shop.try.example.com --child configmaps,services")
	s.Must(t, "kubectl apply -f tried/crd.yaml && kubectl wait --for=condition=Established crd/shops.try.example.com")
	s.Must(t, "kubectl apply -f tried/controller.yaml && kubectl -n "+namespace+" apply -f tried/example.yaml")
	t.Cleanup(func() { remove(t, c, "compositecontroller/tried", "crd/shops.try.example.com") })
	awaitStatus(t, s, fmt.Sprintf("kubectl metacontroller -n %s plan cc/tried", namespace), 0, "2 left as they are")
	before := versions(t, c, namespace)

	watch, output := follow(t, s, fmt.Sprintf("exec kubectl metacontroller -n %s try -f tried/controller.yaml example --watch", namespace))
	await(t, output, "0 would change", 1)
	edit(t, s, "tried/controller.yaml", "port: 80\n", "port: ${size(parent.metadata.name) + 8000}\n")
	await(t, output, "8007", 1)
	await(t, output, "1 would change", 1)
	edit(t, s, "tried/controller.yaml", "image: ${parent.spec.image}", "image: ${parent.spec.imag}")
	await(t, output, `spec.hooks.sync.inline.children[0].template.data[image]: Invalid value: "parent.spec.imag": `+
		"Shop.spec has no field imag; did you mean image? (line 1, column 12)", 1)
	edit(t, s, "tried/controller.yaml", "image: ${parent.spec.imag}", "image: ${parent.spec.image}")
	await(t, output, "1 would change", 2)
	recorded := fmt.Sprintf("kubectl metacontroller -n %s record cc/tried -o recorded", namespace)
	awaitStatus(t, s, recorded, 0, "kubectl metacontroller replay recorded -f FILE")
	awaitStatus(t, s, "kubectl metacontroller replay recorded -f tried/controller.yaml", 1, `"port": 8007`)
	edit(t, s, "tried/controller.yaml", "port: ${size(parent.metadata.name) + 8000}\n", "port: 80\n")
	await(t, output, "0 would change", 2)
	if err := watch.Stop(terminal.Patience); err != nil {
		t.Errorf("it was interrupted, and ended with %v", err)
	}
	awaitStatus(t, s, "kubectl metacontroller replay recorded -f tried/controller.yaml", 0, "The hook returned what was recorded to 1 request.")
	awaitStatus(t, s, "kubectl metacontroller status cc/tried", 0, "CompositeController tried is ready.")
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

// edit replaces a text in a file.
func edit(t *testing.T, s *terminal.Shell, file, old, replacement string) {
	t.Helper()
	path := filepath.Join(s.Folder, filepath.FromSlash(file))
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
