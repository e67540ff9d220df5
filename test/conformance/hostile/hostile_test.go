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

// Package hostile runs fifty controllers whose hooks do what hooks must not do, beside one whose hook is as it should be, with the server's
// binary on a real control plane: the healthy one goes on, each of the others says what is wrong with it, nothing that the server writes
// shows the credentials that its hooks were sent, and no request reaches a place where no hook may be.
package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	limit = cluster.Limit
	// hangTimeout is the timeout of the hooks that hang. The others have one that no busy machine reaches.
	hangTimeout, hookTimeout = time.Second, time.Minute
	// token is what hooks are sent, and nobody is shown.
	token = "s3cr3t-0f-all-h00ks"
	// parents and rounds are what the healthy controller has to do meanwhile.
	parents, rounds = 4, 10
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestFiftyHostileHooks is about docs/reference/compatibility.md#d2.2.
func TestFiftyHostileHooks(t *testing.T) {
	figures := report.For(t, report.HostileHooks)
	s := fixture.SetUp(t, fixture.Options{Limit: limit, Server: limited()})
	hostile, other := &stage{s.NewTest(t)}, hooktest.NewServer(t)
	work := newWork(s.NewTest(t))
	work.converge(0)
	alone := work.latency("alone")

	hostile.secret("login", token)
	hostile.secret("smuggled", token+"\r\nX-Admin: "+token)
	var running []runningHook
	for _, h := range hostileHooks(t, s.Server.Port(), other) {
		for i := range h.copies {
			running = append(running, hostile.run(&h, i))
		}
	}
	if len(running) != 50 {
		t.Fatalf("%d hostile hooks", len(running))
	}
	for round := range rounds {
		work.converge(round + 1)
	}
	beside := work.latency("beside")
	for _, r := range running {
		r.controller.AwaitStatus("what is wrong: "+r.hook.want, func(status *v1alpha1.ControllerStatus) bool {
			return strings.Contains(said(status), r.hook.want)
		})
	}
	work.converge(rounds + 1)
	work.controller.AwaitStatus("no failure", func(status *v1alpha1.ControllerStatus) bool { return len(status.LastErrors) == 0 })
	select {
	case <-s.Server.Ended():
		t.Fatal("the server ended")
	default:
	}
	work.compare(figures, alone, beside)
	if n := len(other.Requests("/sync")); n > 0 {
		t.Errorf("another server got %d requests", n)
	}
	for what, text := range hostile.written() {
		for _, form := range []string{token, base64.StdEncoding.EncodeToString([]byte(token)), token[:10]} {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("%s shows a credential: %q", what, text[max(0, at-200):min(len(text), at+60)])
			}
		}
	}
}

// stage has the hostile hooks.
type stage struct{ *fixture.Test }

// runningHook is a hostile hook with its controller.
type runningHook struct {
	hook       hostileHook
	controller *controllers.Controller
}

func (s *stage) secret(name, value string) {
	s.T.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"token": value}}
	if _, err := s.Kube.CoreV1().Secrets(s.Namespace).Create(s.T.Context(), o, metav1.CreateOptions{}); err != nil {
		s.T.Fatalf("creating secret %s: %v", name, err)
	}
}

// run creates a controller of a hostile hook, and a parent of its own.
func (s *stage) run(h *hostileHook, i int) runningHook {
	s.T.Helper()
	name := fmt.Sprintf("%s-%s-%d", s.Name, h.name, i)
	selector := map[string]string{fixture.Label: name}
	login := h.login
	if login == "" {
		login = "login"
	}
	timeout := hookTimeout
	if h.hangs {
		timeout = hangTimeout
	}
	sync := &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{
		URL: new(h.at(s.Test)), Timeout: &metav1.Duration{Duration: timeout},
		WebhookSecurity: v1alpha1.WebhookSecurity{Authorization: &v1alpha1.WebhookAuthorization{
			SecretRef: v1alpha1.SecretKeyReference{Namespace: s.Namespace, Name: login, Key: "token"},
		}},
	}}
	controller := s.Declare(fixture.Definition{Kind: fixture.Composite, Name: name, Selector: selector, Sync: sync})
	s.CreateIn(s.Namespace, fixture.Things, h.name+"-"+strconv.Itoa(i), map[string]any{"spec": map[string]any{}}, selector)
	return runningHook{*h, controller}
}

