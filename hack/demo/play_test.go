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
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

func TestChoosePort(t *testing.T) {
	busy := freeport.Find(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", freeport.Address(busy))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := choosePort(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("got %v for a port in use, want a sentence that says so", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if port, err := choosePort(t.Context(), busy); err != nil || port != busy {
		t.Errorf("got %d and %v, want the free port asked for", port, err)
	}
	if port, err := choosePort(t.Context(), 0); err != nil || port == 0 {
		t.Errorf("got %d and %v, want a free port", port, err)
	}
	if _, err := choosePort(t.Context(), 70000); err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v for a port that does not exist, want an error", err)
	}
}

// The folder of a hook in JavaScript has files of its package manager beside the manifests.
func TestAFolderMayHaveFilesOfOthers(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"package.json":    `{"name": "website", "type": "module"}`,
		"controller.yaml": "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var printed bytes.Buffer
	s := &stage{out: &printed, project: &project{title: folder, manifests: []string{folder}}}
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if set := s.set.Load(); len(set.Controllers) != 1 || len(set.Samples) != 0 {
		t.Errorf("got %d controllers and %d samples, want the controller alone", len(set.Controllers), len(set.Samples))
	}
	if want := filepath.Join(folder, "package.json") + ": an object has neither apiVersion nor kind: it is left out\n"; !strings.Contains(printed.String(), want) {
		t.Errorf("got %q, want %q in it", printed.String(), want)
	}
}

// A first mistake costs no new control plane.
func TestAnAuthorWhoStaysMendsHisManifests(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	manifest := "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}"
	if err := os.WriteFile(filepath.Join(folder, "controller.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	refused, kubectl := filepath.Join(dir, "refused"), filepath.Join(dir, "kubectl")
	script := "#!/bin/sh\nif [ -e '" + refused + "' ]; then echo 'unknown field' >&2; exit 1; fi\n"
	if err := errors.Join(os.WriteFile(refused, nil, 0o600), os.WriteFile(kubectl, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	s := &stage{
		out: &printed, project: &project{title: folder, manifests: []string{folder}}, dir: dir, cluster: cluster{Kubectl: kubectl},
		applied: map[string]string{},
	}
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func(context.Context) error{s.apply, s.await, s.showResult} {
		if err := do(t.Context()); err != nil {
			t.Fatalf("got %v while the manifests are refused, want to go on", err)
		}
	}
	for _, want := range []string{"    The manifests are not applied: ", "unknown field", "    When you save the mended files, they are applied.\n"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("got %q, want %q in it", printed.String(), want)
		}
	}
	s.options.once = true
	if err := s.apply(t.Context()); err == nil {
		t.Error("got no error for a visitor who does not stay")
	}
	if err := os.Remove(refused); err != nil {
		t.Fatal(err)
	}
	printed.Reset()
	if s.reapply(t.Context()); len(s.appliedControllers()) != 1 {
		t.Errorf("got %d controllers after the mistake was mended, want 1; printed was %q", len(s.appliedControllers()), printed.String())
	}
}

// One controller that is refused does not keep the others from being awaited, and from being synced when the hook changes.
func TestWhatIsAcceptedIsAppliedThoughSomethingIsRefused(t *testing.T) {
	composite := "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: %s}\n---\n"
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\n---\n"
	for what, tc := range map[string]struct {
		manifests, printed string
		want               []string
	}{
		"one of two": {
			fmt.Sprintf(composite, "good") + fmt.Sprintf(composite, "bad"), "compositecontroller.metacontroller.k8s.io/good created\n",
			[]string{"metacontroller.k8s.io/v1alpha1, Kind=CompositeController//good"},
		},
		"a name that begins with the other one": {
			fmt.Sprintf(composite, "web") + fmt.Sprintf(composite, "web-2"), "compositecontroller.metacontroller.k8s.io/web-2 configured\n",
			[]string{"metacontroller.k8s.io/v1alpha1, Kind=CompositeController//web-2"},
		},
		"none": {fmt.Sprintf(composite, "bad"), "", nil},
		// kubectl prints no namespaces: which one is accepted is not known.
		"one of two namespaces": {fmt.Sprintf(config, "a", "b") + fmt.Sprintf(config, "a", "c"), "configmap/a created\n", nil},
		"of the core":           {fmt.Sprintf(config, "a", "b") + fmt.Sprintf(config, "b", "b"), "configmap/b unchanged\n", []string{"/v1, Kind=ConfigMap/b/b"}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			kubectl := filepath.Join(dir, "kubectl")
			if err := os.WriteFile(kubectl, []byte("#!/bin/sh\nprintf '"+tc.printed+"'\necho 'unknown field' >&2\nexit 1\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			objects, err := manifests.Decode([]byte(tc.manifests))
			if err != nil {
				t.Fatal(err)
			}
			s := &stage{out: io.Discard, dir: dir, cluster: cluster{Kubectl: kubectl}, applied: map[string]string{}}
			if err := s.applyAll(t.Context(), objects, ""); err == nil {
				t.Error("got no error of what is refused")
			}
			if got := slices.Sorted(maps.Keys(s.applied)); !slices.Equal(got, tc.want) {
				t.Errorf("applied are %q, want %q", got, tc.want)
			}
		})
	}
}

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

// `make run | tee log` and `make run | head`: the program after the pipe has ended, and what was begun must be put away all the same.
func TestItEndsInOrderWhenNobodyReads(t *testing.T) {
	ctx, stop := untilTold(t.Context())
	defer stop()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("==> Done\n"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v from writing to nobody", err)
	}
	<-ctx.Done()
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}

func TestArgumentsThatAreWrong(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"--port", "a"}, {"hook.py"}} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"--help"}); err != nil {
		t.Errorf("--help: got %v", err)
	}
}

