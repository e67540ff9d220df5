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

package helloworld

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/container"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// imageLayout is what `make image-local` writes.
	imageLayout = "bin/image-local/oci"
	// dataFolder, accessFolder and temporaryFolder are volumes, as in the manifests; accessFolder is in the place of a service account.
	dataFolder, accessFolder, temporaryFolder = "/var/lib/metacontroller-apiserver", "/etc/metacontroller/access", "/tmp"
)

// TestHelloWorldFromTheImage is the tutorial with the image of `make image`: the server and its register command run in a container, as a
// user without rights, and write to volumes alone.
func TestHelloWorldFromTheImage(t *testing.T) {
	shared := cluster.Shared(t)
	c := container.New(t, filepath.Join(cluster.Root(), imageLayout))
	data, access := c.Volume(dataFolder), c.Volume(accessFolder)
	temporary := c.Volume(temporaryFolder)
	kubeconfig, err := os.ReadFile(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(filepath.Join(access, "kubeconfig"), kubeconfig)
	// The server has ended by then.
	t.Cleanup(func() {
		if found := files(t, temporary); len(found) > 0 {
			t.Errorf("the server left temporary files: %q", found)
		}
	})

	s := setUpWith(t, server.Options{DataDir: dataFolder, Command: func(ctx context.Context, args ...string) *exec.Cmd {
		args = slices.Clone(args)
		for i := range args {
			if args[i] == shared.Kubeconfig {
				args[i] = path.Join(accessFolder, "kubeconfig")
			}
		}
		return c.Command(ctx, args...)
	}})
	unprivileged(t, c, s.server.PID())
	follow(t, s)
	if found := files(t, data); len(found) == 0 {
		t.Error("the server wrote nothing to the volume of its data")
	}
}

// unprivileged checks what the kernel says of the server's process.
func unprivileged(t *testing.T, c *container.Container, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		has[name] = strings.Join(strings.Fields(value), " ")
	}
	// Whoever is not root has one number to give, his own.
	uid, gid := 65532, 65532
	if os.Geteuid() != 0 {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	for name, want := range map[string]string{
		"Name": "metacontroller-", "Uid": fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", uid), "Gid": fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", gid),
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1",
	} {
		if has[name] != want {
			t.Errorf("the server's process has %s %q, want %q", name, has[name], want)
		}
	}
	if os.Geteuid() == 0 && has["Groups"] != "" {
		t.Errorf("the server's process is in the groups %s", has["Groups"])
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	if c.ReadOnly() && !readOnlyRoot(string(mounts)) {
		t.Errorf("the root file system is not read-only:\n%s", mounts)
	}
}

// readOnlyRoot reports whether a process cannot write to its root, by the lines of its mountinfo.
func readOnlyRoot(mounts string) bool {
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[4] == "/" {
			return slices.Contains(strings.Split(fields[5], ","), "ro")
		}
	}
	return false
}

// files lists the files under a folder.
func files(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, folder))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
