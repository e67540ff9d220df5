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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
)

// mustStart starts a server for a test, and closes it at the end when the test did not.
func mustStart(t *testing.T, options Options) *Server {
	t.Helper()
	server, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return server
}

// mustConnect returns a client that is closed at the end of the test.
func mustConnect(t *testing.T, server *Server) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func mustPut(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func mustGet(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	response, err := client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Kvs) != 1 {
		t.Fatalf("%s: found %d values, want 1", key, len(response.Kvs))
	}
	return string(response.Kvs[0].Value)
}

func TestRestartKeepsData(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	for round := range 3 {
		server := mustStart(t, Options{Dir: dir, Logger: logger})
		client := mustConnect(t, server)
		for earlier := range round {
			if got := mustGet(t, client, fmt.Sprintf("/round/%d", earlier)); got != "kept" {
				t.Errorf("round %d: value of round %d is %q", round, earlier, got)
			}
		}
		mustPut(t, client, fmt.Sprintf("/round/%d", round), "kept")
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if err := server.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
		select {
		case <-server.Done():
		default:
			t.Error("Done is not closed after Close")
		}
		if err := server.Err(); err != nil {
			t.Errorf("Err after Close: %v", err)
		}
	}
}

// slowness is what etcd warns of when the machine or its disk is busy.
var slowness = []string{"took too long", "slow fdatasync"}

func TestCloseReportsNoFailures(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	server := mustStart(t, Options{Dir: t.TempDir(), Logger: logger})
	client := mustConnect(t, server)
	mustPut(t, client, "/key", "value")
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if slices.ContainsFunc(slowness, func(text string) bool { return strings.Contains(entry.Message, text) }) {
			continue
		}
		if entry.Type == ktesting.LogError || strings.Contains(fmt.Sprint(entry.WithKVList...), "warning") {
			t.Errorf("unexpected line in the log of a healthy life: %s %s %v %v", entry.Type, entry.Message, entry.Err, entry.WithKVList)
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	server := mustStart(t, Options{Dir: dir})
	output, err := childCommand(t, roleRead, dir).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("second process ended with %v, want exit code 1; its output:\n%s", err, output)
	}
	want := fmt.Sprintf("data directory %s is in use by process %d on ", dir, os.Getpid())
	if !strings.Contains(string(output), want) {
		t.Errorf("second process does not say %q:\n%s", want, output)
	}
	// The first one must not have noticed: a second etcd would have removed its socket.
	client := mustConnect(t, server)
	mustPut(t, client, "/still", "serving")
	if got := mustGet(t, client, "/still"); got != "serving" {
		t.Errorf("first process returned %q", got)
	}
}

func TestOthersFindARunningServer(t *testing.T) {
	dir := t.TempDir()
	if _, err := RunningEndpoint(t.Context(), dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("before the start: got %v, want ErrNotRunning", err)
	}
	server := mustStart(t, Options{Dir: dir})
	if endpoint, err := RunningEndpoint(t.Context(), dir); err != nil || endpoint != server.Endpoint() {
		t.Errorf("got %q and %v, want %q", endpoint, err, server.Endpoint())
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := RunningEndpoint(t.Context(), dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: got %v, want ErrNotRunning", err)
	}
	writeAndKill(t, dir, 1)
	if _, err := RunningEndpoint(t.Context(), dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after a kill: got %v, want ErrNotRunning", err)
	}
}

func TestSecondServerInOneProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, Options{Dir: dir})
	_, err := Start(t.Context(), Options{Dir: dir})
	var inUse *InUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("got %v, want an InUseError", err)
	}
	if inUse.Dir != dir || !strings.HasPrefix(inUse.Holder, fmt.Sprintf("process %d on ", os.Getpid())) {
		t.Errorf("got directory %q and holder %q", inUse.Dir, inUse.Holder)
	}
}

func TestKilledProcessKeepsAcknowledgedWrites(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		acknowledged := writeAndKill(t, dir, 200)
		server := mustStart(t, Options{Dir: dir})
		client := mustConnect(t, server)
		for _, key := range acknowledged {
			if got := mustGet(t, client, key); len(got) != 2000 {
				t.Errorf("%s: %d bytes, want 2000", key, len(got))
			}
		}
		_ = client.Close()
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStartGivesUpInTime(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("not wanted any more"))
	for name, test := range map[string]struct {
		reason  string
		ctx     context.Context
		stored  bool
		timeout time.Duration
		want    string
	}{
		"Timeout": {
			reason:  "An etcd that hangs must not keep the process from reporting it.",
			ctx:     t.Context(),
			timeout: time.Nanosecond,
			want:    "it did not serve within 1ns",
		},
		"TimeoutWithData": {
			reason:  "Whoever reads the error must know what takes the time, and what helps.",
			ctx:     t.Context(),
			stored:  true,
			timeout: time.Nanosecond,
			want:    "it did not serve within 1ns: the database has ",
		},
		"Canceled": {
			reason:  "A signal during the start must end it.",
			ctx:     canceled,
			timeout: time.Minute,
			want:    "not wanted any more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.stored {
				if err := mustStart(t, Options{Dir: dir}).Close(); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Start(test.ctx, Options{Dir: dir, StartTimeout: test.timeout})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%s\ngot %v, want %q in it", test.reason, err, test.want)
			}
			if _, damaged := errors.AsType[*DamagedError](err); damaged {
				t.Errorf("an interrupted start was taken for damage: %v", err)
			}
			mustStart(t, Options{Dir: dir})
		})
	}
}

