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
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

// roleVariable has the test's own program be the plugin.
const roleVariable = "KUBECTL_METACONTROLLER_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// silence is a cluster that does not answer. It tells that a request came.
type silence chan struct{}

func (s silence) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	select {
	case s <- struct{}{}:
	default:
	}
	<-r.Context().Done()
}

// patience is how long a command may take to end, which is less than a request for what the cluster serves takes.
const patience = 25 * time.Second

// One interrupt ends what heeds it, and the second one all else.
func TestInterrupts(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		// again has interrupts sent until the command has ended.
		again bool
		// ended is how the command ends: by itself, with a message, or by the signal.
		ended, message string
	}{
		"a request":               {[]string{"status"}, false, "exit status 1", "Error: listing CompositeControllers: "},
		"the standard input":      {[]string{"lint", "-f", "-"}, false, "exit status 1", "Error: reading the standard input: interrupt signal received\n"},
		"what the cluster serves": {[]string{"tree", "Website.example.com/a"}, true, "signal: interrupt", ""},
	} {
		t.Run(what, func(t *testing.T) {
			came := make(silence, 1)
			command := exec.CommandContext(t.Context(), os.Args[0], append(tc.args, connectiontest.Arguments(t, came)...)...)
			command.Env = append(os.Environ(), roleVariable+"=true")
			var errOut bytes.Buffer
			command.Stderr = &errOut
			in, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- command.Wait() }()
			if tc.args[0] == "lint" {
				// More than a pipe holds: when it is written, the command reads.
				if _, err := io.WriteString(in, strings.Repeat("# nothing\n", 100_000)); err != nil {
					t.Fatal(err)
				}
			} else {
				<-came
			}
			err = interrupted(t, command, ended, tc.again)
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.String() != tc.ended {
				t.Errorf("it ended with %v, want %s", err, tc.ended)
			}
			if got := errOut.String(); !strings.HasPrefix(got, tc.message) || strings.Contains(got, "cannot be reached") {
				t.Errorf("it said %q", got)
			}
		})
	}
}

// interrupted interrupts a command, once or until it has ended, and returns how it ended.
func interrupted(t *testing.T, command *exec.Cmd, ended <-chan error, again bool) error {
	t.Helper()
	limit := time.After(patience)
	for {
		if err := command.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		var next <-chan time.Time
		if again {
			next = time.After(100 * time.Millisecond)
		}
		select {
		case err := <-ended:
			return err
		case <-next:
		case <-limit:
			_ = command.Process.Kill() // It may have ended just now.
			return errors.Join(errors.New("it did not end"), <-ended)
		}
	}
}

// A process that nohup started goes on when its terminal is closed.
func TestAHangupThatIsIgnored(t *testing.T) {
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", `trap "" HUP; exec "$0" lint -f -`, os.Args[0])
	command.Env = append(os.Environ(), roleVariable+"=true")
	var errOut bytes.Buffer
	command.Stderr = &errOut
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: when it is written, the command reads.
	if _, err := io.WriteString(in, strings.Repeat("# nothing\n", 100_000)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if err := command.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	_ = command.Wait() // What it said is looked at.
	if got := errOut.String(); got != "Error: reading the standard input: interrupt signal received\n" {
		t.Errorf("it said %q", got)
	}
}

// aliveScript is a hook that answers, and ends at last if nobody ends it.
const aliveScript = `import http.server, os, signal
signal.alarm(60)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`

// Where nobody reads the output, as after head, a hook that the command started does not stay.
func TestAnOutputThatIsClosedEndsTheHook(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"hook.py": aliveScript, "sync.request.json": "{}", "sync.response.json": "{}"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	address := freeport.Address(freeport.Find(t))
	command := exec.CommandContext(t.Context(), os.Args[0], "replay", folder,
		"--directory", folder, "--hook", "http://"+address+"/sync", "--exec", "python3 hook.py")
	command.Env = append(os.Environ(), roleVariable+"=true")
	var errOut bytes.Buffer
	command.Stdout, command.Stderr = writer, &errOut
	if err := errors.Join(reader.Close(), command.Start(), writer.Close()); err != nil {
		t.Fatal(err)
	}
	err = command.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 141 || errOut.String() != "" {
		t.Errorf("it ended with %v, and said %q", err, errOut.String())
	}
	if connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); err == nil {
		_ = connection.Close() // Nothing was sent.
		t.Error("the hook runs on")
	}
}