// Every folder of examples can be run, and has what is run.
func TestEveryExampleIsThere(t *testing.T) {
	t.Chdir("../..")
	entries, err := os.ReadDir(examplesFolder)
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, entry := range entries {
		if entry.IsDir() {
			folders = append(folders, entry.Name())
		}
	}
	if known := slices.Sorted(maps.Keys(examples)); !slices.Equal(folders, known) {
		t.Errorf("there are the folders %v, and make run knows %v", folders, known)
	}
	for _, name := range folders {
		p, err := (&options{example: name}).project()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, path := range append([]string{p.hook, p.readme}, p.manifests...) {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		readme, err := os.ReadFile(p.readme)
		if err != nil || !strings.Contains(string(readme), "\nmake run EXAMPLE="+name+"\n") || len(consoleCommands(string(readme))) < 3 {
			t.Errorf("the README of %s does not say how to run it, or what to try: %v", name, err)
		}
	}
}

func TestWhatIsAskedFor(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "hook.py")
	if err := os.WriteFile(hook, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options options
		want    string
	}{
		"Nothing":               {options{}, ""},
		"AnExample":             {options{example: "pod-set"}, ""},
		"NoSuchExample":         {options{example: "podset"}, "EXAMPLE is one of config-monitor, copy-to-namespaces"},
		"OwnHook":               {options{hook: hook, controller: []string{"."}}, ""},
		"OwnHookAndAnExample":   {options{hook: hook, controller: []string{"."}, example: "pod-set"}, "leave one of them out"},
		"HookWithoutController": {options{hook: hook}, "with CONTROLLER="},
		"ControllerWithoutHook": {options{controller: []string{"."}}, "with HOOK="},
		"NoSuchHook":            {options{hook: hook + "x", controller: []string{"."}}, "no such file"},
	} {
		p, err := test.options.project()
		if test.want == "" && (err != nil || p.hook == "" || len(p.manifests) == 0) {
			t.Errorf("%s: got %v, %v", name, p, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestHowAHookIsRun(t *testing.T) {
	folder, module := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(folder, "program"): 0o700, filepath.Join(folder, "text"): 0o600, filepath.Join(module, "go.mod"): 0o600,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		folder, file, program string
		args                  []string
	}{
		{folder, "hook.py", "python3", []string{"hook.py"}},
		{folder, "main.js", "node", []string{"main.js"}},
		{folder, "hook.go", "go", []string{"run", "hook.go"}},
		{module, "main.go", "go", []string{"run", "."}},
		{filepath.Join(module, "cmd", "hook"), "main.go", "go", []string{"run", "."}},
		{folder, "program", filepath.Join(folder, "program"), nil},
		{folder, "text", "", nil},
		{folder, "nothing", "", nil},
	} {
		program, args, err := interpreter(test.folder, test.file)
		if program != test.program || !slices.Equal(args, test.args) || (err == nil) != (test.program != "") {
			t.Errorf("%s: got %s %v, %v, want %s %v", test.file, program, args, err, test.program, test.args)
		}
	}
}

func TestWhatAHookDoesNotRead(t *testing.T) {
	for path, want := range map[string]bool{"hook.py": false, "testdata": false, "testdata/sync.request.json": true, "manifests/testdata.yaml": false} {
		if got := recorded(filepath.FromSlash(path)); got != want {
			t.Errorf("%s: got %t", path, got)
		}
	}
}

func TestConsoleCommands(t *testing.T) {
	got := consoleCommands("```sh\n$ no\n```\n```console\n$ one\n$2\n```\n$ no\n```console\n$ two \\\n  more\nprinted\n```\n")
	if diff := cmp.Diff([]string{"one", "two \\\n      more"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOutputOfHooksIsPrefixed(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{prefix: "hook: ", out: &out}
	for _, text := range []string{"on", "e\ntwo\nth", "ree\nrest"} {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
	}
	if want := "hook: one\nhook: two\nhook: three\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A folder such as "My Projects" is one path, unless it is a list.
func TestPathsWithSpaces(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "my own controller")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{folder: {folder}, "a.yaml b": {"a.yaml", "b"}, "": {}} {
		if got := paths(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for path, want := range map[string]string{"/tmp/a-b_1.c": "/tmp/a-b_1.c", "/tmp/my own": "'/tmp/my own'", "/it's": `'/it'\''s'`} {
		if got := quoted(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}
