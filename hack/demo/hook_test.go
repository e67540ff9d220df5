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
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

// listener listens until it is ended.
const listener = `import os, socketserver
socketserver.TCPServer.allow_reuse_address = True
socketserver.TCPServer(("127.0.0.1", int(os.environ["PORT"])), socketserver.BaseRequestHandler).serve_forever()
`

// A change in any watched folder applies the manifests and starts the hook again, also one that has ended.
func TestAHookIsKeptRunning(t *testing.T) {
	folder, manifests := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hook := filepath.Join(folder, "hook.py")
	write(hook, "raise SystemExit(3)")
	port, err := choosePort(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	out := &lines{out: &printed}
	h, err := newHookRunner(hook, port, filepath.Join(t.TempDir(), "hook.log"), out, []string{folder, manifests})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.watches) != 2 {
		t.Errorf("%d folders are watched, want each once", len(h.watches))
	}
	changed, restarted := make(chan struct{}, 10), make(chan struct{}, 10)
	h.changed = func(context.Context) { changed <- struct{}{} }
	h.restarted = func(context.Context) { restarted <- struct{}{} }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	if err := <-h.first; err == nil {
		t.Error("the hook ended, and is said to listen")
	}
	write(hook, listener)
	<-changed
	<-restarted
	write(filepath.Join(manifests, "controller.yaml"), "{}")
	<-changed
	<-restarted
	cancel()
	running.Wait()
	if h.running != nil {
		t.Error("the hook goes on")
	}
	if again, err := choosePort(t.Context(), port); err != nil || again != port {
		t.Errorf("something listens at the port of the hook: %v", err)
	}
	for _, want := range []string{
		"==> the hook ended: exit status 3. It is started again when a file in " + folder + " changes; everything else goes on\n",
		"==> Changed: hook.py. The hook is started again\n", "==> Changed: controller.yaml. The hook is started again\n",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("no %q in\n%s", want, printed.String())
		}
	}
}

func TestWhatHasNoHook(t *testing.T) {
	folder := t.TempDir()
	if _, err := newHookRunner(filepath.Join(folder, "hook"), 1, "", nil, nil); err == nil {
		t.Error("a hook that does not exist is run")
	}
	script := filepath.Join(folder, "hook.py")
	if err := os.WriteFile(script, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newHookRunner(script, 1, "", nil, []string{filepath.Join(t.TempDir(), "nothing")}); err == nil {
		t.Error("a folder that does not exist is watched")
	}
}

// A folder in that of the hook needs no watch of its own, unless changes there are not told.
func TestEveryFolderOfManifestsIsWatched(t *testing.T) {
	for folder, want := range map[string]int{"manifests": 1, "config/base": 1, ".k8s": 2, ".k8s/base": 2, "config/vendor": 2} {
		root := t.TempDir()
		manifests, script := filepath.Join(root, folder), filepath.Join(root, "hook.py")
		if err := os.MkdirAll(manifests, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(script, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := newHookRunner(script, 1, "", nil, []string{manifests})
		if err != nil {
			t.Fatal(err)
		}
		if len(h.watches) != want {
			t.Errorf("%s: %d folders are watched, want %d", folder, len(h.watches), want)
		}
		if err := h.closeWatches(); err != nil {
			t.Error(err)
		}
	}
}

// A hook that builds its program beside it when it starts is not started again for ever.
func TestWhatTheStartOfAHookBuildsIsNoEdit(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"program": "\x7fELF\x00", "hook.go": "package main"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both, now := []string{"program", "hook.go"}, time.Now()
	for what, tc := range map[string]struct {
		runner hookRunner
		told   time.Time
		want   []string
	}{
		"while it starts":        {hookRunner{running: &process.Process{}}, now, both[1:]},
		"just after it listened": {hookRunner{running: &process.Process{}, listening: true, started: now}, now.Add(lateness / 2), both[1:]},
		"just after it ended":    {hookRunner{started: now}, now.Add(lateness / 2), both[1:]},
		"later":                  {hookRunner{running: &process.Process{}, listening: true, started: now}, now.Add(time.Minute), both},
		"long after it ended":    {hookRunner{started: now}, now.Add(time.Minute), both},
	} {
		tc.runner.edits = localhook.NewEdits()
		if got := tc.runner.edited(change{told: tc.told, folder: folder, names: both}); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", what, got, tc.want)
		}
	}
}
