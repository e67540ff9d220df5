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
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// stateOf is the letter of a process's state, or empty when there is no such process.
func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(after)[0]
}
