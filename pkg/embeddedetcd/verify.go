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
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// Verify looks at all that is stored in a data directory, as Start does before it serves, and returns what is wrong with it. The caller
// holds the directory, see Lock.
func Verify(dir string) error {
	return guarded(func() error { return verifyData(zap.NewNop(), dir) })
}

// VerifyDatabase looks at a file with a database of etcd that no process has open, and returns what is wrong with it. A snapshot
// without its checksum is such a file.
func VerifyDatabase(file string) error {
	return guarded(func() error {
		state, err := verifyDatabase(file)
		if err == nil && !state.exists {
			err = fmt.Errorf("database file %s is missing or empty", file)
		}
		return err
	})
}

// verifyData looks at all that is stored in the data directory before etcd opens it, and returns what is wrong with it.
//
// etcd notices some damage only in goroutines of its own, where the answer is a crash without a word about the directory,
// and some damage not at all: with the end of its log lost it takes new writes and silently drops them, because their
// numbers are those of writes which the database has seen before.
//
// It must be called on a goroutine that may fault and panic, see guarded.
func verifyData(lg *zap.Logger, dir string) error {
	file := datadir.ToBackendFileName(dir)
	database, err := verifyDatabase(file)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return &InUseError{Dir: dir, Holder: "a program that has opened " + file}
	}
	if err != nil {
		return err
	}
	walDir := datadir.ToWALDir(dir)
	if !wal.Exist(walDir) {
		if database.consistentIndex > 0 {
			return fmt.Errorf("the write-ahead log %s is missing, but there is a database that was written with one", walDir)
		}
		return nil
	}
	log, err := verifyLog(lg, walDir)
	if err != nil {
		return fmt.Errorf("reading write-ahead log %s: %w", walDir, err)
	}
	if !database.exists && log.snapshot > 0 {
		return fmt.Errorf("database file %s is missing, and the write-ahead log begins only at entry %d",
			file, log.snapshot+1)
	}
	if database.consistentIndex == 0 && log.unborn() {
		return discardUnborn(lg, dir)
	}
	if seen := max(database.consistentIndex, log.commit); seen > log.last {
		return fmt.Errorf("the write-ahead log %s ends at entry %d, but entry %d had been stored: its end was lost",
			walDir, log.last, seen)
	}
	return nil
}

// A logState is what a write-ahead log tells about itself, in numbers of entries.
type logState struct {
	// snapshot is the entry after which the log begins.
	snapshot uint64
	// commit is the last entry that the log itself says was committed.
	commit uint64
	// last is the last entry in the log.
	last uint64
}

// unborn reports whether the log is that of a member whose first start was cut short. The first thing that a new member commits,
// together with the entry itself, is that it is a member; without that it waits for ever for others to elect it, and it has
// never served.
func (s logState) unborn() bool {
	return s.snapshot == 0 && s.commit == 0 && s.last <= 1
}

// discardUnborn removes what the first start of a member left behind that never served, so that the next start is the first.
func discardUnborn(lg *zap.Logger, dir string) error {
	lg.Info("removing what a first start left behind that was cut short; nothing was stored yet", zap.String("dir", dir))
	if err := os.RemoveAll(datadir.ToMemberDir(dir)); err != nil {
		return fmt.Errorf("removing what a first start left behind: %w", err)
	}
	return nil
}

// verifyLog reads the write-ahead log as etcd will do, checksums included. An incomplete last record is no damage: it was
// being written when the process was killed, and was never acknowledged.
func verifyLog(lg *zap.Logger, walDir string) (logState, error) {
	snapshots, err := wal.ValidSnapshotEntries(lg, walDir)
	if err != nil {
		return logState{}, err
	}
	start := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		start = snapshots[len(snapshots)-1]
	}
	log, err := wal.OpenForRead(lg, walDir, start)
	if err != nil {
		return logState{}, err
	}
	// Closing a log that was opened for reading reports an error whenever all of it was read.
	defer func() { _ = log.Close() }()
	_, state, entries, err := log.ReadAll()
	if err != nil {
		return logState{}, err
	}
	result := logState{snapshot: start.GetIndex(), commit: state.GetCommit(), last: start.GetIndex()}
	if len(entries) > 0 {
		result.last = entries[len(entries)-1].GetIndex()
	}
	return result, nil
}

