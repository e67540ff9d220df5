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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

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

// DefaultBump is by how much revisions are bumped: more than a store is written between the snapshot and its loss. etcd's own
// instructions for clusters of Kubernetes name this number.
const DefaultBump = 1_000_000_000

// staging begins the names of directories in which a data directory is prepared.
const staging = ".restore-"

// Restoring says what is restored and where to.
type Restoring struct {
	// File is the path of the snapshot.
	File string
	// Dir is the data directory of etcd, which is made if it is missing. It must hold no store.
	Dir string
	// Bump is added to the last revision; it must not be zero. Clients have seen revisions after that of the snapshot, as
	// resourceVersions. With the bump none of these comes back with another content, and all revisions up to it are marked compacted, so
	// that every watch is told to list anew.
	Bump uint64
}

// Restore makes a data directory of a snapshot. The error is a *BrokenError when the file cannot be restored, an *OccupiedError when
// there is a store already, and an *embeddedetcd.InUseError when a server runs on the directory. After any error Dir holds what it held.
func Restore(r Restoring) (err error) {
	if r.Bump == 0 {
		return errors.New("revisions must be bumped by 1 or more: clients have seen resourceVersions that would come back with another content")
	}
	if _, err := ReadStatus(r.File); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return fmt.Errorf("making data directory: %w", err)
	}
	lock, err := embeddedetcd.Lock(r.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	member := datadir.ToMemberDir(r.Dir)
	if _, err := os.Lstat(member); err == nil {
		return &OccupiedError{Dir: r.Dir, Member: member}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("looking for a store in data directory %s: %w", r.Dir, err)
	}
	prepared, err := prepare(r)
	if err != nil {
		return fmt.Errorf("restoring snapshot %s: %w", r.File, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(filepath.Dir(prepared))) }()
	if err := os.Rename(datadir.ToMemberDir(prepared), member); err != nil {
		return fmt.Errorf("moving the restored store to its place: %w", err)
	}
	return syncDir(r.Dir)
}

// prepare makes the store beside its place, and returns its data directory. Its parent is to be removed.
func prepare(r Restoring) (dir string, err error) {
	// Those of a restore that was killed are of no use.
	left, err := filepath.Glob(filepath.Join(r.Dir, staging+"*"))
	if err != nil {
		return "", err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	folder, err := os.MkdirTemp(r.Dir, staging)
	if err != nil {
		return "", err
	}
	defer func() {
		// It is how etcd's storage says that it cannot go on.
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	dir = filepath.Join(folder, "etcd")
	if err := snapshot.NewV3(logger()).Restore(snapshot.RestoreConfig{
		SnapshotPath: r.File, OutputDataDir: dir,
		Name: embeddedetcd.MemberName, PeerURLs: []string{embeddedetcd.MemberPeerURL},
		InitialCluster: embeddedetcd.MemberName + "=" + embeddedetcd.MemberPeerURL, InitialClusterToken: "restored",
		RevisionBump: r.Bump, MarkCompacted: true,
	}); err != nil {
		return "", err
	}
	return dir, embeddedetcd.Verify(dir)
}

// syncDir writes the names in a directory to disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// logger is for the libraries of etcd: they return their errors, and panic where they would end the process.
func logger() *zap.Logger {
	return zap.New(zapcore.NewNopCore(), zap.WithFatalHook(zapcore.WriteThenPanic))
}

// Status says what is in a snapshot. Its numbers are those of etcdutl.
type Status struct {
	// Version is the version of the form in which etcd stores, such as 3.7.0. It is empty if the snapshot does not say.
	Version string `json:"version"`
	// Revision is the last one in the store, which is the resourceVersion of a list.
	Revision int64 `json:"revision"`
	// TotalKeys counts all that is stored, with former versions and what etcd notes for itself.
	TotalKeys int `json:"totalKeys"`
	// TotalSize is the size of the database in bytes.
	TotalSize int64 `json:"totalSize"`
	// Hash is a sum over keys and values, in hexadecimal digits: that of two snapshots of the same state is the same.
	Hash string `json:"hash"`
	// Keys are the keys that are there in the last revision, in no order.
	Keys []string `json:"-"`
}

// ReadStatus reads a whole snapshot. The error is a *BrokenError if it is none.
func ReadStatus(path string) (Status, error) {
	if err := verifyFile(path); err != nil {
		return Status{}, err
	}
	if err := embeddedetcd.VerifyDatabase(path); err != nil {
		return Status{}, &BrokenError{File: path, Err: err}
	}
	found, err := snapshot.NewV3(logger()).Status(path)
	if err != nil {
		return Status{}, &BrokenError{File: path, Err: err}
	}
	keys, err := readKeys(path)
	if err != nil {
		return Status{}, &BrokenError{File: path, Err: err}
	}
	return Status{
		Version: found.Version, Revision: found.Revision, TotalKeys: found.TotalKey, TotalSize: found.TotalSize,
		Hash: fmt.Sprintf("%08x", found.Hash), Keys: keys,
	}, nil
}

// readKeys returns the keys that are there in the last revision of a database.
func readKeys(path string) (keys []string, err error) {
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	there := map[string]bool{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Key.Name()).ForEach(func(revision, value []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(value, &kv); err != nil {
				return fmt.Errorf("decoding revision %x: %w", revision, err)
			}
			// A bumped revision has no key.
			if key := string(kv.GetKey()); mvcc.IsTombstone(revision) {
				delete(there, key)
			} else if key != "" {
				there[key] = true
			}
			return nil
		})
	})
	return slices.Collect(maps.Keys(there)), err
}
