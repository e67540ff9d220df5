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
	"flag"
	"os"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
	"github.com/metacontroller/metacontroller-apiserver/test/terminal"
)

var update = flag.Bool("update", false, "write what is printed to docs/kubectl-plugin.md")

func TestMain(m *testing.M) { os.Exit(terminal.Main(m)) }

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
	terminal.New(t, c).Play(t, "docs/kubectl-plugin.md", 20, *update)
}