// said is what the status of a controller says is wrong.
func said(status *v1alpha1.ControllerStatus) string {
	var texts []string
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionFalse {
			texts = append(texts, c.Message)
		}
	}
	for _, e := range status.LastErrors {
		texts = append(texts, e.Message)
	}
	return strings.Join(texts, "\n")
}

// written is all that the server has written, by what it is.
func (s *stage) written() map[string]string {
	s.T.Helper()
	found := map[string]string{}
	keep := func(what string, value any, err error) {
		if err != nil {
			s.T.Fatalf("reading %s: %v", what, err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			s.T.Fatalf("reading %s: %v", what, err)
		}
		if len(text) < 1000 {
			s.T.Errorf("%s: there is next to nothing: %s", what, text)
		}
		found[what] = string(text)
	}
	everywhere := metav1.ListOptions{}
	events, err := s.Kube.CoreV1().Events(metav1.NamespaceAll).List(s.T.Context(), everywhere)
	keep("an event", events, err)
	objects, err := s.Versioned.MetacontrollerV1alpha1().CompositeControllers().List(s.T.Context(), everywhere)
	keep("a controller", objects, err)
	things, err := s.Dynamic.Resource(fixture.Things).Namespace(metav1.NamespaceAll).List(s.T.Context(), everywhere)
	keep("a parent", things, err)
	if s.Server.ServesAPI() {
		keep("the subresource parents", s.parentsOf(objects.Items), nil)
	}
	metrics, err := s.Server.Read(s.T.Context(), "/metrics")
	keep("a metric", metrics, err)
	log, err := os.ReadFile(s.Server.Log())
	keep("the log", string(log), err)
	return found
}

// parentsOf returns what the server says of the parents of controllers.
func (s *stage) parentsOf(controllers []v1alpha1.CompositeController) string {
	s.T.Helper()
	var states strings.Builder
	for i := range controllers {
		o := &controllers[i]
		raw, err := s.Versioned.MetacontrollerV1alpha1().RESTClient().Get().
			Resource("compositecontrollers").Name(o.Name).SubResource("parents").DoRaw(s.T.Context())
		if err != nil {
			s.T.Fatalf("reading the parents of %s: %v", o.Name, err)
		}
		states.Write(raw)
	}
	return states.String()
}

// work is a controller with a hook as it should be: each parent has a ConfigMap with the parent's value.
type work struct {
	*fixture.Test

	controller *controllers.Controller
}

func newWork(test *fixture.Test) *work {
	test.T.Helper()
	test.Hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: []*hook.Object{
			fixture.ConfigMap(q.Parent.GetName(), map[string]any{"value": fixture.Value(q.Parent, "spec", "value")}),
		}}, nil
	}))
	return &work{test, test.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: test.At("/sync"),
		Children: []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
	})}
}

// converge changes all parents, and waits until their children are as they want. In the round 0 it creates them.
func (w *work) converge(round int) {
	w.T.Helper()
	value := strconv.Itoa(round)
	for i := range parents {
		name := "p" + strconv.Itoa(i)
		if round == 0 {
			w.Parent(name, map[string]any{"value": value})
		} else {
			w.Patch(fixture.Things, name, `{"spec":{"value":"`+value+`"}}`)
		}
	}
	for i := range parents {
		w.Await(fixture.ConfigMaps, "p"+strconv.Itoa(i), "to have the value "+value, func(o *unstructured.Unstructured) bool {
			return fixture.Value(o, "data", "value") == value
		})
	}
}

const (
	// memory is what the server gets in the long form, and collected the size from which on it collects garbage more often.
	memory, collected = 512 << 20, "GOMEMLIMIT=400MiB"
	// samples is how many changes are timed in the long form.
	samples = 200
	// slower is how much slower the healthy controller may be beside hostile hooks.
	slower = 2
)

