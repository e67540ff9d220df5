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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// variable is where a command has its start. The program does not see it.
	variable = "METACONTROLLER_TEST_CONTAINER"
	// failed is the status with which container engines say that they, not the program, failed.
	failed = 125

	capSysChroot, capSysAdmin = unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN
)

// A mount is a folder of this machine at a path of the container.
type mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// A start is what a command does before it becomes the image's program.
type start struct {
	Root    string   `json:"root"`
	Folder  string   `json:"folder"`
	Program []string `json:"program"`
	UID     int      `json:"uid"`
	GID     int      `json:"gid"`
	// Mount says that the process has a mount namespace.
	Mount  bool    `json:"mount"`
	Mounts []mount `json:"mounts"`
}

// Main must come first in the TestMain of packages whose tests use containers: in a process that a command has started it becomes the
// image's program, and returns only when it cannot, with the status to exit with. In every other process it reports false.
//
//	func TestMain(m *testing.M) {
//		if status, inside := container.Main(); inside {
//			os.Exit(status)
//		}
//		os.Exit(m.Run())
//	}
func Main() (status int, inside bool) {
	encoded, inside := os.LookupEnv(variable)
	if !inside {
		return 0, false
	}
	// Rights are a thread's own.
	runtime.LockOSThread()
	fmt.Fprintln(os.Stderr, "starting a container:", become(encoded))
	return failed, true
}

// become does not return but with an error.
func become(encoded string) error {
	var s start
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return fmt.Errorf("decoding what to start: %w", err)
	}
	if s.Mount {
		if err := s.mountAll(); err != nil {
			return err
		}
	}
	if err := unix.Chroot(s.Root); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Chdir("/" + s.Folder); err != nil {
		return fmt.Errorf("changing into the working directory: %w", err)
	}
	if err := s.giveUpRights(); err != nil {
		return err
	}
	environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variable+"=") })
	program, err := exec.LookPath(s.Program[0])
	if err != nil {
		return fmt.Errorf("looking for the image's program: %w", err)
	}
	if err := syscall.Exec(program, slices.Concat(s.Program, os.Args[1:]), environment); err != nil {
		return fmt.Errorf("becoming %s: %w", program, err)
	}
	return nil
}

// mountAll mounts what the container has, and makes its root read-only.
func (s *start) mountAll() error {
	// Nothing of this reaches the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, m := range append([]mount{{Source: s.Root, Target: "/"}}, s.Mounts...) {
		if err := unix.Mount(m.Source, filepath.Join(s.Root, m.Target), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.Source, m.Target, err)
		}
	}
	kept, err := flags(s.Root)
	if err != nil {
		return err
	}
	if err := unix.Mount("", s.Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, ""); err != nil {
		return fmt.Errorf("making the root file system read-only: %w", err)
	}
	return nil
}

// flags returns with which flags a folder is mounted. A user namespace may add to them, and take none away.
func flags(folder string) (uintptr, error) {
	var status unix.Statfs_t
	if err := unix.Statfs(folder, &status); err != nil {
		return 0, fmt.Errorf("reading how %s is mounted: %w", folder, err)
	}
	var set uintptr
	for _, flag := range []struct{ status, mount uintptr }{
		{unix.ST_NOSUID, unix.MS_NOSUID},
		{unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME},
		{unix.ST_NODIRATIME, unix.MS_NODIRATIME},
		{unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if uintptr(status.Flags)&flag.status != 0 {
			set |= flag.mount
		}
	}
	return set, nil
}

// giveUpRights makes the process the image's user, without capabilities and without a way to more.
func (s *start) giveUpRights() error {
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(s.GID), syscall.Setuid(s.UID)); err != nil {
			return fmt.Errorf("becoming the user %d: %w", s.UID, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	// A change of the user has ended this.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("ending with the test: %w", err)
	}
	return nil
}
