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
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

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
	for cursor, key, value := bucketCursor(bucket); key != nil; key, value = cursor.Next() {
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

// bucketCursor returns a cursor at the first key of the bucket.
func bucketCursor(bucket *bolt.Bucket) (cursor *bolt.Cursor, key, value []byte) {
	cursor = bucket.Cursor()
	key, value = cursor.First()
	return cursor, key, value
}

// isRevision tells whether a key has the form of etcd's revisions: main, underscore, sub, and a mark for a deletion.
func isRevision(key []byte) bool {
	return (len(key) == 17 || len(key) == 18 && key[17] == 't') && key[8] == '_'
}
