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
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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
