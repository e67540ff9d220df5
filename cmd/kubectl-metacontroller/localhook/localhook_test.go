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

package localhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/test/freeport"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddresses(t *testing.T) {
	for given, want := range map[string]map[string]string{
		"http://localhost:8080/sync": {
			Sync: "http://localhost:8080/sync", Finalize: "http://localhost:8080/finalize", Customize: "http://localhost:8080/customize",
		},
		"http://h/a/sync finalize=https://other/f": {Sync: "http://h/a/sync", Finalize: "https://other/f", Customize: "http://h/a/customize"},
		"http://h/":                 {Sync: "http://h/"},
		"http://h/sync?a=b":         {Sync: "http://h/sync?a=b", Finalize: "http://h/finalize?a=b", Customize: "http://h/customize?a=b"},
		"finalize=http://h/f?sync=": {Finalize: "http://h/f?sync="},
	} {
		h, err := New(strings.Fields(given))
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		got := map[string]string{}
		for name, address := range h.addresses {
			got[name] = address.String()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
	}
	for given, want := range map[string]string{
		"localhost:8080":      "is no address",
		"/sync":               "is no address",
		"presync=http://h":    "is no address",
		"http://a http://b":   "two addresses of the sync hook",
		"sync=http://a ftp:/": "is no address",
	} {
		if _, err := New(strings.Fields(given)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", given, err, want)
		}
	}
}

func TestCalls(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sync":
			fmt.Fprint(w, `{"children":[]}`)
		case "/finalize":
			http.Error(w, "no\nluck", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, "children: []")
		}
	}))
	h, err := New([]string{server.URL + "/sync"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Call(t.Context(), Sync, []byte(`{}`)); err != nil || string(got) != `{"children":[]}` {
		t.Errorf("got %s, %v", got, err)
	}
	for name, want := range map[string]string{Finalize: "/finalize returned status 500: no luck", Customize: "returned no JSON: children: []"} {
		if _, err := h.Call(t.Context(), name, []byte(`{}`)); err == nil || !strings.HasSuffix(err.Error(), want) || IsUnreachable(err) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	server.Close()
	if _, err := h.Call(t.Context(), Sync, nil); !IsUnreachable(err) || !strings.Contains(err.Error(), "have it started with --exec") {
		t.Errorf("nothing listens: %v", err)
	}
	h, err = New([]string{"http://h/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Call(t.Context(), Finalize, nil); err == nil || !strings.Contains(err.Error(), "--hook finalize=URL") {
		t.Errorf("it is not known where it is: %v", err)
	}
}

// A server waits as long as the controller in the request says, calls again whoever asks for that, and does not leave the hook's host.
func TestAHookIsCalledAsAServerDoes(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }))
	t.Cleanup(elsewhere.Close)
	for what, tc := range map[string]struct {
		hook http.HandlerFunc
		want string
	}{
		"a slow response": {
			func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // Who has not read the request does not notice that its client goes.
				<-r.Context().Done()
			},
			"no response within 50ms, and a server waits no longer: make the hook faster, or set webhook.timeout of the sync hook, which is 10s by default",
		},
		"a slow body": {
			func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, `{`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
			"no response within 50ms",
		},
		"429":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, "asks to be called later (status 429), which a server does"},
		"503 with a time":    {hooktest.RetryLater(http.StatusServiceUnavailable, "5").ServeHTTP, "asks to be called later (status 503), which a server does"},
		"503 without a time": {hooktest.RetryLater(http.StatusServiceUnavailable, "").ServeHTTP, "returned status 503"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "which a server does not follow"},
		"redirects for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/sync", http.StatusTemporaryRedirect)
		}, "stopped after 10 redirects"},
		"a redirect that ends": {
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/sync" {
					http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
				}
				fmt.Fprint(w, `{}`)
			}, "",
		},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(tc.hook)
			t.Cleanup(server.Close)
			h, err := New([]string{server.URL + "/sync"})
			if err != nil {
				t.Fatal(err)
			}
			timeout := "1m" // Long enough for what responds.
			if strings.HasPrefix(tc.want, "no response within 50ms") {
				timeout = "50ms"
			}
			_, err = h.Call(t.Context(), Sync, fmt.Appendf(nil, `{"controller":{"spec":{"hooks":{"sync":{"webhook":{"timeout":%q}}}}}}`, timeout))
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if limit := limitOf(Sync, []byte(`{"controller":{"spec":{"hooks":{"finalize":{"webhook":{"timeout":"50ms"}}}}}}`)); limit != webhook.DefaultTimeout {
		t.Errorf("a hook without a timeout may take %s, want %s", limit, webhook.DefaultTimeout)
	}
}

