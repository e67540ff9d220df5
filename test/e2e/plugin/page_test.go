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
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

var update = flag.Bool("update", false, "write what is printed to docs/kubectl-plugin.md")

// broken is a controller of the page with a hook that nobody serves.
const broken = `apiVersion: metacontroller.k8s.io/v1alpha1
kind: DecoratorController
metadata: {name: broken}
spec:
  resources: [{apiVersion: example.com/v1, resource: websites}]
  attachments: [{apiVersion: v1, resource: configmaps}]
  hooks: {sync: {webhook: {url: "http://127.0.0.1:9/sync"}}}
`

// block is a command of the page with what it prints.
var block = regexp.MustCompile("(?s)```console\n\\$ ([^\n]+)\n(.*?)```\n")

// TestPlugin has one server for all, since the first to come is the page, which lists all controllers.
func TestPlugin(t *testing.T) {
	c := cluster.Shared(t)
	server.Start(t, c, server.Options{})
	t.Run("Page", func(t *testing.T) { playPage(t, c) })
	t.Run("Try", func(t *testing.T) { tryAHook(t, c) })
	t.Run("Init", func(t *testing.T) { begin(t, c) })
	t.Run("InitADecorator", func(t *testing.T) { beginADecorator(t, c) })
}

// playPage runs the page docs/kubectl-plugin.md from its top to its end.
func playPage(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	s := newShell(t, c)
	if err := os.WriteFile(filepath.Join(s.folder, "broken.yaml"), []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cluster.Root(), "docs", "kubectl-plugin.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	written := block.ReplaceAllStringFunc(string(page), func(text string) string {
		match := block.FindStringSubmatch(text)
		commands++
		got := s.play(t, match[1], match[2])
		if got != match[2] && !*update {
			t.Errorf("$ %s\nprinted\n%s\nand the page has\n%s", match[1], got, match[2])
		}
		return "```console\n$ " + match[1] + "\n" + got + "```\n"
	})
	if commands < 20 {
		t.Errorf("the page has %d commands, want 20 and more", commands)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(path, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// repeatable are commands that change nothing: what they print follows what the cluster does, and is waited for.
var repeatable = regexp.MustCompile(`^kubectl (metacontroller (status|tree|version|parents|plan|syncs|explain-loop)|get|rollout) `)

// play runs a command of the page until it prints what is wanted, if it may be run again, and returns what it printed last.
func (s *shell) play(t *testing.T, command, wanted string) string {
	t.Helper()
	if background, ok := strings.CutSuffix(command, " &"); ok {
		s.start(t, background)
		return ""
	}
	if !repeatable.MatchString(command + " ") {
		return normal(s.run(t, command))
	}
	var got string
	same := 0
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll(ctx, func() bool {
		before := got
		got = normal(s.run(t, command))
		if got == before {
			same++
		} else {
			same = 0
		}
		return got == wanted || *update && same >= settledPolls
	})
	return got
}
