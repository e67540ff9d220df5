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
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/hack/demo/manifests"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

// folderWith returns a new folder with files.
func folderWith(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
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
		for _, path := range append([]string{p.parts[0].hook, p.readme}, p.parts[0].manifests...) {
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
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const controller = "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: DecoratorController, metadata: {name: c}, spec: {hooks: {sync: {%s}}}}"
	hook, text := file("hook.py", ""), file("text", "")
	hooks := []string{hook}
	webhook, inline := file("webhook", fmt.Sprintf(controller, "webhook: {url: 'http://a/b'}")), file("inline", fmt.Sprintf(controller, "inline: {}"))
	for name, test := range map[string]struct {
		options options
		want    string
	}{
		"Nothing":               {options{}, ""},
		"AnExample":             {options{example: "pod-set"}, ""},
		"NoSuchExample":         {options{example: "podset"}, "EXAMPLE is one of config-monitor, copy-to-namespaces"},
		"OwnHook":               {options{hooks: hooks, controller: []string{hook}}, ""},
		"OwnHookAndAnExample":   {options{hooks: hooks, controller: []string{hook}, example: "pod-set"}, "leave one of them out"},
		"HookWithoutController": {options{hooks: hooks}, "with CONTROLLER="},
		"ControllerWithoutHook": {options{controller: []string{inline, webhook}}, "DecoratorController c has a webhook, and HOOK is not there: name the program that serves it with HOOK="},
		"InlineController":      {options{controller: []string{inline}}, ""},
		"NoSuchHook":            {options{hooks: []string{hook + "x"}, controller: []string{hook}}, "HOOK=" + hook + "x: looking for the hook: stat"},
		"NoRelativeHook":        {options{hooks: []string{"nothing.py"}, controller: []string{hook}}, "relative paths count from the repository: use $PWD/nothing.py"},
		"NoRelativeController":  {options{hooks: hooks, controller: []string{"nothing"}}, "relative paths count from the repository: use $PWD/nothing"},
		"AFolderForAHook":       {options{hooks: []string{folder}, controller: []string{hook}}, "is a folder: name the file in it that serves the hook"},
		"NoSuchController":      {options{hooks: hooks, controller: []string{folder + "x"}}, "CONTROLLER=" + folder + "x: looking for manifests: stat"},
		"AFolderOfNoManifests":  {options{hooks: hooks, controller: []string{folder}}, "has neither a kustomization nor files that end with .yaml"},
		"TwoHooks":              {options{hooks: []string{hook, hook}, controller: []string{hook, text}}, ""},
		"TwoHooksOfOne":         {options{hooks: []string{hook, hook}, controller: []string{hook}}, "name for each program the folder of its controllers, in the same order"},
	} {
		p, err := test.options.project()
		if test.want == "" && (err != nil || (p.hooks() == "") != (name == "InlineController") || len(p.parts[0].manifests) == 0 || len(p.parts) != max(1, len(test.options.hooks))) {
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
		filepath.Join(folder, "hook.py"): 0o600, filepath.Join(folder, "main.js"): 0o600, filepath.Join(folder, "hook.go"): 0o600,
		filepath.Join(module, "main.go"): 0o600, filepath.Join(module, "cmd", "hook", "main.go"): 0o600,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, mode)); err != nil {
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
		{folder, "nothing.py", "", nil},
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

// own is the project of an author with his manifests in a folder.
func own(folder string) *project {
	return &project{title: folder, parts: []part{{manifests: []string{folder}}}}
}

// The folder of a hook in JavaScript has files of its package manager beside the manifests.
func TestAFolderMayHaveFilesOfOthers(t *testing.T) {
	folder := folderWith(t, map[string]string{
		"package.json":    `{"name": "website", "type": "module"}`,
		"controller.yaml": "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}",
	})
	var printed bytes.Buffer
	s := &stage{out: &printed, project: own(folder), hooks: []*hookRunner{{}}}
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
func TestAnAuthorWhoStaysCorrectsHisManifests(t *testing.T) {
	const manifest = "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}"
	folder, dir := folderWith(t, map[string]string{"controller.yaml": manifest}), t.TempDir()
	refused, kubectl := filepath.Join(dir, "refused"), filepath.Join(dir, "kubectl")
	script := "#!/bin/sh\ncase \"$*\" in *--raw*) echo '{}';; esac\nif [ -e '" + refused + "' ]; then echo 'unknown field' >&2; exit 1; fi\n"
	if err := errors.Join(os.WriteFile(refused, nil, 0o600), os.WriteFile(kubectl, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	s := &stage{
		out: &printed, project: own(folder), hooks: []*hookRunner{{}}, dir: dir, cluster: cluster{Kubectl: kubectl},
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
	for _, want := range []string{"    Not applied: unknown field\n", "    When you save the corrected files, they are applied.\n"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("got %q, want %q in it", printed.String(), want)
		}
	}
	s.options.once = true
	if err := s.apply(t.Context()); err == nil {
		t.Error("got no error for a visitor who does not stay")
	}
	// One who edits the hook meanwhile reads that his manifest is still refused.
	printed.Reset()
	s.save(t.Context(), []string{"hook.py", "controller.yaml"})
	if want := "==> hook.py, controller.yaml: not applied: unknown field\n    With what was applied before: there are no parents\n"; !strings.HasPrefix(printed.String(), want) {
		t.Errorf("got %q, want %q", printed.String(), want)
	}
	if err := os.Remove(refused); err != nil {
		t.Fatal(err)
	}
	if err := s.reapply(t.Context()); err != nil || len(s.appliedControllers()) != 1 {
		t.Errorf("got %d controllers after the correction, want 1; the error is %v", len(s.appliedControllers()), err)
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

// A visitor who pastes the commands in their order sees something with each.
func TestSuggestedCommandsWorkInTheirOrder(t *testing.T) {
	t.Chdir("../..")
	for name := range examples {
		p, err := exampleProject(name)
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{project: p, out: io.Discard, hooks: []*hookRunner{{}}}
		if err := s.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		commands, err := s.suggestions()
		if err != nil {
			t.Fatal(err)
		}
		deleted := false
		for _, command := range commands {
			if strings.HasPrefix(command, "kubectl metacontroller syncs ") && deleted {
				t.Errorf("%s: %q comes after what is deleted", name, command)
			}
			if !deleted && deletes(command) && !strings.Contains(command, "up to a minute") {
				t.Errorf("%s: %q does not say how long it takes", name, command)
			}
			deleted = deleted || deletes(command)
		}
	}
}

// An author looks at what his hook has made of his sample.
func TestTheTreeOfAnAuthorsSampleIsSuggested(t *testing.T) {
	const (
		definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: sites.example.com}\nspec: {group: example.com, names: {kind: Site}}\n---\n"
		controller = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: site}\n---\n"
		settings   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n---\n"
		syncs      = "kubectl metacontroller syncs cc/site --all"
	)
	for text, want := range map[string][]string{
		controller + settings: {syncs},
		definition + controller + settings + "{apiVersion: example.com/v1, kind: Site, metadata: {name: example}}":       {"kubectl metacontroller tree Site.example.com/example", syncs},
		definition + controller + "{apiVersion: example.com/v1, kind: Site, metadata: {name: example, namespace: shop}}": {"kubectl metacontroller tree Site.example.com/example -n shop", syncs},
	} {
		s := &stage{project: own(folderWith(t, map[string]string{"all.yaml": text})), out: io.Discard, hooks: []*hookRunner{{}}}
		if err := s.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := s.suggestions(); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, error %v, want %q", got, err, want)
		}
	}
}

// A file that a hook reads is none that is applied, though it is YAML beside the manifests.
func TestWhatIsAppliedIsNotTheHooks(t *testing.T) {
	folder := folderWith(t, map[string]string{
		"controller.yaml": "{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: website}}",
		"settings.yaml":   "{colour: blue}", "hook.py": "", "manifests/base/kustomization.yaml": "resources: [crd.yaml]",
		"manifests/base/crd.yaml": "", "manifests/local/kustomization.yaml": "",
	})
	s := &stage{project: own(folder)}
	for name, want := range map[string]bool{
		"controller.yaml": true, "settings.yaml": false, "hook.py": false, "manifests/base/crd.yaml": true, "manifests/local/kustomization.yaml": true,
		"new.yaml": false, "metacontroller_hook/types.json": false,
	} {
		if got := s.isManifest(filepath.Join(folder, name)); got != want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestOutcomesAreOneLine(t *testing.T) {
	for want, o := range map[string]outcome{
		"there are no parents":              {},
		"2 parents synced, 1 child updated": {synced: 2, done: map[v1alpha1.ChildAction]int{v1alpha1.ChildUpdate: 1, v1alpha1.ChildLeave: 3}},
		"1 parent synced, 2 children created, 1 child deleted, 1 failing: shop/a: status 500": {
			synced: 1, done: map[v1alpha1.ChildAction]int{v1alpha1.ChildCreate: 2, v1alpha1.ChildDelete: 1}, failing: []string{"shop/a: status 500"},
		},
		"0 parents synced, 1 waiting: a: the controller is paused": {waiting: []string{"a: the controller is paused"}},
	} {
		if got := o.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
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