func TestLargeResponses(t *testing.T) {
	const large = 4 << 20 // More than an API server takes in a request.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := large
		if r.URL.Path == "/finalize" {
			size = webhook.DefaultMaxResponseBytes + 1
		}
		fmt.Fprint(w, `{}`, strings.Repeat(" ", size-len(`{}`)))
	}))
	t.Cleanup(server.Close)
	h, err := New([]string{server.URL + "/sync"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Call(t.Context(), Sync, []byte(`{}`)); err != nil || len(got) != large {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, large)
	}
	want := fmt.Sprintf("more than %d bytes, which is the most that a server takes without --hook-response-limit", webhook.DefaultMaxResponseBytes)
	if _, err := h.Call(t.Context(), Finalize, []byte(`{}`)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// freeAddress returns an address at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "http://" + freeport.Address(freeport.Find(t)) + "/sync"
}

// hookScript responds with the text of a file, which it reads when it starts.
const hookScript = `import http.server, os, sys
text = open("response.json", "rb").read()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args):
        pass
http.server.HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
`

func hookFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	write(t, folder, "hook.py", hookScript)
	write(t, folder, "response.json", `{"n": 1}`)
	return folder
}

func write(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flagsOf(t *testing.T, args ...string) *Flags {
	t.Helper()
	f := &Flags{}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Add(set)
	f.AddWatch(set, "do it")
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

// The shell that starts the hook, and the hook, have ended when the use has, so that the port is free. Some shells have a HOST of their own.
func TestAHookIsStartedAndEnded(t *testing.T) {
	t.Setenv("HOST", "x86_64-linux-gnu")
	folder, address := hookFolder(t), freeAddress(t)
	for range 2 {
		var got []byte
		err := flagsOf(t, "--hook", address, "--exec", "python3 hook.py; true", "--directory", folder).Run(t.Context(), os.Stderr,
			func(ctx context.Context, h *Hook) (err error) {
				if _, err := h.Call(ctx, "my", nil); err == nil || !strings.Contains(err.Error(), "sync-my.request.json: rename it") {
					t.Errorf("got %v for a hook that nobody has", err)
				}
				got, err = h.Call(ctx, Sync, []byte(`{}`))
				return err
			})
		if err != nil || string(got) != `{"n": 1}` {
			t.Fatalf("got %s, %v", got, err)
		}
	}
}

// What a hook prints is there, though it has no terminal and is ended before it writes out what it keeps.
func TestWhatAHookPrintsIsNotKept(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "hook.py", strings.Replace(hookScript, "def do_POST(self):\n", "def do_POST(self):\n        print('called')\n", 1))
	write(t, folder, "response.json", `{}`)
	var out bytes.Buffer
	err := flagsOf(t, "--hook", freeAddress(t), "--exec", "python3 hook.py", "--directory", folder).Run(t.Context(), &out,
		func(ctx context.Context, h *Hook) error {
			_, err := h.Call(ctx, Sync, []byte(`{}`))
			return err
		})
	if err != nil || out.String() != "called\n" {
		t.Errorf("it printed %q, error %v", out.String(), err)
	}
}

func TestAHookThatDoesNotStart(t *testing.T) {
	var out bytes.Buffer
	use := func(context.Context, *Hook) error { return errors.New("it was used") }
	err := flagsOf(t, "--hook", freeAddress(t), "--exec", "echo no luck; exit 3").Run(t.Context(), &out, use)
	if err == nil || !strings.Contains(err.Error(), "it ended before it listened (exit status 3)") || out.String() != "no luck\n" {
		t.Errorf("got %v, and it printed %q", err, out.String())
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	err = flagsOf(t, "--hook", server.URL, "--exec", "true").Run(t.Context(), &out, use)
	if err == nil || !strings.Contains(err.Error(), "listens at "+server.Listener.Addr().String()+" already") {
		t.Errorf("another one listens: %v", err)
	}
	err = flagsOf(t, "--watch", "--directory", filepath.Join(t.TempDir(), "nothing")).Run(t.Context(), &out, use)
	if err == nil || !strings.Contains(err.Error(), "--directory") {
		t.Errorf("no such folder: %v", err)
	}
}

// A change of a file, also in a folder that was made meanwhile, restarts the hook; what programs write when they run does not.
func TestAWatchedHookIsStartedAgainAfterChanges(t *testing.T) {
	folder, address := hookFolder(t), freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	used := make(chan string)
	var running sync.WaitGroup
	var ended error
	var out bytes.Buffer
	running.Go(func() {
		defer close(used)
		ended = flagsOf(t, "--hook", address, "--exec", "python3 hook.py", "--directory", folder, "--watch").Run(ctx, &out,
			func(ctx context.Context, h *Hook) error {
				got, err := h.Call(ctx, Sync, []byte(`{}`))
				used <- string(got)
				if err != nil {
					return err
				}
				return errors.New("what a use returns is printed")
			})
	})
	wait := func(want string) {
		t.Helper()
		if got, ok := <-used; !ok || got != want {
			t.Errorf("got %q, %t, want %q", got, ok, want)
		}
	}
	wait(`{"n": 1}`)
	write(t, folder, "hook.pyc", "x")
	write(t, folder, "response.json", `{"n": 2}`)
	wait(`{"n": 2}`)
	if err := os.Mkdir(filepath.Join(folder, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	wait(`{"n": 2}`)
	write(t, filepath.Join(folder, "sub"), "more.py", "")
	wait(`{"n": 2}`)
	cancel()
	running.Wait()
	if ended != nil {
		t.Errorf("it ended with %v", ended)
	}
	for _, want := range []string{"Error: what a use returns is printed\n", "Changed: response.json\n", "Changed: sub\n", "Changed: sub/more.py\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestHooksArePointedAtAnAddress(t *testing.T) {
	for what, tc := range map[string]struct{ webhook, want, local string }{
		"a Service":           {`{"service":{"name":"web"},"path":"sync","timeout":"3s"}`, `{"timeout":"3s","url":"http://localhost:1/sync"}`, ""},
		"a URL in a cluster":  {`{"url":"https://web.shop:8443/sync?a=b"}`, `{"url":"http://localhost:1/sync?a=b"}`, ""},
		"on this machine":     {`{"url":"http://localhost:8080/sync"}`, `{"url":"http://localhost:1/sync"}`, "http://localhost:8080"},
		"of another loopback": {`{"url":"http://127.0.0.1:8080/sync"}`, `{"url":"http://localhost:1/sync"}`, "http://127.0.0.1:8080"},
		// The server says that the scheme is missing.
		"no URL": {`{"url":"localhost:8080/sync"}`, `{"url":"localhost:8080/sync"}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			controller := decoded(t, `{"spec":{"hooks":{"sync":{"webhook":`+tc.webhook+`},"finalize":{}}}}`)
			if got := AddressOf(controller); got != tc.local {
				t.Errorf("the address is %q, want %q", got, tc.local)
			}
			if _, err := PointAt(controller, "http://localhost:1"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, `{"spec":{"hooks":{"sync":{"webhook":`+tc.want+`},"finalize":{}}}}`), controller); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if _, err := PointAt(map[string]any{"spec": map[string]any{"hooks": true}}, "http://localhost:1"); err == nil {
		t.Error("hooks that are none are no error")
	}
}

func decoded(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// An author edits a file when all is quiet, and ends the command when all is quiet again.
type author struct {
	bytes.Buffer

	folder string
	end    context.CancelFunc
	quiet  int
}

func (a *author) Write(text []byte) (int, error) {
	if strings.HasPrefix(string(text), "Waiting for changes") {
		if a.quiet++; a.quiet > 1 {
			a.end()
		} else if err := os.WriteFile(filepath.Join(a.folder, "edited.py"), []byte("1"), 0o600); err != nil {
			return 0, err
		}
	}
	return a.Buffer.Write(text)
}

// A hook that writes files when it is started or called is not started again for ever: each row has the changes that are told.
func TestWhatAHookWritesIsNoEdit(t *testing.T) {
	const run = "exec python3 hook.py"
	for what, tc := range map[string]struct {
		exec string
		// called is a file to which each call appends.
		called string
		want   []string
	}{
		"a program": {exec: "printf '\\000' > program; " + run, want: []string{"edited.py"}},
		// As far as is known, its author has written it.
		"a text":                 {exec: "cp hook.py built.py; " + run, want: []string{"built.py", "edited.py"}},
		"another text each time": {exec: "date +%s%N > stamp; " + run, want: []string{"stamp", "stamp", "stamp", "edited.py"}},
		"and then it ends":       {exec: "printf '\\000' > program; exit 3", want: []string{"edited.py"}},
		"a text with each call":  {exec: run, called: "calls", want: []string{"calls", "calls", "calls", "edited.py"}},
		"a log":                  {exec: run, called: "hook.log", want: []string{"edited.py"}},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := &author{folder: hookFolder(t), end: cancel}
			err := flagsOf(t, "--hook", freeAddress(t), "--exec", tc.exec, "--directory", a.folder, "--watch").Run(ctx, a,
				func(context.Context, *Hook) error { return appendTo(a.folder, tc.called) })
			if err != nil {
				t.Fatal(err)
			}
			var told []string
			for line := range strings.Lines(a.String()) {
				if names, ok := strings.CutPrefix(line, "Changed: "); ok {
					told = append(told, strings.TrimSpace(names))
				}
			}
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// appendTo appends to a file in a folder, if it has a name.
func appendTo(folder, name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("called\n")
	return errors.Join(err, f.Close())
}

// What an author saves while the hook is used is not lost, however often he does.
func TestEditsDuringUses(t *testing.T) {
	folder := t.TempDir()
	e := NewEdits()
	start := func(what, name, text string, want bool) {
		t.Helper()
		write(t, folder, name, text)
		if got := slices.Contains(e.DuringUse(folder, []string{name}), name); got != want {
			t.Errorf("%s: it is an edit: %t, want %t", what, got, want)
		}
	}
	write(t, folder, "hook.py", "0")
	e.ByAuthor(folder, []string{"hook.py"})
	for range maxRepeats {
		start("a text that every use changes", "stamp", strings.Repeat("x", e.repeats), true)
	}
	start("a text that every use changes, still", "stamp", "y", false)
	for _, text := range []string{"1", "2", "3", "4", "5"} {
		start("what is saved often", "hook.py", text, true)
	}
	start("what is saved as it is", "hook.py", "5", false)
	start("what is saved then", "hook.py", "6", true)
	write(t, folder, "hook.py", "7")
	e.ByAuthor(folder, []string{"hook.py"})
	start("what is taken back", "hook.py", "6", true)
	write(t, folder, "stamp", "z")
	e.ByAuthor(folder, []string{"stamp"})
	start("what the author edits after all", "stamp", "a", true)
}

func TestMoreChangesThanCanBeToldAreAChange(t *testing.T) {
	folder := t.TempDir()
	for what, tc := range map[string]struct {
		of   error
		want []string
	}{
		"an overflow":   {fsnotify.ErrEventOverflow, []string{many}},
		"another error": {errors.New("no luck"), nil},
	} {
		t.Run(what, func(t *testing.T) {
			w, err := NewWatch(folder)
			if err != nil {
				t.Fatal(err)
			}
			go func() { w.watcher.Errors <- tc.of }()
			names, err := w.Wait(t.Context())
			if diff := cmp.Diff(tc.want, names); diff != "" || (err != nil) != (tc.want == nil) {
				t.Errorf("error %v, -want +got:\n%s", err, diff)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatIsIgnored(t *testing.T) {
	for path, want := range map[string]bool{
		".": false, "manifests": false, "a/../manifests": false, "dist/manifests": false,
		".k8s": true, ".k8s/base": true, "base/.k8s": true, "vendor": true, "a/vendor/b": true, "target/debug": true, "a.tmp": true, "hook.log": true,
	} {
		if got := Ignores(path); got != want {
			t.Errorf("%s: it is ignored: %t, want %t", path, got, want)
		}
	}
}

// Without --hook, the usual port may be that of another hook, such as one that make run started.
func TestAHookIsStartedAtAFreePort(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:8080")
	if err == nil { // Else another program listens there, which is as well.
		t.Cleanup(func() { _ = listener.Close() })
	}
	var got []byte
	err = flagsOf(t, "--exec", "python3 hook.py", "--directory", hookFolder(t)).Run(t.Context(), os.Stderr, func(ctx context.Context, h *Hook) (err error) {
		got, err = h.Call(ctx, Sync, []byte(`{}`))
		return err
	})
	if err != nil || string(got) != `{"n": 1}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// Beside a file that is watched, others change, and editors write another file in its place.
func TestOneFileIsWatched(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "controller.yaml")
	write(t, folder, "controller.yaml", "a")
	if err := os.Mkdir(filepath.Join(folder, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := NewWatch(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, "notes.yaml", "b")
	write(t, folder, "other/controller.yaml", "b")
	write(t, folder, "controller.new", "b")
	if err := os.Rename(filepath.Join(folder, "controller.new"), file); err != nil {
		t.Fatal(err)
	}
	names, err := w.Wait(t.Context())
	if diff := cmp.Diff([]string{"controller.yaml"}, names); diff != "" || err != nil || w.Folder() != folder {
		t.Errorf("in %s, error %v, -want +got:\n%s", w.Folder(), err, diff)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
