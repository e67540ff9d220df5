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
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// slack is what may be in the heap after all requests that was not there after the first ones.
const slack = 16 << 20

// TestMalformedRequests sends the server what makes no sense.
func TestMalformedRequests(t *testing.T) {
	figures := report.For(t, report.Malformed)
	requests := report.Pick(1000, 10_000)
	e := fixture.SetUp(t, fixture.Options{Limit: limit(), Server: server.Options{Args: []string{stored}}})
	l := newLedger(e.NewTest(t))
	if _, err := l.client.Create(t.Context(), controller("malformed", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := l.client.Get(t.Context(), "malformed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int]int{}
	send(t, e.Server, requests/10, 0, codes)
	warm := heap(t, e.Server)
	send(t, e.Server, requests-requests/10, 1, codes)
	after := heap(t, e.Server)
	if after > warm+slack {
		t.Errorf("the heap has %d MiB after all requests, and had %d MiB after the first ones", after>>20, warm>>20)
	}
	if now, err := l.client.Get(t.Context(), "malformed", metav1.GetOptions{}); err != nil || now.UID != before.UID || now.Generation != before.Generation {
		t.Errorf("the object that the requests were about has changed: %v", err)
	}
	select {
	case <-e.Server.Ended():
		t.Error("the server ended")
	default:
	}
	var counted []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		counted = append(counted, fmt.Sprintf("%d with %d", codes[code], code))
	}
	figures.Sayf("%d requests of %d kinds: %s", requests, len(generators()), strings.Join(counted, ", "))
	figures.Sayf("the heap has %d MiB, after the first tenth of them it had %d; %d MiB resident at most", after>>20, warm>>20, peak(t, e.Server)>>20)
}

// send sends requests of all kinds, and counts the codes of the answers. The seed decides which.
func send(t *testing.T, s *server.Server, requests int, seed uint64, codes map[int]int) {
	t.Helper()
	transport, err := s.Transport()
	if err != nil {
		t.Fatal(err)
	}
	all := generators()
	names := slices.Sorted(maps.Keys(all))
	var next atomic.Int64
	var working sync.WaitGroup
	var mu sync.Mutex
	for w := range writers {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		working.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= requests {
					return
				}
				name := names[n%len(names)]
				code, text, err := all[name](r).send(t, transport, s)
				if err != nil || code < 400 || code >= 500 {
					t.Errorf("%s: got %d %v: %.300s", name, code, err, text)
				}
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	working.Wait()
}

func (m malformed) send(t *testing.T, transport http.RoundTripper, s *server.Server) (code int, text string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), m.method, s.URL(m.path), bytes.NewReader(m.body))
	if err != nil {
		return 0, "", err
	}
	if m.contentType != "" {
		request.Header.Set("Content-Type", m.contentType)
	}
	for name, value := range m.header {
		request.Header.Set(name, value)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // It is read.
	read, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(read), err
}

// heap returns how many bytes are in use in a server after garbage collections.
func heap(t *testing.T, s *server.Server) int {
	t.Helper()
	size, _, err := s.Heap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// peak returns the most memory that a server had in use, in bytes.
func peak(t *testing.T, s *server.Server) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		t.Fatalf("reading the memory of the server: %v", err)
	}
	return kilobytes << 10
}
