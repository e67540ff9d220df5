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
	"os"

	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/datadir"
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
