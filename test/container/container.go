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

package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// probeLimit is how long the image's program may take to print its version.
const probeLimit = 5 * time.Minute

// An isolation is what the kernel gives to containers.
type isolation struct {
	name         string
	users, mount bool
}

// isolations are what is tried, the best first.
func isolations() []isolation {
	all := []isolation{{name: "a user namespace and a mount namespace", users: true, mount: true}}
	if os.Geteuid() == 0 {
		all = append(all, isolation{name: "a mount namespace", mount: true}, isolation{name: "chroot alone"})
	}
	return all
}

// A Container is an image with volumes, whose program is run by commands. It is for one test goroutine.
type Container struct {
	t         testing.TB
	root      string
	config    *Config
	uid, gid  int
	isolation isolation
	mounts    []mount
}

// New unpacks the image of a layout for this machine. The test is skipped when the kernel isolates nothing, with what it said.
func New(t testing.TB, folder string) *Container {
	t.Helper()
	c := newContainer(t, folder)
	var refused []string
	for _, c.isolation = range isolations() {
		output, err := c.version()
		if err == nil {
			t.Logf("the container has %s: %s", c.isolation.name, output)
			c.system()
			return c
		}
		refused = append(refused, fmt.Sprintf("%s: %v: %s", c.isolation.name, err, output))
	}
	t.Skipf("this kernel isolates nothing for this user:\n%s", strings.Join(refused, "\n"))
	return nil
}

// newContainer unpacks the image of a layout.
func newContainer(t testing.TB, folder string) *Container {
	t.Helper()
	config, layers, err := layout(folder).image()
	if err != nil {
		t.Fatalf("there is no image to test, run 'make image-local' first: %v", err)
	}
	c := &Container{t: t, root: t.TempDir(), config: config}
	if c.uid, c.gid, err = numbers(config.User); err != nil {
		t.Fatal(err)
	}
	if err := unpack(layers, c.root); err != nil {
		t.Fatal(err)
	}
	// t.TempDir has its modes from the umask.
	if err := os.Chmod(c.root, 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// version has the program print its version.
func (c *Container) version() (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), probeLimit)
	defer cancel()
	output, err := c.Command(ctx, "--version").CombinedOutput()
	return string(output), err
}

// numbers reads the user of an image, which is given by numbers.
func numbers(user string) (uid, gid int, err error) {
	first, second, _ := strings.Cut(user, ":")
	if uid, err = strconv.Atoi(first); err != nil {
		return 0, 0, fmt.Errorf("the image's user %q has no number, so that no cluster can know that it is not root: %w", user, err)
	}
	if gid, err = strconv.Atoi(second); err != nil {
		return 0, 0, fmt.Errorf("the image's group in %q has no number: %w", user, err)
	}
	return uid, gid, nil
}

// Config is what the image says of how it is run.
func (c *Container) Config() *Config { return c.config }

// ReadOnly reports whether the root file system cannot be written.
func (c *Container) ReadOnly() bool { return c.isolation.mount }

// Volume makes an empty folder that the program finds at a path, and that it alone may use besides root. It returns where the folder is on
// this machine.
func (c *Container) Volume(target string) string {
	c.t.Helper()
	folder := filepath.Join(c.root, target)
	if c.isolation.mount {
		c.mountPoint(target)
		folder = c.t.TempDir()
		c.mounts = append(c.mounts, mount{Source: folder, Target: target})
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		c.t.Fatal(err)
	}
	c.own(folder, 0o700)
	return folder
}

// Write writes a file for the program into a volume's folder on this machine.
func (c *Container) Write(path string, data []byte) {
	c.t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.own(path, 0o600)
}

// own gives a file to the image's user, as far as this process may.
func (c *Container) own(path string, mode os.FileMode) {
	c.t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Chown(path, c.uid, c.gid); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		c.t.Fatal(err)
	}
}

// mountPoint makes an empty folder in the image's files.
func (c *Container) mountPoint(target string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Join(c.root, target), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// system gives the container what every runtime gives to it: processes, devices, and how names are resolved.
func (c *Container) system() {
	c.t.Helper()
	for _, file := range []string{"/etc/hosts", "/etc/resolv.conf"} {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.root, file), data, 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	if !c.isolation.mount {
		return
	}
	for _, folder := range []string{"/proc", "/dev"} {
		c.mountPoint(folder)
		c.mounts = append(c.mounts, mount{Source: folder, Target: folder})
	}
}

// Command makes a command that runs the image's program with arguments, for one start. Its environment is the image's, to which
// the caller may add. It is killed when ctx is done.
func (c *Container) Command(ctx context.Context, args ...string) *exec.Cmd {
	encoded, err := json.Marshal(start{
		Root: c.root, Folder: c.config.WorkingDir, Program: c.config.Entrypoint, UID: c.uid, GID: c.gid, Mount: c.isolation.mount, Mounts: c.mounts,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Env = append(append([]string{}, c.config.Env...), variable+"="+string(encoded))
	command.SysProcAttr = &syscall.SysProcAttr{}
	if c.isolation.mount {
		command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	if c.isolation.users {
		c.mapUsers(command.SysProcAttr)
	}
	return command
}

// mapUsers gives a command a user namespace. Root maps itself, which mounts, and the image's user, which the command becomes. Anybody else
// may map one user only: the image's user is then this one, and mounts with capabilities that it gives up.
func (c *Container) mapUsers(attributes *syscall.SysProcAttr) {
	attributes.Cloneflags |= syscall.CLONE_NEWUSER
	if os.Geteuid() == 0 {
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: c.uid, HostID: c.uid, Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: c.gid, HostID: c.gid, Size: 1}}
		attributes.GidMappingsEnableSetgroups = true
		return
	}
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.uid, HostID: os.Geteuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.gid, HostID: os.Getegid(), Size: 1}}
	attributes.AmbientCaps = []uintptr{capSysChroot, capSysAdmin}
}
