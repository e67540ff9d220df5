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

// Package storage tests the rows of docs/reliability.md#faults that are about what the API server stores: etcd's members, its disk, the
// machine's power, other versions of the server, and requests that make no sense.
package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	// path is where the server serves the controllers.
	path = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers"
	// runLabel is on the controllers that are stored only, and not run, with the flag stored.
	runLabel, run = fixture.Group + "/run", "no"
	stored        = "--target-label-selector=" + runLabel + "!=" + run
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// limit is more than anything takes on a busy machine.
func limit() time.Duration { return report.Pick(5*time.Minute, 10*time.Minute) }

// pause lets a fault last.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// seconds is how figures say how long something took.
func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// needRoot skips a test that mounts file systems where nobody may.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount file systems")
	}
}

// execute runs a program to its end.
func execute(t *testing.T, name string, args ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
}

// A disk is a file that holds a file system: what reaches the file is what a machine's disk has after a power cut.
type disk struct {
	t *testing.T
	// mounted is where the file system is.
	mounted     string
	image, copy string
}

// newDisk makes and mounts a file system that goes with the test.
func newDisk(t *testing.T, size string) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{t: t, mounted: filepath.Join(dir, "mounted"), image: filepath.Join(dir, "image"), copy: filepath.Join(dir, "copy")}
	execute(t, "truncate", "--size", size, d.image)
	execute(t, "mkfs.ext4", "-q", "-F", d.image)
	if err := os.Mkdir(d.mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	d.mount()
	// Before the folder is removed, and after the server has ended, which is started later.
	t.Cleanup(func() { _ = syscall.Unmount(d.mounted, syscall.MNT_DETACH) })
	return d
}

func (d *disk) mount() {
	d.t.Helper()
	execute(d.t, "mount", "-o", "loop", d.image, d.mounted)
}

// cutPower drops what the kernel holds and has not written to the disk. Nothing may be using the file system.
func (d *disk) cutPower() {
	d.t.Helper()
	// What is not in the file at this moment is lost: unmounting would write it.
	execute(d.t, "cp", "--sparse=always", d.image, d.copy)
	execute(d.t, "umount", d.mounted)
	if err := os.Rename(d.copy, d.image); err != nil {
		d.t.Fatal(err)
	}
	d.mount()
}

