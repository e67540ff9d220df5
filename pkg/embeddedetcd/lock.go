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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// lockFileName is the file in the data directory that the running process holds locked.
const lockFileName = "LOCK"

// acquireLock takes the data directory for this process and writes down who holds it. It never waits.
//
// etcd's own lock on its database is not enough: a second etcd removes the socket of the first one before it comes to that
// lock, and then waits for ever. The kernel drops the lock with the process, however that ends; the file stays.
func acquireLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFileName)
	locked, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, &InUseError{Dir: dir, Holder: readHolder(path)}
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	f := locked.File
	if err := writeHolder(f); err != nil {
		_ = f.Close()
		return nil, classify(dir, fmt.Errorf("writing lock file %s: %w", path, err))
	}
	return f, nil
}

// readHolder returns what the holder wrote about itself, or nothing.
func readHolder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	// The longest host name has 64 bytes; whatever else is in the file is not ours.
	text, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func writeHolder(f *os.File) error {
	// A process in another container has another numbering of processes, so the host name belongs to it.
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
	return err
}

// classify gives an error of the file system the type that tells the operator what to do.
func classify(dir string, err error) error {
	if isNoSpace(err) {
		return &NoSpaceError{Dir: dir, Err: err}
	}
	return err
}
