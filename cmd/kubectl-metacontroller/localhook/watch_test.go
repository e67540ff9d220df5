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

package localhook

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
)

// An author edits a file when all is quiet, and ends the command when all is quiet again.
type author struct {
	bytes.Buffer

	folder string
	end    context.CancelFunc
	quiet  int
}

func (a *author) Write(text []byte) (int, error) {
	if strings.HasPrefix(string(text), "Waiting for changes") {
		if a.quiet++; a.quiet > 1 {
			a.end()
		} else if err := os.WriteFile(filepath.Join(a.folder, "edited.py"), []byte("1"), 0o600); err != nil {
			return 0, err
		}
	}
	return a.Buffer.Write(text)
}

// A hook that writes files when it is started or called is not started again for ever: each row has the changes that are told.
func TestWhatAHookWritesIsNoEdit(t *testing.T) {
	const run = "exec python3 hook.py"
	for what, tc := range map[string]struct {
		exec string
		// called is a file to which each call appends.
		called string
		want   []string
	}{
		"a program": {exec: "printf '\\000' > program; " + run, want: []string{"edited.py"}},
		// As far as is known, its author has written it.
		"a text":                 {exec: "cp hook.py built.py; " + run, want: []string{"built.py", "edited.py"}},
		"another text each time": {exec: "date +%s%N > stamp; " + run, want: []string{"stamp", "stamp", "stamp", "edited.py"}},
		"and then it ends":       {exec: "printf '\\000' > program; exit 3", want: []string{"edited.py"}},
		"a text with each call":  {exec: run, called: "calls", want: []string{"calls", "calls", "calls", "edited.py"}},
		"a log":                  {exec: run, called: "hook.log", want: []string{"edited.py"}},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := &author{folder: hookFolder(t), end: cancel}
			err := flagsOf(t, "--hook", freeAddress(t), "--exec", tc.exec, "--directory", a.folder, "--watch").Run(ctx, a,
				func(context.Context, *Hook) error { return appendTo(a.folder, tc.called) })
			if err != nil {
				t.Fatal(err)
			}
			var told []string
			for line := range strings.Lines(a.String()) {
				if names, ok := strings.CutPrefix(line, "Changed: "); ok {
					told = append(told, strings.TrimSpace(names))
				}
			}
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// appendTo appends to a file in a folder, if it has a name.
func appendTo(folder, name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("called\n")
	return errors.Join(err, f.Close())
}

// What an author saves while the hook is used is not lost, however often he does.
func TestEditsDuringUses(t *testing.T) {
	folder := t.TempDir()
	e := NewEdits()
	start := func(what, name, text string, want bool) {
		t.Helper()
		write(t, folder, name, text)
		if got := slices.Contains(e.DuringUse(folder, []string{name}), name); got != want {
			t.Errorf("%s: it is an edit: %t, want %t", what, got, want)
		}
	}
	write(t, folder, "hook.py", "0")
	e.ByAuthor(folder, []string{"hook.py"})
	for range maxRepeats {
		start("a text that every use changes", "stamp", strings.Repeat("x", e.repeats), true)
	}
	start("a text that every use changes, still", "stamp", "y", false)
	for _, text := range []string{"1", "2", "3", "4", "5"} {
		start("what is saved often", "hook.py", text, true)
	}
	start("what is saved as it is", "hook.py", "5", false)
	start("what is saved then", "hook.py", "6", true)
	write(t, folder, "hook.py", "7")
	e.ByAuthor(folder, []string{"hook.py"})
	start("what is taken back", "hook.py", "6", true)
	write(t, folder, "stamp", "z")
	e.ByAuthor(folder, []string{"stamp"})
	start("what the author edits after all", "stamp", "a", true)
}

func TestMoreChangesThanCanBeToldAreAChange(t *testing.T) {
	folder := t.TempDir()
	for what, tc := range map[string]struct {
		of   error
		want []string
	}{
		"an overflow":   {fsnotify.ErrEventOverflow, []string{many}},
		"another error": {errors.New("no luck"), nil},
	} {
		t.Run(what, func(t *testing.T) {
			w, err := NewWatch(folder)
			if err != nil {
				t.Fatal(err)
			}
			go func() { w.watcher.Errors <- tc.of }()
			names, err := w.Wait(t.Context())
			if diff := cmp.Diff(tc.want, names); diff != "" || (err != nil) != (tc.want == nil) {
				t.Errorf("error %v, -want +got:\n%s", err, diff)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatIsIgnored(t *testing.T) {
	for path, want := range map[string]bool{
		".": false, "manifests": false, "a/../manifests": false, "dist/manifests": false,
		".k8s": true, ".k8s/base": true, "base/.k8s": true, "vendor": true, "a/vendor/b": true, "target/debug": true, "a.tmp": true, "hook.log": true,
	} {
		if got := Ignores(path); got != want {
			t.Errorf("%s: it is ignored: %t, want %t", path, got, want)
		}
	}
}
