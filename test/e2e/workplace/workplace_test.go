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
