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

package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
)

func TestMain(m *testing.M) {
	// Commands of this package set up logging again and again.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	// Logging that is set up is flushed as long as the process is there.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// execute runs the command, and returns what it prints.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd, err := NewCommand()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelpHasSections(t *testing.T) {
	help, err := execute(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nCluster flags:", "\nStorage flags:", "\nSecure serving flags:", "\nControllers flags:", "\nLeader election flags:", "\nFeatures flags:", "\nLogs flags:",
		"--data-dir", "--hook-response-limit", "--emulated-version", "--logging-format", "--escalation-check",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("the help has no %q", want)
		}
	}
	for _, hidden := range []string{"zap-", "etcd-servers-overrides", "storage-media-type"} {
		if strings.Contains(help, hidden) {
			t.Errorf("the help shows %s, which has no effect", hidden)
		}
	}
	for _, command := range []string{
		"register", "register roles", "unregister", "preflight", "rbac", "snapshot save", "snapshot restore", "snapshot status",
		"release-finalizers", "export", "import",
	} {
		if !regexp.MustCompile(`(?m)^  metacontroller-apiserver ` + command + `  +\S`).MatchString(help) {
			t.Errorf("the help does not list %s:\n%s", command, help)
		}
	}
	sub, err := execute(t, "register", "--help")
	if err != nil || strings.Contains(sub, "--etcd-servers") || !strings.Contains(sub, "--kubeconfig") {
		t.Errorf("the help of register is not its own: %v\n%s", err, sub)
	}
}

func TestVersion(t *testing.T) {
	if out, err := execute(t, "--version"); err != nil || !strings.HasPrefix(out, "metacontroller-apiserver version v") {
		t.Errorf("got %v %q", err, out)
	}
}

