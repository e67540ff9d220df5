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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server on a directory, and returns a client of it. Stop ends both before the test does.
func start(t *testing.T, dir string) (client *clientv3.Client, stop func()) {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Options{Dir: dir, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	client, err = clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	t.Cleanup(stop)
	return client, stop
}

func put(t *testing.T, client *clientv3.Client, key, value string) int64 {
	t.Helper()
	response, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.GetRevision()
}

func get(t *testing.T, client *clientv3.Client, key string) (value string, modified int64) {
	t.Helper()
	response, err := client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Kvs) == 0 {
		return "", 0
	}
	return string(response.Kvs[0].GetValue()), response.Kvs[0].GetModRevision()
}

// saved is a snapshot of a store with a few keys, its last revision, and the directory of the store.
func saved(t *testing.T) (file string, revision int64, dir string) {
	t.Helper()
	dir, file = t.TempDir(), filepath.Join(t.TempDir(), "backup.db")
	client, stop := start(t, dir)
	put(t, client, "/root/kept", "first")
	put(t, client, "/root/deleted", "value")
	if _, err := client.Delete(t.Context(), "/root/deleted"); err != nil {
		t.Fatal(err)
	}
	revision = put(t, client, "/root/kept", "second")
	// A store that is new decides soon after its start which version it is of.
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		if err := SaveFile(t.Context(), dir, file); err != nil {
			t.Fatal(err)
		}
		status, err := ReadStatus(file)
		if err != nil {
			t.Fatal(err)
		}
		if status.Version != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a store that has no version")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	return file, revision, dir
}

func TestWhatIsSavedIsRestored(t *testing.T) {
	file, revision, _ := saved(t)
	status, err := ReadStatus(file)
	if err != nil {
		t.Fatal(err)
	}
	if status.Revision != revision || !slices.Equal(status.Keys, []string{"/root/kept"}) || status.TotalSize == 0 || status.Version == "" {
		t.Errorf("got %+v, want revision %d and the key that is left", status, revision)
	}
	dir := filepath.Join(t.TempDir(), "made", "by", "restore")
	if err := Restore(Restoring{File: file, Dir: dir, Bump: DefaultBump}); err != nil {
		t.Fatal(err)
	}
	// It is read by every start, so one more.
	for range 2 {
		client, stop := start(t, dir)
		if value, modified := get(t, client, "/root/kept"); value != "second" || modified > revision {
			t.Errorf("got %q of revision %d, want what was saved", value, modified)
		}
		if value, _ := get(t, client, "/root/deleted"); value != "" {
			t.Errorf("what had been deleted is there: %q", value)
		}
		stop()
	}
	if left, err := filepath.Glob(filepath.Join(dir, staging+"*")); err != nil || len(left) > 0 {
		t.Errorf("restoring left %v behind, error %v", left, err)
	}
}

func TestRevisionsGoOnAfterThoseThatClientsHaveSeen(t *testing.T) {
	file, revision, old := saved(t)
	client, stop := start(t, old)
	lost := put(t, client, "/root/kept", "lost")
	stop()
	dir := t.TempDir()
	if err := Restore(Restoring{File: file, Dir: dir, Bump: 1000}); err != nil {
		t.Fatal(err)
	}
	client, _ = start(t, dir)
	if next := put(t, client, "/root/new", "value"); next <= revision+1000 {
		t.Errorf("the first write after restoring has revision %d, want more than %d", next, revision+1000)
	}
	watch := <-client.Watch(t.Context(), "/root", clientv3.WithPrefix(), clientv3.WithRev(lost))
	if err := watch.Err(); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a watch from a lost revision got %v and %v, want to be told to list anew", watch.Events, err)
	}
}

func TestASnapshotIsOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	client, _ := start(t, dir)
	writing, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-writing:
				done <- nil
				return
			default:
			}
			value := fmt.Sprint(n, strings.Repeat("x", 1000))
			if _, err := client.Txn(t.Context()).Then(clientv3.OpPut("/a", value), clientv3.OpPut("/b", value)).Commit(); err != nil {
				done <- err
				return
			}
		}
	}()
	file := filepath.Join(t.TempDir(), "backup.db")
	for range 3 { // A file that exists is replaced.
		if err := SaveFile(t.Context(), dir, file); err != nil {
			t.Fatal(err)
		}
	}
	close(writing)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	restored := t.TempDir()
	if err := Restore(Restoring{File: file, Dir: restored, Bump: 1}); err != nil {
		t.Fatal(err)
	}
	other, _ := start(t, restored)
	a, _ := get(t, other, "/a")
	if b, _ := get(t, other, "/b"); a != b || a == "" {
		t.Errorf("one transaction was saved by half: %.20q and %.20q", a, b)
	}
}

func TestSavesOfOneFileAtOnceAreEachWhole(t *testing.T) {
	dir := t.TempDir()
	client, _ := start(t, dir)
	put(t, client, "/root/kept", strings.Repeat("x", 1<<20))
	file := filepath.Join(t.TempDir(), "backup.db")
	var saves sync.WaitGroup
	for range 4 {
		saves.Go(func() {
			if err := SaveFile(t.Context(), dir, file); err != nil {
				t.Error(err)
			}
		})
	}
	saves.Wait()
	if _, err := ReadStatus(file); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, error %v, want a file that its owner alone may read", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("got the files %v, error %v, want that of the snapshot alone", left, err)
	}
}

func TestBrokenSnapshotsAreNotRestored(t *testing.T) {
	file, _, _ := saved(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, test := range map[string]struct {
		reason  string
		content []byte
		want    string
	}{
		"CutOff":        {"A download may have ended early.", whole[:len(whole)-4096], "its checksum is that of other content"},
		"CutInAPage":    {"It ends anywhere.", whole[:len(whole)-100], "no checksum at their end: it was cut off, or is no snapshot"},
		"OneBitFlipped": {"Disks do that.", flipped, "its checksum is that of other content"},
		"Empty":         {"A disk was full.", nil, "it has 0 bytes"},
		"SomethingElse": {"A list of objects, say.", []byte("apiVersion: v1\nkind: List\n"), "it was cut off, or is no snapshot"},
		"ADatabase":     {"A copy of the file in a data directory has no checksum, and may be of several moments.", whole[:len(whole)-32], "no checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			broken, dir := filepath.Join(t.TempDir(), "broken.db"), filepath.Join(t.TempDir(), "data")
			if err := os.WriteFile(broken, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			err := Restore(Restoring{File: broken, Dir: dir, Bump: DefaultBump})
			var b *BrokenError
			if !errors.As(err, &b) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), broken) {
				t.Errorf("%s\ngot %v, want %q", test.reason, err, test.want)
			}
			if _, err := ReadStatus(broken); !errors.As(err, &b) {
				t.Errorf("%s\nthe status is %v, want the same error", test.reason, err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s\nthe data directory was made: %v", test.reason, err)
			}
		})
	}
}

func TestAStoreIsNeverOverwritten(t *testing.T) {
	file, _, dir := saved(t)
	var occupied *OccupiedError
	if err := Restore(Restoring{File: file, Dir: dir, Bump: DefaultBump}); !errors.As(err, &occupied) {
		t.Errorf("restoring over a store: got %v, want an OccupiedError", err)
	}
	client, _ := start(t, dir)
	if value, _ := get(t, client, "/root/kept"); value != "second" {
		t.Errorf("the store has %q", value)
	}
	var inUse *embeddedetcd.InUseError
	if err := Restore(Restoring{File: file, Dir: dir, Bump: DefaultBump}); !errors.As(err, &inUse) {
		t.Errorf("restoring under a running server: got %v, want an InUseError", err)
	}
	if err := Restore(Restoring{File: file, Dir: t.TempDir()}); err == nil {
		t.Error("revisions went back, want an error")
	}
}

func TestSavingNeedsAServer(t *testing.T) {
	_, _, stopped := saved(t)
	file := filepath.Join(t.TempDir(), "backup.db")
	for _, dir := range []string{stopped, t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if err := SaveFile(t.Context(), dir, file); !errors.Is(err, embeddedetcd.ErrNotRunning) {
			t.Errorf("%s: got %v, want ErrNotRunning", dir, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, error %v", left, err)
	}
}
