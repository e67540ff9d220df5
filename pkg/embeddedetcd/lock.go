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
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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

// Lock takes a data directory for this process without starting etcd on it, until what it returns is closed. It never waits: the
// error is an *InUseError when another process holds the directory. The directory must exist.
func Lock(dir string) (io.Closer, error) { return acquireLock(dir) }

// RunningEndpoint returns the Endpoint of the Server that runs on a data directory, in whichever process of this user. The error is
// ErrNotRunning when there is none.
func RunningEndpoint(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, lockFileName)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", ErrNotRunning
	}
	if err != nil {
		return "", fmt.Errorf("opening lock file %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	endpoint := readLine(f, 1)
	socket, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return "", ErrNotRunning
	}
	// What a killed process wrote stays, and so does its socket. Taking the lock would tell that as well, and keep a server from
	// starting at that moment.
	connection, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return "", ErrNotRunning
	}
	if err != nil {
		return "", fmt.Errorf("connecting to %s: %w", readLine(f, 0), err)
	}
	return endpoint, connection.Close()
}

// readHolder returns what the holder wrote about itself, or nothing.
func readHolder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	return readLine(f, 0)
}

// readLine returns a line of a lock file: first the process that holds it, then the endpoint of its etcd. It is empty if it is not there.
func readLine(f *os.File, n int) string {
	// The longest host name has 64 bytes, and the longest socket 107; whatever else is in the file is not ours.
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 256))
	lines := strings.Split(string(text), "\n")
	if err != nil || n >= len(lines) {
		return ""
	}
	return strings.TrimSpace(lines[n])
}

// publishEndpoint adds the endpoint of a running etcd to the lock file, for RunningEndpoint.
func publishEndpoint(lock *os.File, endpoint string) error {
	info, err := lock.Stat()
	if err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(endpoint+"\n"), info.Size())
	return err
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