func TestWrongSettingsAreSentences(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	data := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":                   {[]string{"--workerz=3"}, "unknown flag: --workerz (see metacontroller-apiserver --help)"},
		"an argument":                       {[]string{"serve"}, `unknown command "serve" for "metacontroller-apiserver" (see metacontroller-apiserver --help)`},
		"no argument of a subcommand":       {[]string{"snapshot", "save"}, "accepts 1 arg(s), received 0 (see metacontroller-apiserver snapshot save --help)"},
		"no file of a subcommand":           {[]string{"import"}, "name the file with -f FILE, or pipe it and say -f -"},
		"a feature gate":                    {[]string{"--feature-gates=metacontroller:Nothing=true"}, "unrecognized feature gate: Nothing"},
		"another version":                   {[]string{"--emulated-version=metacontroller=9.9"}, "emulation version 9.9 is not between"},
		"no cluster":                        {[]string{"--data-dir", data}, "no --kubeconfig is given, and this is not a pod: which cluster is meant? KUBECONFIG is not read"},
		"a missing file":                    {[]string{"--data-dir", data, "--kubeconfig", missing}, "reading kubeconfig " + missing},
		"TLS for nothing":                   {[]string{"--etcd-cafile", "x"}, "--etcd-cafile, --etcd-certfile and --etcd-keyfile need --etcd-servers"},
		"an etcd of a kind":                 {[]string{"--etcd-servers-overrides=metacontroller.k8s.io/controllerrevisions#http://localhost:2379"}, "--etcd-servers-overrides is not supported: all objects are in one etcd"},
		"an encoding":                       {[]string{"--storage-media-type=application/vnd.kubernetes.protobuf"}, `--storage-media-type must be application/json, in which objects are stored, not "application/vnd.kubernetes.protobuf"`},
		"no data directory":                 {[]string{"--data-dir="}, "--data-dir must not be empty"},
		"an unknown plugin":                 {[]string{"--enable-admission-plugins=Nothing"}, `enable-admission-plugins plugin "Nothing" is unknown`},
		"a plugin on and off":               {[]string{"--escalation-check=false", "--enable-admission-plugins=ControllerEscalation"}, "[ControllerEscalation] in enable-admission-plugins and disable-admission-plugins overlapped"},
		"a plugin of Kubernetes on and off": {[]string{"--disable-admission-plugins=NamespaceLifecycle", "--enable-admission-plugins=NamespaceLifecycle"}, "[NamespaceLifecycle] in enable-admission-plugins and disable-admission-plugins overlapped"},
		"no port":                           {[]string{"--secure-port=0"}, "--secure-port must be between 1 and 65535, not 0"},
		"times for nothing":                 {[]string{"--serving-cert-duration=24h"}, "--serving-cert-duration, --serving-ca-duration and the flags beside them have an effect with --serving-cert-secret alone"},
		"no workers":                        {[]string{"--workers=0"}, "--workers must be at least 1, not 0"},
		"no answers":                        {[]string{"--hook-response-limit=0"}, "--hook-response-limit must be positive, not 0"},
		"no quantity":                       {[]string{"--hook-response-limit=much"}, "invalid argument \"much\" for \"--hook-response-limit\" flag"},
		"a small budget":                    {[]string{"--hook-response-budget=31Mi"}, "--hook-response-budget must be at least --hook-response-limit, not 31Mi"},
		"no tags":                           {[]string{"--hook-etag-budget=0"}, "--hook-etag-budget must be positive, not 0"},
		"a negative history":                {[]string{"--sync-history-bytes=-1"}, "--sync-history-bytes must not be negative, but is -1"},
		"no events":                         {[]string{"--events-qps=0"}, "--events-qps and --events-burst must be positive, not 0 and 25"},
		"no flush":                          {[]string{"--cache-flush-interval=0s"}, "--cache-flush-interval must be positive, not 0s"},
		"a bad selector":                    {[]string{"--target-label-selector=a=b=c"}, "--target-label-selector: "},
		"an unknown strategy":               {[]string{"--apply-strategy=guess"}, `--apply-strategy must be dynamic-apply or server-side-apply, not "guess"`},
		"a long manager":                    {[]string{"--apply-strategy-ssa-field-manager=" + strings.Repeat("x", 129)}, "must have at most 128 bytes, not 129"},
		"no namespace":                      {[]string{"--namespace="}, "--namespace must not be empty"},
		"two words for one":                 {[]string{"--leader-election-id=a", "--leader-elect-resource-name=b"}, "--leader-election-id=a and --leader-elect-resource-name=b contradict each other"},
		"yes and no":                        {[]string{"--leader-election", "--leader-elect=false"}, "--leader-election=true and --leader-elect=false contradict each other"},
		"another lock":                      {[]string{"--leader-election-resource-lock=configmaps"}, `--leader-elect-resource-lock must be leases, not "configmaps"`},
		"no name of a lease":                {[]string{"--leader-elect-resource-name="}, "--leader-elect-resource-name must not be empty"},
		"half a second":                     {[]string{"--leader-elect-lease-duration=1500ms"}, "--leader-elect-lease-duration must be in whole seconds, not 1.5s"},
		"a late deadline":                   {[]string{"--leader-elect-renew-deadline=15s"}, "--leader-elect-renew-deadline must be less than --leader-elect-lease-duration, not 15s"},
		"a short deadline":                  {[]string{"--leader-elect-renew-deadline=2s"}, "--leader-elect-renew-deadline must be more than 1.2 times --leader-elect-retry-period, not 2s"},
		"no retry":                          {[]string{"--leader-elect-retry-period=0"}, "--leader-elect-retry-period must be positive, not 0s"},
		"no election":                       {[]string{"--leader-elect=false", "--leader-elect-resource-name=", "--data-dir="}, "--data-dir must not be empty"},
		"several at a time":                 {[]string{"--workers=0", "--namespace="}, "not 0\n--namespace must not be empty"},
		"flags of old still":                {[]string{"--data-dir=", "--zap-log-level=4", "--zap-devel", "--metrics-address=0", "--discovery-interval=20s"}, "--data-dir must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := execute(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q in it", err, test.want)
			}
		})
	}
}

var errBroken = errors.New("broken")

