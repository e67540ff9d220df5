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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// KubernetesVersion is the version of kube-apiserver, kube-controller-manager, kube-scheduler and kubectl. It is that of
// the module k8s.io/kubernetes in go.mod.
const KubernetesVersion = "v1.36.3"

// CacheVariable is the environment variable that replaces the folder in the user's cache.
const CacheVariable = "CONTROL_PLANE_CACHE"

// program is one program to build.
type program struct {
	// name is the file name of the result.
	name string
	// pkg is the Go package.
	pkg string
	// usual is how long a first build takes on two cores, for people who wait.
	usual string
}

var programs = []program{
	{"etcd", "./etcd", "half a minute"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "three minutes"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "one minute"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "half a minute"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl", "half a minute"},
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok", "one minute"},
}

// Programs returns the folder that holds the programs, and builds those that are missing from the Go module in folder
// module. What is built is told to w, since it takes minutes the first time. Several processes may call it at once: one
// builds, the others wait.
func Programs(ctx context.Context, module string, w io.Writer) (string, error) {
	folder, err := Folder(module)
	if err != nil {
		return "", err
	}
	if complete(folder) {
		return folder, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("creating the folder for the control plane's programs: %w", err)
	}
	unlock, err := lock(filepath.Join(folder, "LOCK"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(folder) {
		return folder, nil
	}
	fmt.Fprintf(w, "Building the control plane (Kubernetes %s), once; on two cores this takes about seven minutes.\n", KubernetesVersion)
	for _, p := range programs {
		if err := p.build(ctx, module, folder, w); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// Folder returns the folder in which the programs of a module are kept. It depends on the versions in the module and on
// Go's.
func Folder(module string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("reading the versions of the control plane: %w", err)
		}
		hash.Write(content)
	}
	root := os.Getenv(CacheVariable)
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's cache folder (set %s instead): %w", CacheVariable, err)
		}
		root = filepath.Join(cache, "metacontroller-apiserver", "controlplane")
	}
	return filepath.Join(root, KubernetesVersion+"-"+hex.EncodeToString(hash.Sum(nil))[:12]), nil
}

func complete(folder string) bool {
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(folder, p.name)); err != nil {
			return false
		}
	}
	return true
}

func (p program) build(ctx context.Context, module, folder string, w io.Writer) error {
	target := filepath.Join(folder, p.name)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	fmt.Fprintf(w, "  %s (about %s) … ", p.name, p.usual)
	started := time.Now()
	unfinished := target + ".unfinished"
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stamp(), "-o", unfinished, p.pkg)
	command.Dir = module
	command.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		fmt.Fprintln(w, "failed")
		return fmt.Errorf("building %s: %w\n%s", p.name, err, output)
	}
	if err := os.Rename(unfinished, target); err != nil {
		return fmt.Errorf("building %s: %w", p.name, err)
	}
	fmt.Fprintln(w, time.Since(started).Round(time.Second))
	return nil
}

// stamp returns the linker flags that put the version into the Kubernetes programs, as their own build does.
func stamp() string {
	version := strings.TrimPrefix(KubernetesVersion, "v")
	parts := strings.SplitN(version, ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range map[string]string{
			"gitVersion": KubernetesVersion, "gitMajor": parts[0], "gitMinor": parts[1],
			"gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
		} {
			flags = append(flags, "-X", pkg+"."+name+"="+value)
		}
	}
	return strings.Join(flags, " ")
}

// lock waits for the lock on a file. The lock ends with the process at the latest.
func lock(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the control plane's programs: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("waiting for another build of the control plane: %w", err)
	}
	return func() { _ = file.Close() }, nil
}
