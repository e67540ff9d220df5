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
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/embeddedetcd"
)

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
