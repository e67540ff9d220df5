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

package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// unfinished marks files that a build has not finished.
const unfinished = ".unfinished"

// Programs returns the folder that holds the programs, and builds those that are missing from the Go module in folder
// module. What is built is told to w, since it takes minutes the first time. Several processes may call it at once: one
// builds, the others wait.
func Programs(ctx context.Context, module string, w io.Writer) (string, error) {
	return ensureIn(ctx, module, programs(), w)
}

// Soon is Programs without those that a first Pod does not need. It reports whether these are missing.
func Soon(ctx context.Context, module string, w io.Writer) (folder string, incomplete bool, err error) {
	folder, err = ensureIn(ctx, module, slices.DeleteFunc(programs(), func(p program) bool { return p.late }), w)
	return folder, err == nil && len(missing(folder, programs())) > 0, err
}

func ensureIn(ctx context.Context, module string, all []program, w io.Writer) (string, error) {
	folder, err := Folder(module)
	if err != nil {
		return "", err
	}
	return folder, ensure(ctx, module, folder, all, w)
}

// ensure builds those of the programs that are not in folder.
func ensure(ctx context.Context, module, folder string, all []program, w io.Writer) error {
	if len(missing(folder, all)) == 0 {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("creating the folder for the control plane's programs: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(folder, "LOCK"), func() {
		fmt.Fprintln(w, "Another process is building the control plane; waiting for it.")
	})
	if err != nil {
		return err
	}
	defer unlock()

	wanted := missing(folder, all)
	if len(wanted) == 0 {
		return nil
	}
	names := make([]string, 0, len(wanted))
	for _, p := range wanted {
		names = append(names, p.name)
	}
	fmt.Fprintf(w, "Building %s (Kubernetes %s) into %s.\n"+
		"This is done once. On two cores it takes about three minutes, and less where Go has compiled parts of it before.\n",
		strings.Join(names, ", "), KubernetesVersion, folder)
	removeUnfinished(folder)
	started := time.Now()
	if err := build(ctx, module, folder, wanted, w); err != nil {
		return err
	}
	fmt.Fprintf(w, "    done in %s\n", time.Since(started).Round(time.Second))
	return nil
}

// missing returns those of the programs that the folder does not have.
func missing(folder string, all []program) []program {
	var found []program
	for _, p := range all {
		if _, err := os.Stat(filepath.Join(folder, p.name)); err != nil {
			found = append(found, p)
		}
	}
	return found
}

// removeUnfinished removes what builds left behind that were killed. The caller holds the lock.
func removeUnfinished(folder string) {
	// The pattern is well formed, and what cannot be removed is only in the way.
	names, _ := filepath.Glob(filepath.Join(folder, "*"+unfinished))
	for _, name := range names {
		_ = os.RemoveAll(name)
	}
}

// program is one program to build.
type program struct {
	// name is the file name of the result.
	name string
	// pkg is the Go package.
	pkg string
	// late says that a first Pod does not need it.
	late bool
}

// file is the name that go build gives the program, which is not that of a major version.
func (p program) file() string { return path.Base(majorVersion.ReplaceAllString(p.pkg, "")) }

var majorVersion = regexp.MustCompile(`/v\d+$`)

