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

package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/faults/trio"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestEtcdMembers kills members of an external etcd under load.
func TestEtcdMembers(t *testing.T) {
	figures := report.For(t, report.EtcdMembers)
	writes, away := report.Pick(40, 400), report.Pick(3*time.Second, time.Minute)
	etcd := trio.New(t, cluster.Shared(t))
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{
		Args: []string{"--etcd-servers", etcd.Servers(), stored},
		// Requests that etcd did not serve are broken off.
		Tolerate: []string{"context canceled", "could not write", "Handler timeout"},
	}})
	l := newLedger(e.NewTest(t))
	l.again = late
	for _, victim := range []struct {
		what string
		pick func(leader int) int
	}{
		{"a follower", func(leader int) int { return (leader + 1) % trio.Members }},
		{"the leader", func(leader int) int { return leader }},
	} {
		dead := victim.pick(etcd.Await())
		began := time.Now()
		killed := make(chan struct{})
		start := l.acknowledged()
		go func() {
			defer close(killed)
			for l.acknowledged() < start+writes/4 && time.Since(began) < limit() {
				<-time.After(time.Millisecond)
			}
			etcd.Kill(dead)
		}()
		failed := l.write(t.Context(), writes)
		<-killed
		for _, err := range failed {
			t.Errorf("with %s killed: %v", victim.what, err)
		}
		l.check()
		etcd.Start(dead)
		figures.Sayf("%s killed during %d writes: all of them served, in %s, %d times again since etcd was late",
			victim.what, l.acknowledged()-start, seconds(time.Since(began)), l.repeated.Swap(0))
	}
	etcd.Await()
	for i := range trio.Members {
		etcd.Kill(i)
	}
	told, unavailable := kubectlInOutage(t, e)
	refused := outage(t, e, away)
	for i := range trio.Members {
		etcd.Start(i)
	}
	back := time.Now()
	etcd.Await()
	cluster.Eventually(t, limit(), "writes to be served again", func(ctx context.Context) (bool, string) {
		failed := l.write(ctx, 1)
		return len(failed) == 0, fmt.Sprint(failed)
	})
	figures.Sayf("all killed for %s: %d of %d requests refused with 503 and its cause; kubectl get said it after %s, the APIService after %s; "+
		"served again %s after they were started", away, refused, refused, seconds(told), seconds(unavailable), seconds(time.Since(back)))
	e.Kubectl(t, "wait", "--for=condition=Available=True", "--timeout=2m", "apiservice/v1alpha1.metacontroller.k8s.io")
	l.check()
	select {
	case <-e.Server.Ended():
		t.Error("the server ended")
	default:
	}
}

// late reports whether a write failed because etcd took longer than it is waited for, as the election of a leader may on a busy machine:
// the server has waited as long as it does, or the client has repeated the request as often as it does. What fails sooner fails the test.
func late(err error) bool {
	_, repeated := apierrors.SuggestsClientDelay(err)
	return apierrors.IsServiceUnavailable(err) && (repeated || strings.Contains(err.Error(), "it did not respond within"))
}

// kubectlPatience is how long somebody at a terminal waits for an error.
const kubectlPatience = 15 * time.Second

// kubectlInOutage asks as people do while there is no etcd. It returns after which time kubectl and the APIService have said so.
func kubectlInOutage(t *testing.T, e *fixture.Environment) (told, unavailable time.Duration) {
	t.Helper()
	began := time.Now()
	output, err := e.TryKubectl(t.Context(), "", "get", "compositecontrollers")
	told = time.Since(began)
	if err == nil || !strings.Contains(output, "etcd") {
		t.Errorf("kubectl get: %v: %s, want an error that names etcd", err, output)
	}
	// It is what the server waits for etcd, once, and what kubectl takes for itself.
	if told > kubectlPatience {
		t.Errorf("kubectl get said so after %s, want %s at most", told, kubectlPatience)
	}
	e.Kubectl(t, "wait", "--for=condition=Available=False", "--timeout=2m", "apiservice/v1alpha1.metacontroller.k8s.io")
	return told, time.Since(began)
}

// outage asks the server while it has no etcd, and returns how many requests it has refused as it must.
func outage(t *testing.T, e *fixture.Environment, away time.Duration) int {
	t.Helper()
	until := time.Now().Add(away)
	body, err := json.Marshal(controller("refused", nil))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := 0; n < 2 || time.Now().Before(until); n++ {
		request, content := http.MethodPost, string(body)
		at := path
		if n%2 == 1 {
			request, content, at = http.MethodDelete, "", path+"/refused"
		}
		status, retry, text := ask(t, e.Server, request, at, content)
		var is metav1.Status
		err := json.Unmarshal([]byte(text), &is)
		// Whether etcd got the first of them nobody knows, so that it may not be repeated blindly; after it, none is sent. The server has repeated what
		// etcd did not respond to itself.
		silent := strings.Contains(is.Message, "it did not respond within")
		if err != nil || status != http.StatusServiceUnavailable || (retry == "") != silent || !strings.Contains(is.Message, "etcd") {
			t.Errorf("%s got %d, Retry-After %q: %s, want 503 with a cause", request, status, retry, text)
		} else {
			refused++
		}
		pause(t, 100*time.Millisecond)
	}
	for path, want := range map[string]int{"/livez?exclude=etcd": http.StatusOK, "/readyz": http.StatusInternalServerError} {
		if status, err := e.Server.Get(t.Context(), path); err != nil || status != want {
			t.Errorf("%s is %d without etcd, want %d: %v", path, status, want, err)
		}
	}
	return refused
}

// ask makes a request to the server itself.
func ask(t *testing.T, s *server.Server, method, path, body string) (status int, retryAfter, text string) {
	t.Helper()
	transport, err := s.Transport()
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close() //nolint:errcheck // It is read.
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, response.Header.Get("Retry-After"), string(read)
}
