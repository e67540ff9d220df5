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

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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
			found := make(chan string, 1)
			w := &lineWriter{file: file, wanted: wanted, found: found}
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
			case got = <-found:
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

func TestStopEndsAProgramAndThoseThatItStarted(t *testing.T) {
	ended := make(chan error, 1)
	// The shell ends on SIGTERM and leaves its child behind, which prints its own process id.
	cmd := Command(t.Context(), "sh", "-c", `sh -c 'echo pid $$; trap "" TERM; while :; do sleep 1; done' & wait`)
	shell, err := Start(cmd, Options{
		Name: "shell", Log: filepath.Join(t.TempDir(), "log"),
		Wanted: func(string) bool { return true },
		OnEnd:  func(err error) { ended <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	announced, err := shell.Line(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(strings.TrimPrefix(announced, "pid "))
	if err != nil {
		t.Fatal(err)
	}

	if err := shell.Stop(time.Minute); err == nil {
		t.Error("got no error, want the signal that ended the shell")
	}

	if err := <-ended; err == nil || !strings.Contains(err.Error(), "shell ended") {
		t.Errorf("OnEnd was called with %v, want an error that names the program", err)
	}
	// A killed process is gone a moment later, and remains as a zombie where nobody reaps it.
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return slices.Contains([]string{"", "Z", "X"}, stateOf(grandchild)), nil
	})
	if err != nil {
		t.Errorf("the grandchild is in state %q after Stop, want it gone", stateOf(grandchild))
	}
}

func TestStopTellsHowTheProgramEnded(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		script string
		want   string
	}{
		"Politely": {"A program that ends with success when asked has no error.", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`, ""},
		"Failing":  {"Its exit status tells that its farewell went wrong.", `trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`, "exit status 3"},
		"Deaf":     {"One that does not listen is killed, which is a failure, too.", `trap '' TERM; echo ready; while :; do sleep 0.01; done`, "was killed"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := Start(Command(t.Context(), "sh", "-c", test.script), Options{
				Name: "shell", Log: filepath.Join(t.TempDir(), "log"), Wanted: func(line string) bool { return line == "ready" },
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := program.Line(t.Context()); err != nil {
				t.Fatal(err)
			}
			grace := time.Minute
			if name == "Deaf" {
				grace = time.Millisecond
			}
			err = program.Stop(grace)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s\ngot %v, want %q", test.reason, err, test.want)
			}
		})
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

func TestLineTellsWhyTheProgramEnded(t *testing.T) {
	program, err := Start(Command(t.Context(), "sh", "-c", "(echo one; echo two) >&2; exit 3"), Options{
		Name: "server", Log: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = program.Line(t.Context())
	if err == nil || !strings.Contains(err.Error(), "server ended: exit status 3") {
		t.Errorf("got %v, want the exit status", err)
	}
	if got := program.Tail(1); !strings.Contains(got, "last lines of server") || !strings.Contains(got, "two") || strings.Contains(got, "one") {
		t.Errorf("got %q, want the last line of the log", got)
	}
}

func TestOutput(t *testing.T) {
	got, err := Output(t.Context(), "sh", "-c", "echo fine; echo noise >&2")
	if err != nil || got != "fine\n" {
		t.Errorf("got %q and %v, want standard output alone", got, err)
	}
	_, err = Output(t.Context(), "sh", "-c", "echo the cause >&2; exit 1")
	if err == nil || !strings.Contains(err.Error(), "the cause") {
		t.Errorf("got %v, want what was printed on standard error", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the server is gone")
	cancel(gone)
	if _, err = Output(ctx, "sh", "-c", "exit 0"); !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

func TestPollAsksUntilItIsDoneFailsOrTheContextEnds(t *testing.T) {
	failure := errors.New("it fails")
	for name, tc := range map[string]struct {
		reason string
		// ends is the time at which the context ends, zero for never.
		ends time.Duration
		ask  func(n int) (bool, error)
		want error
		took time.Duration
	}{
		"Done":   {"It is asked at once.", 0, func(int) (bool, error) { return true, nil }, nil, 0},
		"Later":  {"The third time comes after two pauses.", 0, func(n int) (bool, error) { return n == 3, nil }, nil, 500 * time.Millisecond},
		"Failed": {"A failure is no reason to ask again.", 0, func(int) (bool, error) { return false, failure }, failure, 0},
		"Ended":  {"Nobody waits any more.", time.Minute, func(int) (bool, error) { return false, nil }, context.DeadlineExceeded, time.Minute},
		"Slow": {"A program that takes long has longer pauses, up to a second.", 0, func(n int) (bool, error) {
			<-time.After(200 * time.Millisecond)
			return n == 2, nil
		}, nil, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.ends > 0 {
					limited, cancel := context.WithTimeout(ctx, tc.ends)
					defer cancel()
					ctx = limited
				}
				n, began := 0, time.Now()
				err := Poll(ctx, func(context.Context) (bool, error) {
					n++
					return tc.ask(n)
				})
				if took := time.Since(began); !errors.Is(err, tc.want) || took != tc.took {
					t.Errorf("it ended after %s with %v, want %s and %v: %s", took, err, tc.took, tc.want, tc.reason)
				}
			})
		})
	}
}