// engineFunc is an engine.
type engineFunc func(ctx context.Context) error

func (f engineFunc) Run(ctx context.Context) error { return f(ctx) }

// newRunner returns a runner of the engine, and the failures that it reports.
func newRunner(t *testing.T, create NewEngine) (*engineRunner, chan error) {
	t.Helper()
	failures := make(chan error, 1)
	h := &engineRunner{create: create, fail: func(err error) { failures <- err }}
	h.ctx, h.stop = context.WithCancel(t.Context())
	return h, failures
}

func own(t *testing.T) *rest.Config {
	t.Helper()
	return unlimited(&rest.Config{Host: "loopback", QPS: 50})
}

func TestClientDisablesCompression(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
		_, _ = io.WriteString(w, `{"major":"1","minor":"36"}`)
	}))
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(unlimited(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ServerVersion(); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "" {
		t.Errorf("Accept-Encoding: %s", got)
	}
}

func TestTheEngineEndsBeforeTheServer(t *testing.T) {
	started, ended := make(chan EngineConfig, 1), false
	h, failures := newRunner(t, func(_ context.Context, c EngineConfig) (Engine, error) {
		return engineFunc(func(ctx context.Context) error {
			started <- c
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}), nil
	})
	h.start(own(t))
	if c := <-started; c.Loopback.Host != "loopback" || c.Loopback.QPS != -1 || !strings.HasPrefix(c.Loopback.UserAgent, "metacontroller-apiserver/") {
		t.Errorf("the engine got %v", c.Loopback)
	}
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
	if !ended {
		t.Error("the shutdown did not wait for the engine")
	}
	if len(failures) > 0 {
		t.Errorf("an engine that was asked to end is reported: %v", <-failures)
	}
}

func TestAnEngineThatEndsByItselfEndsTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		create NewEngine
		want   string
	}{
		"an engine that cannot be made": {
			func(context.Context, EngineConfig) (Engine, error) { return nil, errBroken }, "preparing to run controllers: broken",
		},
		"an engine that fails": {
			func(context.Context, EngineConfig) (Engine, error) {
				return engineFunc(func(context.Context) error { return errBroken }), nil
			}, "running controllers: broken",
		},
		"an engine that just ends": {
			func(context.Context, EngineConfig) (Engine, error) {
				return engineFunc(func(context.Context) error { return nil }), nil
			}, "running controllers: it ended by itself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, failures := newRunner(t, test.create)
			h.start(own(t))
			if err := <-failures; err.Error() != test.want {
				t.Errorf("got %q, want %q", err, test.want)
			}
			if err := h.shutdown(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoEngineStartsAfterTheShutdown(t *testing.T) {
	h, failures := newRunner(t, func(context.Context, EngineConfig) (Engine, error) {
		t.Error("it started")
		return nil, errBroken
	})
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
	if h.start(own(t)); len(failures) > 0 {
		t.Errorf("starting after the shutdown: %v", <-failures)
	}
}

// terms is an elector that elects this process for so many terms.
type terms struct {
	fence leaderelection.Fence
	left  int
	// end ends the present term.
	end chan struct{}
}

func (x *terms) Fence() *leaderelection.Fence { return &x.fence }

func (x *terms) Stand(ctx context.Context, lead func(context.Context)) error {
	if x.left == 0 {
		<-ctx.Done()
		return nil
	}
	x.left--
	term, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		<-x.end
		end(leaderelection.ErrLost)
	}()
	lead(term)
	return nil
}

func TestEachTermHasAnEngineOfItsOwn(t *testing.T) {
	waiting, elected, ended := make(chan int, 9), make(chan int), make(chan int, 9)
	created := 0
	h, failures := newRunner(t, func(_ context.Context, c EngineConfig) (Engine, error) {
		created++
		number := created
		return engineFunc(func(ctx context.Context) error {
			waiting <- number
			select {
			case <-c.Elected:
				elected <- number
				<-ctx.Done()
			case <-ctx.Done():
			}
			ended <- number
			return nil
		}), nil
	})
	x := &terms{left: 2, end: make(chan struct{})}
	h.elector, h.config.Cluster = x, &rest.Config{}
	h.start(own(t))
	for number := 1; number <= 2; number++ {
		if got := <-elected; got != number {
			t.Errorf("engine %d was elected, not %d", got, number)
		}
		x.end <- struct{}{}
		if got := <-ended; got != number {
			t.Errorf("engine %d ended, not %d", got, number)
		}
	}
	for range 3 {
		<-waiting
	}
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != 3 || created != 3 {
		t.Errorf("engine %d of %d ended, which waited for the election", got, created)
	}
	if len(failures) > 0 {
		t.Errorf("the server failed: %v", <-failures)
	}
}

func TestAnEngineThatOutlivesItsTermEndsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		h, failures := newRunner(t, func(context.Context, EngineConfig) (Engine, error) {
			return engineFunc(func(context.Context) error {
				<-stuck
				return nil
			}), nil
		})
		x := &terms{left: 1, end: make(chan struct{})}
		h.elector, h.config.Cluster = x, &rest.Config{}
		h.start(own(t))
		lost := time.Now()
		x.end <- struct{}{}
		if err := <-failures; !errors.Is(err, leaderelection.ErrLost) || time.Since(lost) != engineGrace {
			t.Errorf("after %s: %v", time.Since(lost), err)
		}
		close(stuck)
		if err := h.shutdown(); err != nil {
			t.Fatal(err)
		}
	})
}

