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
	"syscall"
)

const (
	// folderPattern names the folders of control planes in the folder for temporary files.
	folderPattern = "control-plane-*"
	// lockName is the file in them that the owner has locked for as long as it lives.
	lockName = "LOCK"
)

// Folder is the folder of one control plane.
type Folder struct {
	// Path of the folder.
	Path string
	lock *os.File
}

// TemporaryFolder makes a new folder in parent, and removes the folders there whose owners died without doing so.
func TemporaryFolder(parent string) (*Folder, error) {
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, folderPattern)
	if err != nil {
		return nil, fmt.Errorf("creating a folder for the control plane: %w", err)
	}
	lock, err := takeLock(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Folder{Path: path, lock: lock}, nil
}

// NewFolder makes the folder path, which must not exist or be empty.
func NewFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the control plane: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the control plane: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of the control plane: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("the folder %s is not empty; a control plane starts in an empty one", path)
	}
	return &Folder{Path: path}, nil
}

// Remove removes the folder with all that is in it.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.Path)
	f.Close()
	return err
}

// Close leaves the folder where it is.
func (f *Folder) Close() {
	if f.lock != nil {
		_ = os.Remove(filepath.Join(f.Path, lockName))
		_ = f.lock.Close()
		f.lock = nil
	}
}

// clear removes what an attempt to start has written.
func (f *Folder) clear() error {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return fmt.Errorf("reading the folder of the control plane: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.Path, entry.Name())); err != nil {
			return fmt.Errorf("clearing the folder of the control plane: %w", err)
		}
	}
	return nil
}

// takeLock makes the folder's lock. It has its name only when it is locked: others take an unlocked one for abandoned.
func takeLock(path string) (*os.File, error) {
	name := filepath.Join(path, lockName)
	file, err := os.Create(name + ".new")
	if err != nil {
		return nil, fmt.Errorf("creating the lock of the control plane's folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the control plane's folder: %w", err), file.Close())
	}
	return file, nil
}

// removeAbandoned removes the folders in parent whose lock nobody holds. What cannot be removed is left: it is in nobody's
// way but the disk's.
func removeAbandoned(parent string) {
	// The pattern is well formed, which is all that Glob complains about.
	names, _ := filepath.Glob(filepath.Join(parent, folderPattern, lockName))
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = file.Close()
	}
}
