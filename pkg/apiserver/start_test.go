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

package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
	"github.com/metacontroller/metacontroller-apiserver/pkg/features"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/clientset/versioned"
)

const (
	maxBody  = 100 << 10
	patience = 20 * time.Second
)

// shared is the server of all tests; each uses names of its own. It has no cluster behind it: everybody may do everything,
// and nothing but tests is asked for admission.
var shared *rest.Config

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		served{m},
		// The check of the log, once it was made, flushes it as long as the process is there.
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"),
		// A read that has waited for the cache leaves a timer behind, which ends after three seconds.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	)
}

// served are tests that have the server, which has ended before goroutines are looked for.
type served struct{ m *testing.M }

// Run implements goleak.TestingM.
func (s served) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // There is no test yet.
	defer stop()
	code, err := withServer(ctx, s.m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// withServer runs tests while the server runs.
func withServer(ctx context.Context, run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Options{Dir: dir, UnsafeNoFsync: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	config, err := newConfig(ctx, etcd.Endpoint())
	if err != nil {
		return 0, err
	}
	shared = rest.CopyConfig(config.Generic.LoopbackClientConfig)
	shared.QPS = -1
	server, err := config.Complete().New()
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Generic.PrepareRun().RunWithContext(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if err := awaitReady(ctx, shared); err != nil {
		return 0, err
	}
	return run(), nil
}

func newConfig(ctx context.Context, endpoint string) (*apiserver.Config, error) {
	registry, err := features.NewRegistry()
	if err != nil {
		return nil, err
	}
	config := apiserver.NewConfig()
	config.ProcessMetrics = true
	generic := config.Generic
	run := genericoptions.NewServerRunOptionsForComponent(features.Component, registry)
	run.MaxRequestBodyBytes = maxBody
	run.ShutdownSendRetryAfter = true
	run.ShutdownWatchTerminationGracePeriod = time.Second
	if err := registry.Set(); err != nil {
		return nil, err
	}
	if err := run.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	generic.FeatureGate = registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	storage := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/test", apiserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)))
	storage.StorageConfig.Transport.ServerList = []string{endpoint}
	if err := storage.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	serving := genericoptions.NewSecureServingOptions().WithLoopback()
	serving.ServerCert.CertDirectory = ""
	if serving.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	if err := serving.ApplyToConfig(&generic.Config); err != nil {
		return nil, err
	}
	generic.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	generic.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	generic.AdmissionControl = &deletions
	return config, nil
}

func awaitReady(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // It does not listen yet.
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
}

// client returns the generated client.
func client(t *testing.T) *versioned.Clientset {
	t.Helper()
	c, err := versioned.NewForConfig(shared)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	groupPath  = "/apis/metacontroller.k8s.io/v1alpha1"
	composites = groupPath + "/compositecontrollers"
	decorators = groupPath + "/decoratorcontrollers"
)

type answer struct {
	status   int
	media    string
	warnings []string
	body     string
}

// message is that of a metav1.Status.
func (a answer) message(t *testing.T) string {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(a.body), &status); err != nil {
		t.Fatalf("the answer is no status: %v\n%s", err, a.body)
	}
	return status.Message
}

// ask sends one request, with headers as pairs of name and value.
func ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(shared)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, shared.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(headers, "Content-Type") {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := httpClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Values("Warning"), string(content)}
}

// must fails the test unless the answer has the status.
func (a answer) must(t *testing.T, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("got status %d, want %d:\n%s", a.status, status, a.body)
	}
	return a
}

// compositeJSON is a CompositeController with more fields in its spec.
func compositeJSON(name, fields string) string {
	return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"` + name + `"},` +
		`"spec":{"parentResource":{"apiVersion":"example.com/v1","resource":"foos"}` + fields + `}}`
}

// TestAServerIsNotReadyWhileWhatIsStoredCannotBeRead has something under the key of an object that is none.
func TestAServerIsNotReadyWhileWhatIsStoredCannotBeRead(t *testing.T) {
	etcd, err := embeddedetcd.Start(t.Context(), embeddedetcd.Options{Dir: t.TempDir(), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	const key = "/test/metacontroller.k8s.io/compositecontrollers/garbage"
	if _, err := store.Put(t.Context(), key, "garbage"); err != nil {
		t.Fatal(err)
	}
	config := serveFrom(t, etcd.Endpoint())

	await(t, config, http.StatusInternalServerError, "[+]poststarthook/storage-readiness ok", "[-]watch-caches failed")
	if _, err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	await(t, config, http.StatusOK, "[+]watch-caches ok")
}

// serveFrom runs a server until the end of the test that gives up the wait for its watch caches at once.
func serveFrom(t *testing.T, endpoint string) *rest.Config {
	t.Helper()
	config, err := newConfig(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	config.ProcessMetrics = false
	config.Generic.StorageInitializationTimeout = time.Millisecond
	loopback := config.Generic.LoopbackClientConfig
	server, err := config.Complete().New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Generic.PrepareRun().RunWithContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return loopback
}

// await waits until /readyz has a code and lines.
func await(t *testing.T, config *rest.Config, code int, lines ...string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz?verbose", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // It does not listen yet.
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err
		}
		last = response.Status + "\n" + string(body)
		for _, line := range lines {
			if !strings.Contains(last, line) {
				return false, response.Body.Close()
			}
		}
		return response.StatusCode == code, response.Body.Close()
	})
	if err != nil {
		t.Fatalf("/readyz is not %d with %q, but %s", code, lines, last)
	}
}
