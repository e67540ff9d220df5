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

package plane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/process"
)

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func temporaryFolder(t *testing.T, parent string) *Folder {
	t.Helper()
	folder, err := TemporaryFolder(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Remove() })
	return folder
}

func TestFoldersOfTheLivingAreLeftAlone(t *testing.T) {
	parent := t.TempDir()
	one, two := temporaryFolder(t, parent), temporaryFolder(t, parent)
	if !exists(t, one.Path) || !exists(t, two.Path) {
		t.Error("a control plane has removed the folder of another that is alive")
	}
}

func TestFoldersOfTheDeadAreRemoved(t *testing.T) {
	parent := t.TempDir()
	dead := temporaryFolder(t, parent)
	// The kernel does this when a process dies.
	if err := dead.lock.Close(); err != nil {
		t.Fatal(err)
	}
	unlocked := filepath.Join(parent, "control-plane-of-somebody")
	if err := os.Mkdir(unlocked, 0o700); err != nil {
		t.Fatal(err)
	}
	temporaryFolder(t, parent)
	if exists(t, dead.Path) {
		t.Error("the folder of a dead control plane is still there")
	}
	if !exists(t, unlocked) {
		t.Error("a folder without lock, which is of another kind, was removed")
	}
}

func TestPortTakenIsToldFromOtherErrors(t *testing.T) {
	taken := &process.EndedError{Name: "etcd", Tail: "listen tcp 127.0.0.1:20001: bind: address already in use"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a program that found its port taken":    {fmt.Errorf("waiting: %w", taken), true},
		"a program that ended for other reasons": {&process.EndedError{Name: "etcd", Tail: "no space left on device"}, false},
		"no program":                             {errors.New("address already in use"), false},
	} {
		if got := portTaken(test.err); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