// answering is an engine that can be asked.
type answering struct {
	engineFunc
	inspection.Engine
}

func TestAnEngineAnswersAlsoOnStandby(t *testing.T) {
	for name, test := range map[string]struct {
		terms int
		leads bool
	}{
		"while it waits": {0, false},
		"while it leads": {1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newRunner(t, func(context.Context, EngineConfig) (Engine, error) {
					return answering{engineFunc: func(ctx context.Context) error {
						<-ctx.Done()
						return nil
					}}, nil
				})
				x := &terms{left: test.terms, end: make(chan struct{})}
				defer close(x.end)
				h.elector, h.config.Cluster = x, &rest.Config{}
				h.config.Inspection, h.config.Standby = &inspection.Link{}, &inspection.Link{}
				h.start(own(t))
				synctest.Wait()
				if _, ok := h.config.Standby.Engine(); !ok {
					t.Error("it cannot be asked on standby")
				}
				if _, ok := h.config.Inspection.Engine(); ok != test.leads {
					t.Errorf("it can be asked what its controllers do: %t", ok)
				}
				if err := h.shutdown(); err != nil {
					t.Fatal(err)
				}
				if _, ok := h.config.Standby.Engine(); ok {
					t.Error("it can be asked when it has ended")
				}
			})
		})
	}
}

// TestEnginesAskTheFence lets an engine write before its election.
func TestEnginesAskTheFence(t *testing.T) {
	configs := make(chan EngineConfig, 1)
	h, _ := newRunner(t, func(_ context.Context, c EngineConfig) (Engine, error) {
		configs <- c
		return engineFunc(func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}), nil
	})
	h.elector, h.config.Cluster = &terms{}, &rest.Config{Host: "https://cluster.test"}
	h.start(own(t))
	c := <-configs
	for name, config := range map[string]*rest.Config{"the cluster": c.Cluster, "its own API": c.Loopback} {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://nowhere.test/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if !errors.Is(err, leaderelection.ErrNotLeading) {
			t.Errorf("writing to %s: %v", name, err)
		}
	}
	if err := h.shutdown(); err != nil {
		t.Fatal(err)
	}
}

