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

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func TestLineWriterSendsTheFirstLineThatIsWanted(t *testing.T) {
	wanted := func(s string) bool { return strings.HasPrefix(s, "port ") }
	for name, test := range map[string]struct {
		reason string
		writes []string
		want   string
	}{
		"OneWrite":      {"The usual case: a line arrives whole.", []string{"hello\nport 1\nport 2\n"}, "port 1"},
		"BrokenLine":    {"A pipe gives no promise about where a write ends.", []string{"po", "rt", " 17", "\n"}, "port 17"},
		"UnfinishedEnd": {"A line without an end is not a line yet: its number may go on.", []string{"port 1"}, ""},
		"Nothing":       {"Other output is not taken for it.", []string{"a port 1\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Create(filepath.Join(t.TempDir(), "log"))
			if err != nil {
				t.Fatal(err)
			}
			w := &lineWriter{file: file, wanted: wanted, found: make(chan string, 1)}
			for _, s := range test.writes {
				if _, err := w.Write([]byte(s)); err != nil {
					t.Fatal(err)
				}
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			var got string
			select {
			case got = <-w.found:
			default:
			}
			if got != test.want {
				t.Errorf("%s\ngot %q, want %q", test.reason, got, test.want)
			}
			logged, err := os.ReadFile(file.Name())
			if err != nil || string(logged) != strings.Join(test.writes, "") {
				t.Errorf("the log holds %q, error %v, want everything that was written", logged, err)
			}
		})
	}
}

func TestStopEndsAProcessAndThoseThatItStarted(t *testing.T) {
	ended := make(chan error, 1)
	all := &processes{dir: t.TempDir(), ended: func(err error) { ended <- err }}
	// The shell ends on SIGTERM and leaves its child behind, which prints its own process id.
	cmd := background(t.Context(), "sh", "-c", `sh -c 'echo pid $$; trap "" TERM; while :; do sleep 1; done' & wait`)
	proc, line, err := all.start("shell", cmd, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	announced, err := proc.await(t.Context(), line)
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(strings.TrimPrefix(announced, "pid "))
	if err != nil {
		t.Fatal(err)
	}

	all.stop()

	if err := <-ended; err == nil || !strings.Contains(err.Error(), "shell ended") {
		t.Errorf("ended was called with %v, want an error that names the process", err)
	}
	// A killed process is gone a moment later, and remains as a zombie where nobody reaps it.
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return slices.Contains([]string{"", "Z", "X"}, stateOf(grandchild)), nil
	})
	if err != nil {
		t.Errorf("the grandchild is in state %q after stop, want it gone", stateOf(grandchild))
	}
}

// stateOf is the letter of a process's state, or empty when there is no such process.
func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(after)[0]
}

func TestAwaitTellsWhyTheProcessEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	all := &processes{dir: t.TempDir(), ended: cancel}
	proc, line, err := all.start("server", background(ctx, "sh", "-c", "(echo one; echo two) >&2; exit 3"), func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	_, err = proc.await(ctx, line)
	if err == nil || !strings.Contains(err.Error(), "server ended on its own: exit status 3") {
		t.Errorf("got %v, want the exit status", err)
	}
	if got := all.tails(1); !strings.Contains(got, "last lines of server") || !strings.Contains(got, "two") || strings.Contains(got, "one") {
		t.Errorf("got %q, want the last line of the log", got)
	}
	all.stop()
}

func TestOutput(t *testing.T) {
	got, err := output(t.Context(), "sh", "-c", "echo fine; echo noise >&2")
	if err != nil || got != "fine\n" {
		t.Errorf("got %q and %v, want standard output alone", got, err)
	}
	_, err = output(t.Context(), "sh", "-c", "echo the cause >&2; exit 1")
	if err == nil || !strings.Contains(err.Error(), "the cause") {
		t.Errorf("got %v, want what was printed on standard error", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the server is gone")
	cancel(gone)
	if _, err = output(ctx, "sh", "-c", "exit 0"); !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

func TestChoosePort(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	busy, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := choosePort(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("got %v for a port in use, want a sentence that says so", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if port, err := choosePort(t.Context(), busy); err != nil || port != busy {
		t.Errorf("got %d and %v, want the free port asked for", port, err)
	}
	if port, err := choosePort(t.Context(), 0); err != nil || port == 0 {
		t.Errorf("got %d and %v, want a free port", port, err)
	}
	if _, err := choosePort(t.Context(), 70000); err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v for a port that does not exist, want an error", err)
	}
}
