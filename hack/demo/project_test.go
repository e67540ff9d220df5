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
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	hook, hooks, text := filepath.Join(folder, "hook.py"), []string{filepath.Join(folder, "hook.py")}, filepath.Join(folder, "text")
	if err := errors.Join(os.WriteFile(hook, nil, 0o600), os.WriteFile(text, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
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
		"ControllerWithoutHook": {options{controller: []string{hook}}, "with HOOK="},
		"NoSuchHook":            {options{hooks: []string{hook + "x"}, controller: []string{hook}}, "HOOK=" + hook + "x: looking for the hook: stat"},
		"AFolderForAHook":       {options{hooks: []string{folder}, controller: []string{hook}}, "is no program: a hook is a .py, .js or .go file"},
		"NoSuchController":      {options{hooks: hooks, controller: []string{folder + "x"}}, "CONTROLLER=" + folder + "x: looking for manifests: stat"},
		"AFolderOfNoManifests":  {options{hooks: hooks, controller: []string{folder}}, "has neither a kustomization nor files that end with .yaml"},
		"TwoHooks":              {options{hooks: []string{hook, hook}, controller: []string{hook, text}}, ""},
		"TwoHooksOfOne":         {options{hooks: []string{hook, hook}, controller: []string{hook}}, "name for each program the folder of its controllers, in the same order"},
	} {
		p, err := test.options.project()
		if test.want == "" && (err != nil || p.hooks() == "" || len(p.parts[0].manifests) == 0 || len(p.parts) != max(1, len(test.options.hooks))) {
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