// limited are the options of the server. With the race detector it needs more memory, so that only the long form has a limit.
func limited() server.Options {
	if !report.Long() {
		return server.Options{}
	}
	return server.Options{Memory: memory, Env: []string{collected}}
}

// latency changes a parent again and again, and returns how long its child took to follow, sorted. In the short form that is not timed.
func (w *work) latency(value string) []time.Duration {
	w.T.Helper()
	if !report.Long() {
		return nil
	}
	const name = "p0"
	events, err := w.Resource(fixture.ConfigMaps).Watch(w.T.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.T.Fatal(err)
	}
	defer events.Stop()
	took := make([]time.Duration, samples)
	for i := range took {
		want := fmt.Sprintf("%s %d", value, i)
		began := time.Now()
		w.Patch(fixture.Things, name, `{"spec":{"value":"`+want+`"}}`)
		for followed := false; !followed; {
			select {
			case e := <-events.ResultChan():
				child, ok := e.Object.(*unstructured.Unstructured)
				followed = ok && fixture.Value(child, "data", "value") == want
			case <-time.After(limit):
				w.T.Fatalf("the child did not follow within %s", limit)
			}
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took
}

// compare says how the healthy controller was doing, and fails the test if it was slowed down too much.
func (w *work) compare(figures *report.Figures, alone, beside []time.Duration) {
	w.T.Helper()
	if !report.Long() {
		return
	}
	shown := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	median, tail := samples/2, samples*95/100
	if beside[median] > slower*alone[median] {
		w.T.Errorf("the healthy controller took %s beside hostile hooks, and %s alone", shown(beside[median]), shown(alone[median]))
	}
	figures.Sayf("a child of the healthy controller followed in %s, 95%% in %s, and alone in %s, 95%% in %s (median of %d)",
		shown(beside[median]), shown(beside[tail]), shown(alone[median]), shown(alone[tail]), samples)
	figures.Sayf("at most %d MiB of memory, files in the kernel's cache among them", w.Server.PeakMemory()>>20)
}

// TestAHookThatHoldsTheBudgetLeavesRoomForOthers has a hook whose responses of 32 MiB never end, more of them than the budget has room
// for, beside a healthy controller whose responses need room too.
func TestAHookThatHoldsTheBudgetLeavesRoomForOthers(t *testing.T) {
	const budget, response, calls = 128 << 20, 32 << 20, 6
	s := fixture.SetUp(t, fixture.Options{Limit: limit, Server: server.Options{Args: []string{"--hook-response-budget", strconv.Itoa(budget)}}})
	hostile := s.NewTest(t)
	healthy := newLargeWork(s.NewTest(t))
	healthy.converge(0)

	hostile.Hook.Handle("/claim", hooktest.HugeClaim(response))
	sync := hostile.At("/claim")
	sync.Webhook.Timeout = &metav1.Duration{Duration: time.Hour}
	hostile.Declare(fixture.Definition{Kind: fixture.Composite, Sync: sync})
	for i := range calls {
		hostile.Parent(fmt.Sprintf("p%d", i), nil)
	}
	// As much as one controller gets, with more of its calls waiting. They are not over when the healthy one has done its work.
	const most = budget * 3 / 4
	held := func() {
		t.Helper()
		text := ""
		cluster.Eventually(t, limit, "the budget to be used", func(ctx context.Context) (bool, string) {
			page, err := s.Server.Metrics(ctx, "metacontroller_hook_response_bytes")
			if err != nil {
				return false, err.Error()
			}
			used, _ := page.Value("metacontroller_hook_response_bytes")
			text = fmt.Sprintf("%.0f bytes are held, and %d calls were made", used, len(hostile.Hook.Requests("/claim")))
			return used >= most && len(hostile.Hook.Requests("/claim")) == calls, text
		})
		t.Log(text)
	}
	held()
	for round := range rounds {
		healthy.converge(round + 1)
	}
	held()
	healthy.controller.AwaitStatus("no failure", func(status *v1alpha1.ControllerStatus) bool { return len(status.LastErrors) == 0 })
}

// newLargeWork is newWork with responses that need room in the budget.
func newLargeWork(test *fixture.Test) *work {
	test.T.Helper()
	w := newWork(test)
	padding := strings.Repeat("x", 100<<10)
	test.Hook.Handle("/sync", hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: []*hook.Object{
			fixture.ConfigMap(q.Parent.GetName(), map[string]any{"value": fixture.Value(q.Parent, "spec", "value"), "padding": padding}),
		}}, nil
	}))
	return w
}

