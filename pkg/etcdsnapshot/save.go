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
	"context"
	"errors"
	"fmt"
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