func TestTheFileOfTheLeaderCountsOnItsHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leader")
	here, elsewhere := leaderFile{path, "here"}, leaderFile{path, "elsewhere"}
	if former, err := here.read(); former != "" || err != nil {
		t.Errorf("before the first term: %q %v", former, err)
	}
	for _, identity := range []string{"here_1", "here_2"} {
		if err := here.write(identity); err != nil {
			t.Fatal(err)
		}
		if former, err := here.read(); former != identity || err != nil {
			t.Errorf("after %s led: %q %v", identity, former, err)
		}
	}
	if former, err := elsewhere.read(); former != "" || err != nil {
		t.Errorf("on another host: %q %v", former, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := leaderFile{filepath.Join(t.TempDir(), "leader"), "here"}
	if err := os.WriteFile(copied.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if former, err := copied.read(); former != "" || err != nil {
		t.Errorf("in a copy of the directory: %q %v", former, err)
	}
}

func TestAServerSaysWhoRunsControllers(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "engine", errors.New("no RBAC policy matched"))
	for name, tc := range map[string]struct {
		holder  string
		failure error
		want    []string
	}{
		"nobody":                                 {"", nil, []string{"no server runs controllers at present", "try again"}},
		"nobody, and this one may not":           {"", forbidden, []string{"may not take the Lease", "no RBAC policy matched", "rights-leader-election"}},
		"nobody, and this one cannot":            {"", errors.New("EOF"), []string{"cannot take the Lease", "EOF"}},
		"this one":                               {"here_1", nil, []string{"this server is about to run controllers"}},
		"another one":                            {"pod-b_77", nil, []string{"controllers are run by another server, pod-b_77"}},
		"another one, who has taken what failed": {"pod-b_77", forbidden, []string{"controllers are run by another server, pod-b_77"}},
	} {
		got := absence(tc.holder, "here_1", tc.failure)
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", name, got, want)
			}
		}
	}
}

func TestTheServerWaitsForTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		answers []int
	}{
		"one that serves":             {"It is there.", []int{http.StatusOK}},
		"one that refuses":            {"What it refuses is said by who needs it.", []int{http.StatusForbidden}},
		"one that is starting":        {"It responds before it serves.", []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusOK}},
		"one that has too much to do": {"It is not said how it would answer.", []int{http.StatusTooManyRequests, http.StatusOK}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := int(asked.Add(1))
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.answers[min(n, len(c.answers))-1])
			}))
			defer cluster.Close()
			// The default transport is shared, and each test server that closes ends what is on its way there.
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			if err := awaitCluster(t.Context(), &rest.Config{Host: cluster.URL, Transport: transport}); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
			if n := int(asked.Load()); n != len(c.answers) {
				t.Errorf("%s: asked %d times, want %d", c.reason, n, len(c.answers))
			}
		})
	}
}

func TestWaitingForTheClusterEndsWithTheProcess(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- awaitCluster(ctx, &rest.Config{Host: gone.URL}) }()
	cancel(errBroken)
	if err := <-asked; !errors.Is(err, errBroken) {
		t.Errorf("got %v, want the cause", err)
	}
}

// lost is a storage that has ended.
type lost struct{ done chan struct{} }

func (l lost) Done() <-chan struct{} { return l.done }

func (lost) Err() error { return errBroken }

func TestALostStorageEndsTheServer(t *testing.T) {
	gone := lost{make(chan struct{})}
	close(gone.done)
	t.Run("that ends when told", func(t *testing.T) {
		server := make(chan error, 1)
		var failed error
		err := await(server, gone, func(err error) {
			failed = err
			server <- nil
		}, time.Hour)
		if err != nil || !errors.Is(failed, errBroken) {
			t.Errorf("got %v, and the failure %v", err, failed)
		}
	})
	t.Run("that does not", func(t *testing.T) {
		var failed error
		if err := await(nil, gone, func(err error) { failed = err }, time.Millisecond); err != nil || !errors.Is(failed, errBroken) {
			t.Errorf("got %v, and the failure %v", err, failed)
		}
	})
	t.Run("but not when the server ended before", func(t *testing.T) {
		server := make(chan error, 1)
		server <- errBroken
		err := await(server, lost{make(chan struct{})}, func(err error) { t.Errorf("it failed: %v", err) }, time.Hour)
		if !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	})
}
