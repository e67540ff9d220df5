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

package examplehook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/process"
)

const (
	// line is how a hook begins the line that tells its port.
	line = "hook listens on port "
	// stopTimeout is more than a hook takes to stop on a busy machine.
	stopTimeout = time.Minute
)

// Start runs the script of a hook until the test ends and returns its address, to which the path is added. When the test fails,
// the end of the hook's log is part of the test's output.
func Start(t testing.TB, script string) string {
	t.Helper()
	return start(t, script, append(os.Environ(), "HOST=127.0.0.1"))
}

// start is Start with an environment.
func start(t testing.TB, script string, environment []string) string {
	t.Helper()
	command := process.Command(t.Context(), "python3", script, "0")
	command.Env = environment
	hook, err := process.Start(command, process.Options{
		Name: "the hook", Log: filepath.Join(t.TempDir(), "hook.log"),
		Wanted: func(printed string) bool { return strings.HasPrefix(printed, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hook.Stop(stopTimeout); err != nil {
			t.Errorf("stopping the hook: %v", err)
		}
		if t.Failed() {
			t.Log(hook.Tail(20))
		}
	})
	printed, err := hook.Line(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return "http://localhost:" + strings.TrimPrefix(printed, line)
}