// hostileHook is a hook that does what it must not do.
type hostileHook struct {
	// name is a part of the controller's.
	name string
	// copies is how many controllers have such a hook.
	copies int
	// serves is what the hook does. Nil: the URL is somewhere else.
	serves http.Handler
	// url is where the hook is, if it is not served over plain HTTP.
	url string
	// login is the Secret with the token that the hook is sent. Empty: that of the others.
	login string
	// hangs says that only the timeout ends a call.
	hangs bool
	// want is in the condition or the last error of the controller.
	want string
}

const (
	// tooLarge is what is said of a response above the limit.
	tooLarge = "the response is larger than the limit of 33554432 bytes"
	// away is what is said of a redirect to another place.
	away = "which has another scheme, host or port; redirects there are never followed"
	// nowhere is what is said of a place where no flag allows a hook.
	nowhere = "this server calls no hook there, and no flag allows it"
	// endless is more than any server takes.
	endless = 33 << 20
)

// hostileHooks are fifty of them. The other server is one that no request may reach.
func hostileHooks(t *testing.T, server int, other *hooktest.Server) []hostileHook {
	t.Helper()
	expired := hooktest.NewServer(t, hooktest.WithExpiredCertificate())
	stranger := hooktest.NewServer(t, hooktest.WithCertificateFor("hook.example.com"))
	demanding := hooktest.NewServer(t, hooktest.WithClientCertificates())
	http2 := hooktest.NewServer(t, hooktest.WithHTTP2())
	plain := hooktest.NewServer(t)
	return []hostileHook{
		{name: "huge", copies: 2, serves: slowly(hooktest.Huge(endless)), want: tooLarge},
		{name: "claim", copies: 2, serves: hooktest.HugeClaim(endless), want: tooLarge},
		{name: "bomb", copies: 1, serves: slowly(bomb()), want: tooLarge},
		{name: "full", copies: 1, serves: slowly(hooktest.Huge(4 << 20)), want: "too large"},
		{name: "drip", hangs: true, copies: 4, serves: hooktest.SlowDrip(10 * time.Millisecond), want: "the response was not complete within 1s"},
		{name: "hang", hangs: true, copies: 5, serves: hooktest.Hang(), want: "connected, but no response within 1s"},
		{name: "headers", copies: 2, serves: slowly(hooktest.EndlessHeaders()), want: "the headers of the response exceed 1048576 bytes"},
		{name: "slow-headers", hangs: true, copies: 3, serves: slowHeaders(), want: "the response was not complete within 1s"},
		{name: "metadata", copies: 6, serves: http.RedirectHandler("http://169.254.169.254/latest/", http.StatusTemporaryRedirect), want: away},
		{name: "elsewhere", copies: 2, serves: http.RedirectHandler(other.URL("/sync"), http.StatusPermanentRedirect), want: away},
		{name: "elsewhere-get", copies: 2, serves: http.RedirectHandler(other.URL("/sync"), http.StatusSeeOther), want: away},
		{name: "loop", copies: 1, serves: hooktest.RedirectLoop(), want: "stopped after 10 redirects"},
		{name: "link-local", copies: 1, url: "https://169.254.169.254/latest/", want: nowhere},
		{name: "mapped", copies: 1, url: "https://[::ffff:169.254.169.254]/latest/", want: nowhere},
		{name: "unspecified", copies: 1, url: "https://0.0.0.0/sync", want: nowhere},
		{name: "itself", copies: 1, url: fmt.Sprintf("https://127.0.0.1:%d/sync", server), want: "is this server itself; " + nowhere},
		{name: "expired", copies: 1, url: expired.URL("/sync"), want: "certificate has expired or is not yet valid"},
		{name: "stranger", copies: 1, url: stranger.URL("/sync"), want: "cannot validate certificate"},
		{name: "demanding", copies: 1, url: demanding.URL("/sync"), want: "certificate signed by unknown authority"},
		{name: "http2", copies: 1, url: http2.URL("/sync"), want: "certificate signed by unknown authority"},
		{name: "no-tls", copies: 1, url: "https://" + plain.Host() + "/sync", want: "the hook does not speak TLS"},
		{name: "tls", copies: 1, url: "http://" + http2.Host() + "/sync", want: "the port speaks TLS"},
		{name: "closed", copies: 1, serves: hooktest.Closed(), want: "closed the connection before its response was complete"},
		{name: "not-http", copies: 1, serves: hooktest.NotHTTP(), want: "the response is not HTTP"},
		{name: "binary", copies: 1, serves: binary(), want: `500 body: (not shown, since its Content-Type is "image/png")`},
		{name: "echo", copies: 2, serves: echo(http.StatusInternalServerError), want: "500 body: Bearer (hidden)"},
		{name: "echo-page", copies: 1, serves: echo(http.StatusOK), want: `it begins with "Bearer (hidden)`},
		{name: "echo-after", copies: 1, serves: echoAfter(), want: "unsupported status code: 500 body:"},
		{name: "deep", copies: 1, serves: hooktest.Hostile()["DeepNesting"], want: "exceeded max depth"},
		{name: "smuggle", copies: 1, serves: hooktest.Body("", "{}"), login: "smuggled", want: "key token holds characters that no header may hold"},
	}
}