// fileSize returns the size of a file in bytes, and 0 when there is none.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// databaseLockTimeout is how long to wait for the lock of a database file. The data directory is ours, so only a process that
// does not know our lock can hold it: etcdutl, or a backup tool.
const databaseLockTimeout = time.Second

// A databaseState is what a database file tells about itself.
type databaseState struct {
	// exists is false when there is no file, or an empty one from a first start that did not come further.
	exists bool
	// consistentIndex is the number of the last log entry that the database contains; 0 when it never contained one.
	consistentIndex uint64
}

// verifyDatabase reads every page of the database that is in use, once, and changes nothing.
//
// bbolt trusts its file: a wrong page number makes it read outside of the file, which the kernel answers with a signal. So
// this must run on a goroutine that turns faults into panics and recovers them, see guarded.
func verifyDatabase(path string) (state databaseState, err error) {
	size, err := fileSize(path)
	if err != nil {
		return databaseState{}, fmt.Errorf("looking at database file %s: %w", path, err)
	}
	if size == 0 {
		return databaseState{}, nil
	}
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: databaseLockTimeout})
	if err != nil {
		return databaseState{}, fmt.Errorf("opening database file %s: %w", path, err)
	}
	// Deferred, so that the file is released after a panic as well.
	defer func() { err = errors.Join(err, db.Close()) }()
	state.exists = true
	err = db.View(func(tx *bolt.Tx) error {
		if tx.Size() > size {
			return fmt.Errorf("it has %d bytes of %d: its end was lost", size, tx.Size())
		}
		if err := verifyPages(tx, tx.Size()/int64(db.Info().PageSize)); err != nil {
			return err
		}
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			if value := meta.Get(schema.MetaConsistentIndexKeyName); len(value) == 8 {
				state.consistentIndex = binary.BigEndian.Uint64(value)
			}
		}
		return nil
	})
	if err != nil {
		return databaseState{}, fmt.Errorf("reading database file %s: %w", path, err)
	}
	return state, nil
}

// verifyPages reads all buckets, and compares how many pages they claim to use with the number of pages that there are.
func verifyPages(tx *bolt.Tx, limit int64) error {
	used := 0
	err := tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		if err := verifyBucket(name, bucket); err != nil {
			return fmt.Errorf("bucket %q: %w", name, err)
		}
		stats := bucket.Stats()
		used += stats.BranchPageN + stats.BranchOverflowN + stats.LeafPageN + stats.LeafOverflowN
		return nil
	})
	if err == nil && int64(used) > limit {
		return fmt.Errorf("it claims to use %d pages, and has %d", used, limit)
	}
	return err
}

// verifyBucket reads all keys and values. Each key is looked up as well: that follows the inner pages of the tree, and finds
// keys which are there and cannot be reached.
func verifyBucket(name []byte, bucket *bolt.Bucket) error {
	revisions := bytes.Equal(name, schema.Key.Name())
	lookup := bucket.Cursor()
	var previous []byte
	// The checksum has no use of its own: it makes sure that every byte of the file can be read.
	var sum byte
	cursor := bucket.Cursor()
	for key, value := cursor.First(); key != nil; key, value = cursor.Next() {
		if previous != nil && bytes.Compare(previous, key) >= 0 {
			return fmt.Errorf("keys %x and %x are not in order", previous, key)
		}
		if found, _ := lookup.Seek(key); !bytes.Equal(found, key) {
			return fmt.Errorf("key %x cannot be found", key)
		}
		if revisions && !isRevision(key) {
			return fmt.Errorf("key %x is not a revision", key)
		}
		for _, b := range value {
			sum ^= b
		}
		previous = key
	}
	_ = sum
	return nil
}

// isRevision tells whether a key has the form of etcd's revisions: main, underscore, sub, and a mark for a deletion.
func isRevision(key []byte) bool {
	return (len(key) == 17 || len(key) == 18 && key[17] == 't') && key[8] == '_'
}