// newSmallDisk mounts a file system in memory, of a size in MiB, that goes with the test.
func newSmallDisk(t *testing.T, size string) string {
	t.Helper()
	mounted := t.TempDir()
	execute(t, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", mounted)
	t.Cleanup(func() { _ = syscall.Unmount(mounted, syscall.MNT_DETACH) })
	return mounted
}

// fill takes all space of a file system but some bytes, and returns what gives it back.
func fill(t *testing.T, mounted string, left int64) (free func()) {
	t.Helper()
	path := filepath.Join(mounted, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for tries := 1; ; tries++ {
		var is syscall.Statfs_t
		if err := syscall.Statfs(mounted, &is); err != nil {
			t.Fatalf("asking for the space of %s: %v", mounted, err)
		}
		err := syscall.Fallocate(int(file.Fd()), 0, 0, int64(is.Bavail)*is.Bsize-left)
		if err == nil {
			break
		}
		if tries == 10 || !errors.Is(err, syscall.ENOSPC) { // etcd takes space for its next log beside this.
			t.Fatalf("filling %s: %v", mounted, err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	// diskSize is room for two segments of etcd's log, which are made in advance, and for its database.
	diskSize = "200m"
	// space is what is left on the disk before it is written to until it is full.
	space = 1 << 20
	// noSpace is in what the server says then, and what to do.
	noSpace, remedy = "no space left for data directory", "free some space or enlarge the volume, then start again"
)

// TestDiskFull fills the disk under the embedded etcd.
func TestDiskFull(t *testing.T) {
	needRoot(t)
	figures := report.For(t, report.DiskFull)
	rounds := report.Pick(1, 3)
	data := newSmallDisk(t, diskSize)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		DataDir: data, Args: []string{stored}, Tolerate: []string{"context canceled", "could not write", "Handler timeout"},
	}})
	l := newLedger(e.NewTest(t))
	l.fill = 100_000
	var slowest time.Duration
	for range rounds {
		if failed := l.write(t.Context(), 20); len(failed) > 0 {
			t.Fatal(failed)
		}
		free := fill(t, data, space)
		failed := l.write(t.Context(), 2000)
		if len(failed) == 0 {
			t.Fatalf("the disk is not full after %d writes", l.acknowledged())
		}
		select {
		case <-e.Server.Ended():
		case <-time.After(limit()):
			t.Fatalf("the server has not ended with a full disk; writes fail with %v", failed)
		}
		if code, text := e.Server.End(); code == 0 || !strings.Contains(text, noSpace) || !strings.Contains(text, remedy) {
			t.Errorf("the server ended with the code %d and\n%s\nwant %q and %q", code, text, noSpace, remedy)
		}
		again := exec.CommandContext(t.Context(), server.Binary(t), "--kubeconfig", e.Kubeconfig, "--data-dir", data)
		if output, err := again.CombinedOutput(); err == nil || !strings.Contains(string(output), noSpace) || !strings.Contains(string(output), remedy) {
			t.Errorf("started with a full disk it ended with %v and\n%s\nwant %q and %q", err, output, noSpace, remedy)
		}
		free()
		freed := time.Now()
		e.Server.Restart()
		slowest = max(slowest, time.Since(freed))
		l.check()
	}
	if failed := l.write(t.Context(), 20); len(failed) > 0 {
		t.Errorf("writing after all: %v", failed)
	}
	l.check()
	figures.Sayf("full %d times: the server ends and says so, and what to do; with space it served again after %s, with all of %d acknowledged writes",
		rounds, seconds(slowest), l.acknowledged())
}

// TestPowerCut kills the server while controllers are written to its embedded etcd, and drops what the kernel has not written to the disk.
func TestPowerCut(t *testing.T) {
	needRoot(t)
	figures := report.For(t, report.PowerCut)
	cuts, writes := report.Pick(2, 10), report.Pick(100, 1000)
	d := newDisk(t, "400M")
	data := filepath.Join(d.mounted, "data")
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		DataDir: data, Args: []string{stored},
		// Requests to the cluster are broken off when those end that need them.
		Tolerate: []string{"Failed to make webhook authorizer request"},
	}})
	l := newLedger(e.NewTest(t))
	authority, err := os.ReadFile(filepath.Join(data, "serving-certificates", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range cuts {
		at := l.acknowledged() + 1 + rand.IntN(writes/cuts)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			for until := time.Now().Add(limit()); l.acknowledged() < at && time.Now().Before(until); {
				<-time.After(time.Millisecond)
			}
			e.Server.Kill()
		}()
		// The writes after the kill fail.
		failed := l.write(t.Context(), writes)
		<-killed
		if len(failed) == 0 {
			t.Fatalf("the server was to be killed during the writes, of which %d were acknowledged", l.acknowledged())
		}
		unsynced := filepath.Join(d.mounted, "unsynced")
		if err := os.WriteFile(unsynced, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		d.cutPower()
		if content, _ := os.ReadFile(unsynced); len(content) > 0 {
			t.Errorf("cut %d kept what nobody had synced: the test cuts no power", cut)
		}
		e.Server.Restart()
		l.check()
	}
	if failed := l.write(t.Context(), max(0, writes-l.acknowledged())); len(failed) > 0 {
		t.Errorf("writing after the last cut: %v", failed)
	}
	l.check()
	if now, err := os.ReadFile(filepath.Join(data, "serving-certificates", "ca.crt")); err != nil || !bytes.Equal(now, authority) {
		t.Errorf("the certificate authority is another one: %v", err)
	}
	figures.Sayf("%d kills during %d acknowledged writes, each with the loss of all that was not on the disk: all of the writes are there", cuts, l.acknowledged())
}

// slack is what may be in the heap after all requests that was not there after the first ones.
const slack = 16 << 20

// TestMalformedRequests sends the server what makes no sense.
func TestMalformedRequests(t *testing.T) {
	figures := report.For(t, report.Malformed)
	requests := report.Pick(1000, 10_000)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{Args: []string{stored}}})
	l := newLedger(e.NewTest(t))
	if _, err := l.client.Create(t.Context(), controller("malformed", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := l.client.Get(t.Context(), "malformed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int]int{}
	send(t, e.Server, requests/10, 0, codes)
	warm := heap(t, e.Server)
	send(t, e.Server, requests-requests/10, 1, codes)
	after := heap(t, e.Server)
	if after > warm+slack {
		t.Errorf("the heap has %d MiB after all requests, and had %d MiB after the first ones", after>>20, warm>>20)
	}
	if now, err := l.client.Get(t.Context(), "malformed", metav1.GetOptions{}); err != nil || now.UID != before.UID || now.Generation != before.Generation {
		t.Errorf("the object that the requests were about has changed: %v", err)
	}
	select {
	case <-e.Server.Ended():
		t.Error("the server ended")
	default:
	}
	var counted []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		counted = append(counted, fmt.Sprintf("%d with %d", codes[code], code))
	}
	figures.Sayf("%d requests of %d kinds: %s", requests, len(generators()), strings.Join(counted, ", "))
	figures.Sayf("the heap has %d MiB, after the first tenth of them it had %d; %d MiB resident at most", after>>20, warm>>20, peak(t, e.Server)>>20)
}

// send sends requests of all kinds, and counts the codes of the answers. The seed decides which.
func send(t *testing.T, s *server.Server, requests int, seed uint64, codes map[int]int) {
	t.Helper()
	transport, err := s.Transport()
	if err != nil {
		t.Fatal(err)
	}
	all := generators()
	names := slices.Sorted(maps.Keys(all))
	var next atomic.Int64
	var working sync.WaitGroup
	var mu sync.Mutex
	for w := range writers {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		working.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= requests {
					return
				}
				name := names[n%len(names)]
				code, text, err := all[name](r).send(t, transport, s)
				if err != nil || code < 400 || code >= 500 {
					t.Errorf("%s: got %d %v: %.300s", name, code, err, text)
				}
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	working.Wait()
}

func (m malformed) send(t *testing.T, transport http.RoundTripper, s *server.Server) (code int, text string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), m.method, s.URL(m.path), bytes.NewReader(m.body))
	if err != nil {
		return 0, "", err
	}
	if m.contentType != "" {
		request.Header.Set("Content-Type", m.contentType)
	}
	for name, value := range m.header {
		request.Header.Set(name, value)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // It is read.
	read, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(read), err
}

// heap returns how many bytes are in use in a server after garbage collections.
func heap(t *testing.T, s *server.Server) int {
	t.Helper()
	size, _, err := s.Heap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// peak returns the most memory that a server had in use, in bytes.
func peak(t *testing.T, s *server.Server) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		t.Fatalf("reading the memory of the server: %v", err)
	}
	return kilobytes << 10
}
