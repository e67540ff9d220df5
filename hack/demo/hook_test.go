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
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// Metacontroller's hooks listen at a port of their own.
func TestAHookWithAPortOfItsOwnIsFound(t *testing.T) {
	port, err := choosePort(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := choosePort(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := folderWith(t, map[string]string{"hook.py": strings.ReplaceAll(listener, `int(os.environ["PORT"])`, strconv.Itoa(other))})
	var printed bytes.Buffer
	h, err := newHookRunner(filepath.Join(folder, "hook.py"), port, filepath.Join(t.TempDir(), "hook.log"), &lines{out: &printed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	if err := <-h.first; err != nil || h.address() != other {
		t.Errorf("got port %d, error %v, want %d", h.address(), err, other)
	}
	cancel()
	running.Wait()
	// On a busy machine it is told of before as one that does not listen yet.
	if want := fmt.Sprintf("==> The hook listens at a port of its own, %d\n", other); !strings.HasSuffix(printed.String(), want) {
		t.Errorf("printed is %q, want %q at its end", printed.String(), want)
	}
}

// One that does not listen at all is told of before its author gives up, and with the cure.
func TestAHookThatDoesNotListenIsToldOf(t *testing.T) {
	hook := filepath.Join(folderWith(t, map[string]string{"hook.py": "import time\ntime.sleep(600)\n"}), "hook.py")
	told := make(chan string, 1)
	port, err := choosePort(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHookRunner(hook, port, filepath.Join(t.TempDir(), "hook.log"), writer(func(text string) { told <- text }), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	if text := <-told; !strings.Contains(text, "hook.py does not listen yet. It finds its port, "+strconv.Itoa(port)+", in the environment variable PORT") {
		t.Errorf("told is %q", text)
	}
	cancel()
	running.Wait()
}

type writer func(string)

func (w writer) Write(text []byte) (int, error) {
	w(string(text))
	return len(text), nil
}

// A folder in that of the hook needs no watch of its own, unless changes there are not told.
func TestEveryFolderOfManifestsIsWatched(t *testing.T) {
	for folder, want := range map[string]int{"manifests": 1, "config/base": 1, ".k8s": 2, ".k8s/base": 2, "config/vendor": 2} {
		root := folderWith(t, map[string]string{"hook.py": "", folder + "/controller.yaml": ""})
		h, err := newHookRunner(filepath.Join(root, "hook.py"), 1, "", nil, []string{filepath.Join(root, folder)})
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

// An inline hook has no program: a saved manifest is applied at once.
func TestManifestsOfInlineHooksAreWatchedWithoutAProgram(t *testing.T) {
	folder := t.TempDir()
	h, err := newHookRunner("", 1, "", nil, []string{folder})
	if err != nil {
		t.Fatal(err)
	}
	saved := make(chan []string, 1)
	h.manifest, h.saved = func(string) bool { return true }, func(_ context.Context, names []string) { saved <- names }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	if err := <-h.first; err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "controller.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if names := <-saved; !slices.Equal(names, []string{"controller.yaml"}) {
		t.Errorf("saved are %q, want the manifest", names)
	}
	cancel()
	running.Wait()
}

// A hook that builds its program beside it when it starts is not started again for ever.
func TestWhatTheStartOfAHookBuildsIsNoEdit(t *testing.T) {
	folder := folderWith(t, map[string]string{"program": "\x7fELF\x00", "hook.go": "package main"})
	both, now := []string{"program", "hook.go"}, time.Now()
	for what, tc := range map[string]struct {
		runner *hookRunner
		told   time.Time
		want   []string
	}{
		"while it starts":        {&hookRunner{running: &process.Process{}}, now, both[1:]},
		"just after it listened": {&hookRunner{running: &process.Process{}, listening: true, started: now}, now.Add(lateness / 2), both[1:]},
		"just after it ended":    {&hookRunner{started: now}, now.Add(lateness / 2), both[1:]},
		"later":                  {&hookRunner{running: &process.Process{}, listening: true, started: now}, now.Add(time.Minute), both},
		"long after it ended":    {&hookRunner{started: now}, now.Add(time.Minute), both},
	} {
		tc.runner.edits = localhook.NewEdits()
		if got := tc.runner.edited(change{told: tc.told, folder: folder, names: both}); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", what, got, tc.want)
		}
	}
}

// An editor, or sed, writes a file beside the old one and renames it: the hook goes on if that is a manifest.
func TestTheTemporaryFileOfAnEditorIsNoEdit(t *testing.T) {
	folder := folderWith(t, map[string]string{"hook.py": "", "controller.yaml": ""})
	for _, tc := range []struct{ names, want []string }{
		{[]string{"controller.yaml", "sedK2x9aQ"}, []string{"controller.yaml"}},
		{[]string{"4913", "hook.py", "hook.py~"}, []string{"hook.py"}},
		{[]string{"module.py", "controller.yaml"}, []string{"module.py", "controller.yaml"}},
		{[]string{"crd.yaml", "sample.yaml"}, []string{"crd.yaml", "sample.yaml"}},
	} {
		if got := withoutTemporary(folder, tc.names, ".py"); !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.names, got, tc.want)
		}
	}
}