// build builds programs by one command, so that one is linked while another is compiled. Nobody sees one half written.
func build(ctx context.Context, module, folder string, all []program, w io.Writer) error {
	// A killed process may leave its compiler running, so the folder is not shared with the next one.
	results := filepath.Join(folder, fmt.Sprintf("%d%s", os.Getpid(), unfinished))
	if err := os.Mkdir(results, 0o755); err != nil {
		return fmt.Errorf("creating the folder of a build: %w", err)
	}
	defer func() { _ = os.RemoveAll(results) }()
	args := append(arguments(), "-v", "-o", results+string(filepath.Separator))
	for _, p := range all {
		args = append(args, p.pkg)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = module
	command.Env = append(os.Environ(), environment()...)
	said := &progress{w: w, next: time.Now().Add(period)}
	command.Stderr = said
	command.WaitDelay = time.Second // A compiler that goes on has what it says in the same pipe.
	if err := command.Run(); err != nil {
		return fmt.Errorf("building the control plane: %w\n%s", err, said.words.String())
	}
	for _, p := range all {
		if err := os.Rename(filepath.Join(results, p.file()), filepath.Join(folder, p.name)); err != nil {
			return fmt.Errorf("installing %s: %w", p.name, err)
		}
	}
	return nil
}

// period is after how long it is said again how many packages are compiled.
const period = 15 * time.Second

// progress reads what go build -v prints: the name of each package, and errors, which it keeps.
type progress struct {
	w     io.Writer
	next  time.Time
	built int
	words bytes.Buffer
}

func (p *progress) Write(data []byte) (int, error) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSuffix(line, "\n"); strings.ContainsAny(line, " :#") {
			p.words.WriteString(line + "\n")
			continue
		}
		p.built++
	}
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(period)
		fmt.Fprintf(p.w, "    %d packages are compiled\n", p.built)
	}
	return len(data), nil
}

// KubernetesVersion is the version of kube-apiserver, kube-controller-manager, kube-scheduler and kubectl. It is that of
// the module k8s.io/kubernetes in go.mod.
const KubernetesVersion = "v1.37.2"

// buildDate is stamped into the programs. It is a constant, so that the same versions give the same bytes.
const buildDate = "1970-01-01T00:00:00Z"

func programs() []program {
	return []program{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
		{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", late: true},
		{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
		{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
		{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
	}
}

// arguments are those of go build, without the output and the package.
func arguments() []string {
	return []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", stamp()}
}

// environment is what go build needs beside the user's own variables, of which some would change the results.
func environment() []string {
	return []string{"GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off"}
}

// stamp returns the linker flags that put the version into the Kubernetes programs, as their own build does.
func stamp() string {
	parts := strings.SplitN(strings.TrimPrefix(KubernetesVersion, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, variable := range []string{
			"gitVersion=" + KubernetesVersion,
			"gitMajor=" + parts[0],
			"gitMinor=" + parts[1],
			"gitCommit=", // Modules come without their commit.
			"gitTreeState=archive",
			"buildDate=" + buildDate,
		} {
			flags = append(flags, "-X", pkg+"."+variable)
		}
	}
	return strings.Join(flags, " ")
}

// CacheVariable is the environment variable that replaces the folder in the user's cache.
const CacheVariable = "CONTROL_PLANE_CACHE"

// Folder returns the folder in which the programs of the Go module in folder module are kept, whether they are there or
// not: controlplane/VERSION-KEY in the user's cache, or in the folder that CacheVariable names.
func Folder(module string) (string, error) {
	key, err := key(module)
	if err != nil {
		return "", err
	}
	root := os.Getenv(CacheVariable)
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's cache folder (set %s instead): %w", CacheVariable, err)
		}
		root = filepath.Join(cache, "metacontroller-apiserver", "controlplane")
	}
	// The compiler runs in the module's folder, so a path from here would lead it astray.
	if root, err = filepath.Abs(root); err != nil {
		return "", fmt.Errorf("finding the folder of the control plane's programs: %w", err)
	}
	return filepath.Join(root, KubernetesVersion+"-"+key), nil
}

// key stands for everything that the programs depend on: the versions of the modules and of Go, and how they are built.
func key(module string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, arguments(), environment())
	for _, p := range programs() {
		fmt.Fprintln(hash, p.name, p.pkg)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("reading the versions of the control plane (is %q the folder of its module?): %w", module, err)
		}
		hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// lock takes the lock on a file, which ends with the process at the latest. When another process holds it, busy is called
// once and lock waits.
func lock(ctx context.Context, name string, busy func()) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the control plane's programs: %w", err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for told := false; ; {
		// Not the blocking form: a user who waits wants to be able to give up.
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("locking the control plane's programs: %w", err), file.Close())
		}
		if !told {
			told = true
			busy()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("waiting for another build of the control plane: %w", ctx.Err()), file.Close())
		}
	}
}
