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
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

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
