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

package etcdsnapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

// dialTimeout is how long to wait for the connection to a socket of this machine.
const dialTimeout = 5 * time.Second

// Save writes a snapshot of the store in dir to out, while the server on it serves: the data directory of etcd, not of the server. It
// returns the size. The error is embeddedetcd.ErrNotRunning when no server runs there. After any error what was written is useless.
func Save(ctx context.Context, dir string, out io.Writer) (size int64, err error) {
	endpoint, err := embeddedetcd.RunningEndpoint(ctx, dir)
	if err != nil {
		return 0, err
	}
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, DialTimeout: dialTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return 0, fmt.Errorf("connecting to etcd at %s: %w", endpoint, err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	response, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking etcd for a snapshot: %w", err)
	}
	defer func() { _ = response.Snapshot.Close() }()
	sum := newChecksum()
	if _, err := io.Copy(io.MultiWriter(out, sum), response.Snapshot); err != nil {
		return sum.size, fmt.Errorf("receiving the snapshot: %w", err)
	}
	if err := sum.verify(); err != nil {
		return sum.size, fmt.Errorf("receiving the snapshot: %w", err)
	}
	return sum.size, nil
}

// SaveFile is Save to a file. It is written beside it first, so that a file which is there is replaced by a whole snapshot or not at all.
// Several saves of one path may overlap. Only the owner of the file may read it.
func SaveFile(ctx context.Context, dir, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-")
	if err != nil {
		return fmt.Errorf("making the file of the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := Save(ctx, dir, f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing the snapshot to disk: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("naming the snapshot: %w", err)
	}
	return f.Close()
}

// sector divides the size of every database. So whoever knows the size of a file knows whether a checksum is at its end.
const sector = 512

// A checksum compares what is written to it with the SHA-256 at the end of that.
type checksum struct {
	sum  hash.Hash
	tail []byte
	size int64
}

func newChecksum() *checksum { return &checksum{sum: sha256.New()} }

// Write implements io.Writer. It does not fail.
func (c *checksum) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	c.tail = append(c.tail, p...)
	if n := len(c.tail) - sha256.Size; n > 0 {
		c.sum.Write(c.tail[:n]) // It is documented not to fail.
		c.tail = c.tail[:copy(c.tail, c.tail[n:])]
	}
	return len(p), nil
}

// verify returns an error if what was written is not whole.
func (c *checksum) verify() error {
	switch {
	case c.size%sector != sha256.Size || c.size == sha256.Size:
		return fmt.Errorf("it has %d bytes and no checksum at their end: it was cut off, or is no snapshot", c.size)
	case !bytes.Equal(c.sum.Sum(nil), c.tail):
		return errors.New("its checksum is that of other content: it was changed or damaged after it was saved")
	}
	return nil
}

// verifyFile returns a *BrokenError if a file is not a whole snapshot.
func verifyFile(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening snapshot: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := newChecksum()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("reading snapshot %s: %w", path, err)
	}
	if err := sum.verify(); err != nil {
		return &BrokenError{File: path, Err: err}
	}
	return nil
}

// A BrokenError means that a file cannot be restored, because it is not a whole snapshot.
type BrokenError struct {
	// File is the path of the file.
	File string
	// Err is what was found.
	Err error
}

// Error names the file, what was found, and what an operator can do.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("snapshot %s cannot be restored: %v; take another one", e.File, e.Err)
}

// Unwrap returns what was found.
func (e *BrokenError) Unwrap() error { return e.Err }

// An OccupiedError means that a data directory holds a store already.
type OccupiedError struct {
	// Dir is the data directory of etcd.
	Dir string
	// Member is what is there.
	Member string
}

// Error names the directory, and what an operator can do.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("data directory %s holds a store already, and nothing of it was changed; choose another directory, or move %s away first",
		e.Dir, e.Member)
}
