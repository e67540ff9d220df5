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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"k8s.io/klog/v2"
)

const (
	// DefaultStartTimeout is how long Start waits when Options.StartTimeout is zero, and a second more for each startBytes of the database file.
	// At the quota, all of it is less than the startup probe of the manifests grants.
	DefaultStartTimeout = time.Minute
	startBytes          = 48 << 20
	// DefaultQuotaBytes is the largest database when Options.QuotaBytes is zero: 2 GiB, etcd's own default.
	DefaultQuotaBytes = 2 << 30
	// DefaultSpaceCheckInterval is the pause between two looks at the quota when Options.SpaceCheckInterval is zero.
	DefaultSpaceCheckInterval = 5 * time.Second
)

// Options says where and how the embedded etcd runs. Only Dir is required.
type Options struct {
	// Dir is the directory of all data, created with mode 0700 when it is missing. One process at a time may use it.
	//
	// The socket is Dir/run/etcd.sock. The kernel limits the path of a socket to 107 bytes, and clients take it as a URL:
	// when the path is longer, or holds bytes that a URL must escape, the socket is made in a new private directory under
	// os.TempDir instead. That directory is removed by Close, and stays behind when the process is killed.
	Dir string

	// Logger receives what etcd and this package have to say. The zero value means the logger of Start's context.
	Logger klog.Logger

	// StartTimeout is how long Start waits until etcd serves, including the check of the existing data, and the rewriting of a database
	// file with many free pages. Zero means DefaultStartTimeout, and more if the database is large.
	StartTimeout time.Duration

	// QuotaBytes is the largest size of the database file. When it is reached, etcd refuses writes that need space and the
	// Server compacts and defragments. Zero means DefaultQuotaBytes.
	QuotaBytes int64

	// SpaceCheckInterval is the pause between two looks at the database's quota. Zero means DefaultSpaceCheckInterval.
	SpaceCheckInterval time.Duration

	// UnsafeNoFsync skips fsync: faster, and a crash of the machine loses data. For tests alone.
	UnsafeNoFsync bool
}

// complete returns the options with every default filled in and Dir made absolute.
func (o Options) complete(ctx context.Context) (Options, error) {
	if o.Dir == "" {
		return o, errors.New("embedded etcd needs a data directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("resolving data directory %s: %w", o.Dir, err)
	}
	o.Dir = dir
	if o.Logger.GetSink() == nil {
		o.Logger = klog.FromContext(ctx)
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = DefaultStartTimeout + time.Duration(databaseSize(o.Dir)/startBytes)*time.Second
	}
	o.QuotaBytes = cmp.Or(o.QuotaBytes, DefaultQuotaBytes)
	o.SpaceCheckInterval = cmp.Or(o.SpaceCheckInterval, DefaultSpaceCheckInterval)
	if o.StartTimeout < 0 || o.QuotaBytes < 0 || o.SpaceCheckInterval < 0 {
		return o, errors.New("embedded etcd: start timeout, quota and space check interval must not be negative")
	}
	return o, nil
}

// databaseSize returns the size of the database file in a data directory, 0 if there is none, or it cannot be looked at.
func databaseSize(dir string) int64 {
	size, _ := fileSize(datadir.ToBackendFileName(dir)) // Who reads the file says what is wrong with it.
	return size
}

// lateError says that etcd did not serve in time.
func (o Options) lateError() error {
	size := databaseSize(o.Dir)
	if size == 0 {
		return fmt.Errorf("it did not serve within %s", o.StartTimeout)
	}
	return fmt.Errorf("it did not serve within %s: the database has %d MiB, which are read before, and written anew if many of them are free; start it "+
		"again, which is faster while the machine remembers the file, or move the data to a faster volume", o.StartTimeout, (size+1<<20-1)>>20)
}

// ErrNotRunning means that no process runs an etcd on a data directory.
var ErrNotRunning = errors.New("no server runs on this data directory")

// An InUseError means that another process holds the data directory. Trying again is useless until that process ends.
type InUseError struct {
	// Dir is the data directory.
	Dir string
	// Holder describes the process as it wrote itself into the lock file; empty when it could not be read.
	Holder string
}

// Error names the directory and the process that holds it.
func (e *InUseError) Error() string {
	holder := cmp.Or(e.Holder, "another process")
	return fmt.Sprintf("data directory %s is in use by %s; stop that process or choose another data directory", e.Dir, holder)
}

// A DamagedError means that the stored data cannot be trusted as a whole, so nothing of it is served.
type DamagedError struct {
	// Dir is the data directory.
	Dir string
	// Err is what was found.
	Err error
}

// Error names the directory, what was found, and what an operator can do.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("data directory %s is damaged: %v; keep it for inspection and restore a backup into an empty directory",
		e.Dir, e.Err)
}

// Unwrap returns what was found.
func (e *DamagedError) Unwrap() error { return e.Err }

// A NoSpaceError means that the file system refused to store more. What had been acknowledged before is safe.
type NoSpaceError struct {
	// Dir is the data directory.
	Dir string
	// Err is the failed operation.
	Err error
}

// Error names the directory, the failed operation, and what an operator can do.
func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("no space left for data directory %s: %v; free some space or enlarge the volume, then start again",
		e.Dir, e.Err)
}

// Unwrap returns the failed operation.
func (e *NoSpaceError) Unwrap() error { return e.Err }

// isNoSpace tells whether a file system operation failed because the volume, a disk quota, or a limit on file sizes is exhausted.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

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