func TestStartRefusesBadOptions(t *testing.T) {
	for name, options := range map[string]Options{
		"NoDirectory":     {},
		"NegativeQuota":   {Dir: t.TempDir(), QuotaBytes: -1},
		"NegativeTimeout": {Dir: t.TempDir(), StartTimeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if server, err := Start(t.Context(), options); err == nil {
				_ = server.Close()
				t.Error("started, want an error")
			}
		})
	}
}

// startupProbe returns for how long the manifest of a server with an embedded etcd lets it start.
func startupProbe(t *testing.T) time.Duration {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "artifacts", "components", "embedded-etcd", "statefulset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`startupProbe:(?s:.*?)periodSeconds: (\d+)\s+failureThreshold: (\d+)`).FindSubmatch(manifest)
	if found == nil {
		t.Fatal("the manifest has no startup probe")
	}
	period, _ := strconv.Atoi(string(found[1]))
	threshold, _ := strconv.Atoi(string(found[2]))
	return time.Duration(period*threshold) * time.Second
}

func TestALargeDatabaseHasMoreTimeToStart(t *testing.T) {
	for name, test := range map[string]struct {
		size  int64
		given time.Duration
		want  time.Duration
	}{
		"no database":                {want: time.Minute},
		"a small one":                {size: 20 << 20, want: time.Minute},
		"one of half the quota":      {size: DefaultQuotaBytes / 2, want: 81 * time.Second},
		"one at the quota":           {size: DefaultQuotaBytes, want: 102 * time.Second},
		"a time of the caller's own": {size: DefaultQuotaBytes, given: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.size > 0 {
				file := datadir.ToBackendFileName(dir)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(file, test.size); err != nil { // It takes no space.
					t.Fatal(err)
				}
			}
			o, err := Options{Dir: dir, StartTimeout: test.given}.complete(t.Context())
			if err != nil || o.StartTimeout != test.want {
				t.Errorf("it may take %s, error %v; want %s", o.StartTimeout, err, test.want)
			}
			// What is left is for the rest of the server's start: whom the kubelet ends says nothing.
			if probe := startupProbe(t); o.StartTimeout > probe-15*time.Second {
				t.Errorf("it may take %s, and the kubelet ends it after %s", o.StartTimeout, probe)
			}
		})
	}
}

func TestSocketIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	mustStart(t, Options{Dir: dir})
	for _, path := range []string{dir, filepath.Join(dir, "run"), filepath.Join(dir, "member")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", path, info.Mode().Perm())
		}
	}
	info, err := os.Stat(filepath.Join(dir, "run", socketName))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		t.Errorf("%s is %v, want a socket", info.Name(), info.Mode())
	}
	lock, err := os.Stat(filepath.Join(dir, lockFileName))
	if err != nil {
		t.Fatal(err)
	}
	if lock.Mode().Perm() != 0o600 {
		t.Errorf("lock file has mode %v, want 0600", lock.Mode().Perm())
	}
}

func TestRunDirectoryOfOthersIsRestricted(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(run, 0o777); err != nil {
		t.Fatal(err)
	}
	mustStart(t, Options{Dir: dir})
	info, err := os.Stat(run)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("%s has mode %v, want 0700", run, info.Mode().Perm())
	}
}

func TestUnusablePathsGetAShortSocket(t *testing.T) {
	for name, test := range map[string]struct{ reason, dir string }{
		"TooLong": {
			reason: "The kernel refuses socket paths of more than 107 bytes.",
			dir:    strings.Repeat("long/", 25),
		},
		"Escaped": {
			reason: "Clients take the path from a URL.",
			dir:    "with space and %",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), test.dir)
			server := mustStart(t, Options{Dir: dir})
			mustPut(t, mustConnect(t, server), "/key", "value")
			run := filepath.Dir(strings.TrimPrefix(server.Endpoint(), "unix://"))
			if strings.HasPrefix(run, dir) {
				t.Fatalf("%s\nsocket is in %s", test.reason, run)
			}
			info, err := os.Stat(run)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %v, want 0700", run, info.Mode().Perm())
			}
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(run); !os.IsNotExist(err) {
				t.Errorf("%s is still there after Close: %v", run, err)
			}
		})
	}
}

