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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// A descriptor names a blob of a layout.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// index is an index of images or of indexes.
type index struct {
	Manifests []descriptor `json:"manifests"`
}

// manifest is an image for one platform.
type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

// Config is what an image says of how it is run.
type Config struct {
	User       string            `json:"User"`
	Entrypoint []string          `json:"Entrypoint"`
	Env        []string          `json:"Env"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels"`
}

// A layout is a folder with images.
type layout string

// blob returns a blob. Its digest is checked by the test of what builds images (hack/release/image).
func (l layout) blob(d descriptor) ([]byte, error) {
	algorithm, sum, _ := strings.Cut(d.Digest, ":")
	data, err := os.ReadFile(filepath.Join(string(l), "blobs", filepath.Clean(algorithm), filepath.Clean(sum)))
	if err != nil {
		return nil, fmt.Errorf("reading a blob: %w", err)
	}
	return data, nil
}

// read decodes a blob.
func (l layout) read(d descriptor, into any) error {
	data, err := l.blob(d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decoding the blob %s: %w", d.Digest, err)
	}
	return nil
}

// image returns the image for this machine: its configuration and its layers, the lowest first.
func (l layout) image() (*Config, [][]byte, error) {
	var top, platforms index
	data, err := os.ReadFile(filepath.Join(string(l), "index.json"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading an image layout: %w", err)
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, nil, fmt.Errorf("decoding the index of a layout: %w", err)
	}
	if len(top.Manifests) != 1 {
		return nil, nil, fmt.Errorf("the layout has %d entries, where tools that push it expect one", len(top.Manifests))
	}
	if err := l.read(top.Manifests[0], &platforms); err != nil {
		return nil, nil, err
	}
	for _, d := range platforms.Manifests {
		if d.Platform.OS == runtime.GOOS && d.Platform.Architecture == runtime.GOARCH {
			return l.ofPlatform(d)
		}
	}
	return nil, nil, fmt.Errorf("the layout has no image for %s/%s", runtime.GOOS, runtime.GOARCH)
}

func (l layout) ofPlatform(d descriptor) (*Config, [][]byte, error) {
	var m manifest
	if err := l.read(d, &m); err != nil {
		return nil, nil, err
	}
	var file struct {
		Config Config `json:"config"`
	}
	if err := l.read(m.Config, &file); err != nil {
		return nil, nil, err
	}
	if len(file.Config.Entrypoint) == 0 {
		return nil, nil, errors.New("the image has no entrypoint")
	}
	var layers [][]byte
	for _, of := range m.Layers {
		compressed, err := l.blob(of)
		if err != nil {
			return nil, nil, err
		}
		layer, err := uncompressed(compressed)
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, layer)
	}
	return &file.Config, layers, nil
}

func uncompressed(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("uncompressing a layer: %w", err)
	}
	layer, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading a layer: %w", err)
	}
	return layer, nil
}

// unpack writes layers into a folder, with their modes, and with their owners where this process may.
func unpack(layers [][]byte, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("opening the folder of an image: %w", err)
	}
	for _, layer := range layers {
		if err := unpackLayer(root, tar.NewReader(bytes.NewReader(layer))); err != nil {
			return errors.Join(err, root.Close())
		}
	}
	return root.Close()
}

func unpackLayer(root *os.Root, r *tar.Reader) error {
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a layer: %w", err)
		}
		if err := unpackEntry(root, header, r); err != nil {
			return fmt.Errorf("unpacking %s: %w", header.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, header *tar.Header, data io.Reader) error {
	name := filepath.FromSlash(path.Clean(header.Name))
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, data); err != nil {
			return errors.Join(err, file.Close())
		}
		if err := file.Close(); err != nil {
			return err
		}
	case tar.TypeSymlink: // Its mode and owner mean nothing.
		return root.Symlink(header.Linkname, name)
	default:
		return fmt.Errorf("images of ours have no entries of type %q", header.Typeflag)
	}
	if os.Geteuid() == 0 {
		if err := root.Lchown(name, header.Uid, header.Gid); err != nil {
			return err
		}
	}
	// After the owner, whose change takes bits away.
	return root.Chmod(name, header.FileInfo().Mode())
}
