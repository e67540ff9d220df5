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

package storage

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// needRoot skips a test that mounts file systems where nobody may.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount file systems")
	}
}

// execute runs a program to its end.
func execute(t *testing.T, name string, args ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
}

// A disk is a file that holds a file system: what reaches the file is what a machine's disk has after a power cut.
type disk struct {
	t *testing.T
	// mounted is where the file system is.
	mounted     string
	image, copy string
}

// newDisk makes and mounts a file system that goes with the test.
func newDisk(t *testing.T, size string) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{t: t, mounted: filepath.Join(dir, "mounted"), image: filepath.Join(dir, "image"), copy: filepath.Join(dir, "copy")}
	execute(t, "truncate", "--size", size, d.image)
	execute(t, "mkfs.ext4", "-q", "-F", d.image)
	if err := os.Mkdir(d.mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	d.mount()
	// Before the folder is removed, and after the server has ended, which is started later.
	t.Cleanup(func() { _ = syscall.Unmount(d.mounted, syscall.MNT_DETACH) })
	return d
}

func (d *disk) mount() {
	d.t.Helper()
	execute(d.t, "mount", "-o", "loop", d.image, d.mounted)
}

// cutPower drops what the kernel holds and has not written to the disk. Nothing may be using the file system.
func (d *disk) cutPower() {
	d.t.Helper()
	// What is not in the file at this moment is lost: unmounting would write it.
	execute(d.t, "cp", "--sparse=always", d.image, d.copy)
	execute(d.t, "umount", d.mounted)
	if err := os.Rename(d.copy, d.image); err != nil {
		d.t.Fatal(err)
	}
	d.mount()
}

// newSmallDisk mounts a file system in memory, of a size in MiB, that goes with the test.
func newSmallDisk(t *testing.T, size string) string {
	t.Helper()
	mounted := t.TempDir()
	execute(t, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", mounted)
	t.Cleanup(func() { _ = syscall.Unmount(mounted, syscall.MNT_DETACH) })
	return mounted
}

// fill takes all space of a file system but some bytes, and returns what gives it back.
func fill(t *testing.T, mounted string, left int64) (free func()) {
	t.Helper()
	var is syscall.Statfs_t
	if err := syscall.Statfs(mounted, &is); err != nil {
		t.Fatalf("asking for the space of %s: %v", mounted, err)
	}
	path := filepath.Join(mounted, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, int64(is.Bavail)*is.Bsize-left); err != nil {
		t.Fatalf("filling %s: %v", mounted, err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