func TestNoPlaceForASocket(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("long/", 25)))
	if err := os.MkdirAll(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), "data")
	_, err := Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "choose a shorter data directory or set TMPDIR") {
		t.Errorf("got %v, want advice", err)
	}
}

// TestNothingListensOnTheNetwork compares the listening sockets of the machine with the sockets of this process.
func TestNothingListensOnTheNetwork(t *testing.T) {
	mustStart(t, Options{Dir: t.TempDir()})
	const descriptors = "/proc/self/fd"
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for _, entry := range entries {
		// A descriptor may be gone by now; then it is no listener.
		target, _ := os.Readlink(filepath.Join(descriptors, entry.Name()))
		if inode, found := strings.CutPrefix(target, "socket:["); found {
			ours[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(ours) == 0 {
		t.Fatal("this process has no sockets at all, not even the one of etcd")
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) {
			continue // No such protocol on this machine.
		}
		if err != nil {
			t.Fatal(err)
		}
		const stateColumn, inodeColumn, listening = 3, 9, "0A"
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > inodeColumn && fields[stateColumn] == listening && ours[fields[inodeColumn]] {
				t.Errorf("listening on the network: %s", lines.Text())
			}
		}
		_ = f.Close()
	}
}

// smallQuota is a server whose database is soon full, and that looks after it often.
func smallQuota(t *testing.T) *clientv3.Client {
	t.Helper()
	server := mustStart(t, Options{Dir: t.TempDir(), QuotaBytes: 4 << 20, SpaceCheckInterval: 20 * time.Millisecond})
	return mustConnect(t, server)
}

// fill writes until the quota is reached.
func fill(t *testing.T, client *clientv3.Client, key func(n int) string) {
	t.Helper()
	value := strings.Repeat("x", 100_000)
	for n := range 1000 {
		_, err := client.Put(t.Context(), key(n), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("wrote 100 MB, and the quota of 4 MiB was not reached")
}

// eventuallyPut writes as soon as etcd lets it.
func eventuallyPut(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = client.Put(ctx, key, value)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("etcd did not take writes again: %v", last)
	}
}

func TestOldVersionsMakePlaceAtTheQuota(t *testing.T) {
	client := smallQuota(t)
	mustPut(t, client, "/other", "stays")
	fill(t, client, func(int) string { return "/same" })
	eventuallyPut(t, client, "/after", "written")
	for key, length := range map[string]int{"/other": len("stays"), "/after": len("written"), "/same": 100_000} {
		if got := mustGet(t, client, key); len(got) != length {
			t.Errorf("%s has %d bytes, want %d", key, len(got), length)
		}
	}
}

func TestDeletedObjectsMakePlaceAtTheQuota(t *testing.T) {
	client := smallQuota(t)
	fill(t, client, func(n int) string { return fmt.Sprintf("/objects/%d", n) })
	if got := mustGet(t, client, "/objects/0"); len(got) != 100_000 {
		t.Errorf("reading at the quota returned %d bytes, want 100000", len(got))
	}
	if _, err := client.Put(t.Context(), "/one/more", strings.Repeat("x", 100_000)); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("writing at the quota returned %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if _, err := client.Delete(t.Context(), "/objects/", clientv3.WithPrefix()); err != nil {
		t.Fatalf("deleting at the quota: %v", err)
	}
	eventuallyPut(t, client, "/after", "written")
}

func TestFullDiskEndsTheServer(t *testing.T) {
	for name, test := range map[string]struct{ reason, role string }{
		"AtStart": {
			reason: "Without space for a log nothing can be acknowledged.",
			role:   roleFull,
		},
		"WhileWriting": {
			reason: "A write that cannot be stored must not be acknowledged, nor any after it.",
			role:   roleFill,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			output, err := childCommand(t, test.role, dir).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("%s\nprocess ended with %v, want exit code 1; its output:\n%s", test.reason, err, output)
			}
			if want := "no space left for data directory " + dir; !strings.Contains(string(output), want) {
				t.Errorf("%s\nprocess does not say %q:\n%s", test.reason, want, output)
			}
			// With space again, everything that was acknowledged is there.
			server := mustStart(t, Options{Dir: dir})
			client := mustConnect(t, server)
			for line := range strings.Lines(string(output)) {
				if key, found := strings.CutPrefix(strings.TrimSpace(line), "acknowledged "); found {
					mustGet(t, client, key)
				}
			}
		})
	}
}
