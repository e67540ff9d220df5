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

package embeddedetcd

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	mustStart(t, Options{Dir: dir})
	for _, path := range []string{dir, filepath.Join(dir, "run"), filepath.Join(dir, "member")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", path, info.Mode().Perm())
		}
	}
	info, err := os.Stat(filepath.Join(dir, "run", socketName))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		t.Errorf("%s is %v, want a socket", info.Name(), info.Mode())
	}
	lock, err := os.Stat(filepath.Join(dir, lockFileName))
	if err != nil {
		t.Fatal(err)
	}
	if lock.Mode().Perm() != 0o600 {
		t.Errorf("lock file has mode %v, want 0600", lock.Mode().Perm())
	}
}

func TestRunDirectoryOfOthersIsRestricted(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(run, 0o777); err != nil {
		t.Fatal(err)
	}
	mustStart(t, Options{Dir: dir})
	info, err := os.Stat(run)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("%s has mode %v, want 0700", run, info.Mode().Perm())
	}
}

func TestUnusablePathsGetAShortSocket(t *testing.T) {
	for name, test := range map[string]struct{ reason, dir string }{
		"TooLong": {
			reason: "The kernel refuses socket paths of more than 107 bytes.",
			dir:    strings.Repeat("long/", 25),
		},
		"Escaped": {
			reason: "Clients take the path from a URL.",
			dir:    "with space and %",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), test.dir)
			server := mustStart(t, Options{Dir: dir})
			mustPut(t, mustConnect(t, server), "/key", "value")
			run := filepath.Dir(strings.TrimPrefix(server.Endpoint(), "unix://"))
			if strings.HasPrefix(run, dir) {
				t.Fatalf("%s\nsocket is in %s", test.reason, run)
			}
			info, err := os.Stat(run)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %v, want 0700", run, info.Mode().Perm())
			}
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(run); !os.IsNotExist(err) {
				t.Errorf("%s is still there after Close: %v", run, err)
			}
		})
	}
}

func TestNoPlaceForASocket(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("long/", 25)))
	if err := os.MkdirAll(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), "data")
	_, err := Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "choose a shorter data directory or set TMPDIR") {
		t.Errorf("got %v, want advice", err)
	}
}

// TestNothingListensOnTheNetwork compares the listening sockets of the machine with the sockets of this process.
func TestNothingListensOnTheNetwork(t *testing.T) {
	mustStart(t, Options{Dir: t.TempDir()})
	const descriptors = "/proc/self/fd"
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for _, entry := range entries {
		// A descriptor may be gone by now; then it is no listener.
		target, _ := os.Readlink(filepath.Join(descriptors, entry.Name()))
		if inode, found := strings.CutPrefix(target, "socket:["); found {
			ours[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(ours) == 0 {
		t.Fatal("this process has no sockets at all, not even the one of etcd")
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) {
			continue // No such protocol on this machine.
		}
		if err != nil {
			t.Fatal(err)
		}
		const stateColumn, inodeColumn, listening = 3, 9, "0A"
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > inodeColumn && fields[stateColumn] == listening && ours[fields[inodeColumn]] {
				t.Errorf("listening on the network: %s", lines.Text())
			}
		}
		_ = f.Close()
	}
}