// at returns the URL of a hook, which the case serves if it is not anywhere else.
func (h *hostileHook) at(test *fixture.Test) string {
	if h.serves == nil {
		return h.url
	}
	test.Hook.Handle("/"+h.name, h.serves)
	return test.Hook.URL("/" + h.name)
}

// slowly lets a hook that costs much be called no more often than it needs to be seen.
func slowly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(3 * time.Second)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
		case <-timer.C:
			handler.ServeHTTP(w, r)
		}
	})
}

// bomb returns a small body that becomes a large one.
func bomb() http.Handler {
	// To pack it costs more than to call all other hooks.
	packed := sync.OnceValues(func() ([]byte, error) {
		var body bytes.Buffer
		packing := gzip.NewWriter(&body)
		block := []byte(strings.Repeat(" ", 64<<10))
		for sent := 0; sent < endless; sent += len(block) {
			if _, err := packing.Write(block); err != nil {
				return nil, err
			}
		}
		return body.Bytes(), packing.Close()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := packed()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(body) // The client may go away before.
	})
}

// taken calls f with the connection of a request, and closes it afterwards.
func taken(f func(connection net.Conn, request *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer connection.Close() //nolint:errcheck // it is meant to break
		f(connection, r)
	})
}

// slowHeaders returns one header after the other, until the client goes away.
func slowHeaders() http.Handler {
	return taken(func(connection net.Conn, _ *http.Request) {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		_, err := io.WriteString(connection, "HTTP/1.1 200 OK\r\n")
		for ; err == nil; <-ticker.C {
			_, err = io.WriteString(connection, "X-Header: x\r\n")
		}
	})
}

// binary returns an error that is no text.
func binary() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "\x89PNG\x1b[31m")
	})
}

// echo returns the credentials that it was sent.
func echo(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	})
}

// echoAfter returns them after its response.
func echoAfter() http.Handler {
	return taken(func(connection net.Conn, r *http.Request) {
		_, _ = io.WriteString(connection, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"+r.Header.Get("Authorization"))
	})
}
