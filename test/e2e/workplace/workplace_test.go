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

// Package workplace runs the program behind `make run` on a control plane of the tests: every example with the commands of its README, and a
// hook of an author that is edited, does not start, and dies.
package workplace

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

var update = flag.Bool("update", false, "write what is printed to the READMEs of the examples")

func TestMain(m *testing.M) { os.Exit(terminal.MainInParallel(m, 5)) }

// TestMakeRun has one server for all.
func TestMakeRun(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	demo := terminal.Program(t, "demo", "hack")
	folders, err := os.ReadDir(filepath.Join(cluster.Root(), "artifacts", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if folder.IsDir() {
			t.Run(folder.Name(), func(t *testing.T) {
				t.Parallel()
				s := terminal.New(t, c)
				run(t, s, c, demo, "--example "+folder.Name())
				if folder.Name() == troubleshooting.example {
					troubleshooting.play(t, s)
				}
				s.Play(t, "artifacts/examples/"+folder.Name()+"/README.md", 3, *update)
			})
		}
	}
	t.Run("OwnHook", func(t *testing.T) {
		t.Parallel()
		ownHook(t, c, demo)
	})
}

// troubleshooting is the page docs/troubleshooting.md, whose commands of the plugin are for an example.
var troubleshooting = page{path: "docs/troubleshooting.md", example: "hello-world", least: 5}

type page struct {
	path, example string
	least         int
}

// play runs the commands of the plugin in the page: each succeeds and prints something.
func (p *page) play(t *testing.T, s *terminal.Shell) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(), filepath.FromSlash(p.path)))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "kubectl metacontroller ") {
			commands++
			if printed := s.Must(t, strings.TrimSpace(line)); printed == "" {
				t.Errorf("%s: nothing is printed by: %s", p.path, line)
			}
		}
	}
	if commands < p.least {
		t.Errorf("%s has %d commands of the plugin, want %d and more", p.path, commands, p.least)
	}
}

// run runs the program until the test ends, waits until it has shown the result, and returns what it has printed.
func run(t *testing.T, s *terminal.Shell, c *cluster.Cluster, demo, args string) func() string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "demo.log")
	// kubectl's cache would go into the home without the program's own.
	home := t.TempDir()
	text := fmt.Sprintf("cd %s && unset KUBECACHEDIR && HOME=%s exec %s --kubeconfig %s %s", cluster.Root(), home, demo, c.Kubeconfig, args)
	running, err := process.Start(s.Command(context.WithoutCancel(t.Context()), text), process.Options{
		Name: "the program", Log: log, Wanted: func(line string) bool { return strings.HasPrefix(line, "The logs are in ") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(terminal.Patience); err != nil {
			t.Errorf("it was interrupted, and ended with %v", err)
		}
		if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
			t.Errorf("it leaves %v in the user's home, error %v", left, err)
		}
		if t.Failed() {
			t.Log(running.Tail(60))
		}
	})
	if _, err := running.Line(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func() string {
		printed, err := os.ReadFile(log)
		if err != nil {
			return err.Error()
		}
		return string(printed)
	}
}

// hook answers with a ConfigMap for each parent, and dies when a parent says so.
const hook = `import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        parent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["parent"]
        if parent["metadata"].get("annotations", {}).get("die"):
            print("I die", flush=True)
            os._exit(3)
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": parent["metadata"]["name"]}, "data": {"text": "FIRST"}}
        body = json.dumps({"children": [child]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
`

const manifests = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: notes.own.example.com}
spec:
  group: own.example.com
  names: {kind: Note, plural: notes, singular: note}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: notes}
spec:
  generateSelector: true
  parentResource: {apiVersion: own.example.com/v1, resource: notes}
  childResources: [{apiVersion: v1, resource: configmaps, updateStrategy: {method: InPlace}}]
  hooks: {sync: {webhook: {path: /sync, service: {name: notes, namespace: notes}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: notes}, spec: {ports: [{port: 80}]}}
---
{apiVersion: own.example.com/v1, kind: Note, metadata: {name: note, namespace: notebook}}
`

// ownHook edits a hook on disk: the cluster follows, also after it did not start, and after it died.
func ownHook(t *testing.T, c *cluster.Cluster, demo string) {
	s := terminal.New(t, c)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.Folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hook.py", hook)
	write("all.yaml", manifests)
	output := run(t, s, c, demo, "--hook "+s.Folder+"/hook.py --controller "+s.Folder)
	await := func(want string) {
		t.Helper()
		cluster.Eventually(t, terminal.Patience, "the ConfigMap to say "+want, func(ctx context.Context) (bool, string) {
			got, err := c.Field(ctx, "notebook", "configmap/note", "{.data.text}")
			return err == nil && got == want, fmt.Sprintf("%s %v\n%s", got, err, output())
		})
	}
	printed := func(want string) {
		t.Helper()
		cluster.Eventually(t, terminal.Patience, "it to print "+want, func(context.Context) (bool, string) {
			return strings.Contains(output(), want), output()
		})
	}
	await("FIRST")
	for _, want := range []string{"Service notes is left out: the hook runs on this machine", "kubectl metacontroller syncs cc/notes --all", "CompositeController notes is ready."} {
		printed(want)
	}

	write("hook.py", strings.Replace(hook, "FIRST", "SECOND", 1))
	await("SECOND")
	printed("==> hook.py: 1 parent synced, 1 child updated\n")

	write("all.yaml", manifests+"---\n{apiVersion: own.example.com/v1, kind: Note, metadata: {name: other, namespace: notebook}}\n")
	cluster.Eventually(t, terminal.Patience, "the ConfigMap of the second parent", func(ctx context.Context) (bool, string) {
		got, err := c.Field(ctx, "notebook", "configmap/other", "{.data.text}")
		return err == nil && got == "SECOND", fmt.Sprintf("%s %v\n%s", got, err, output())
	})
	printed("    note.own.example.com/other created\n")
	if strings.Contains(output(), "note.own.example.com/note unchanged") {
		t.Errorf("what had not changed was applied again:\n%s", output())
	}

	write("hook.py", "oops(")
	printed("hook: SyntaxError: ")
	printed("the hook ended: exit status 1. It is started again when a file in " + s.Folder + " changes")
	write("hook.py", strings.Replace(hook, "FIRST", "THIRD", 1))
	await("THIRD")

	c.Kubectl(t, "-n", "notebook", "annotate", "note", "note", "die=now")
	printed("hook: I die\n")
	printed("the hook ended: exit status 3.")
	c.Kubectl(t, "-n", "notebook", "annotate", "note", "note", "die-")
	write("hook.py", strings.Replace(hook, "FIRST", "FOURTH", 1))
	await("FOURTH")
}
