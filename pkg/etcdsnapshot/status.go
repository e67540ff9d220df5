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
	"fmt"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

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
	for key := range there {
		keys = append(keys, key)
	}
	return keys, err
}
