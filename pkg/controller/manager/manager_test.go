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

package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestControllersLearnOfAShutdown(t *testing.T) {
	nowhere := &rest.Config{Host: "http://127.0.0.1:1"}
	m, err := New(t.Context(), Config{Loopback: nowhere, Cluster: nowhere})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	select {
	case <-m.shared.ShuttingDown:
		t.Error("the process is said to end before it does")
	default:
	}
	stop()
	<-m.shared.ShuttingDown
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// slow is an API server that takes some time.
type slow time.Duration

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(s)):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("done"))}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestWritesFinishWhenTheirContextEnds stops the caller some time after the request.
func TestWritesFinishWhenTheirContextEnds(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		stops  time.Duration
		takes  time.Duration
		want   time.Duration
		fails  bool
	}{
		"a write":                     {http.MethodPatch, time.Second, 2 * time.Second, 2 * time.Second, false},
		"a write that takes too long": {http.MethodPatch, time.Second, time.Hour, time.Second + writeGrace, true},
		"a write that never ends":     {http.MethodPatch, time.Hour, 2 * time.Hour, writeLimit, true},
		"a read":                      {http.MethodGet, time.Second, 2 * time.Second, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.stops)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, test.method, "http://own.example", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				response, err := finishing{slow(test.takes)}.RoundTrip(request)
				if (err != nil) != test.fails || time.Since(start) != test.want {
					t.Errorf("after %s: %v; want it after %s", time.Since(start), err, test.want)
				}
				if err == nil {
					err = errors.Join(err, response.Body.Close())
				}
				if err != nil && !test.fails {
					t.Error(err)
				}
			})
		})
	}
}

// held are the informers that a standby holds, by the names of parents' resources.
type held struct {
	mu      sync.Mutex
	open    []string
	refused error
	changed []func()
}

func (h *held) hold(_ context.Context, d reconciler.Definition) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused != nil {
		return nil, h.refused
	}
	resource := d.Parents[0].Resource
	h.open = append(h.open, resource)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.Index(h.open, resource)
		h.open = slices.Delete(h.open, i, i+1)
	}, nil
}

func (h *held) subscribe(changed func()) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = append(h.changed, changed)
	return func() {}
}

// rediscover has other kinds be served.
func (h *held) rediscover() {
	h.mu.Lock()
	all := slices.Clone(h.changed)
	h.mu.Unlock()
	for _, changed := range all {
		changed()
	}
}

func (h *held) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = err
}

func (h *held) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := slices.Sorted(slices.Values(h.open)); !slices.Equal(got, want) {
		t.Errorf("%s: %q are held, not %q", when, got, want)
	}
}

func parentsOf(name, resource string) reconciler.Definition {
	return reconciler.OfComposite(&v1alpha1.CompositeController{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1alpha1.CompositeControllerSpec{ParentResource: v1alpha1.CompositeControllerParentResourceRule{
			ResourceRule: v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: resource},
		}},
	})
}

func TestAStandbyHoldsWhatControllersNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		s := newStandby(h.hold, h.subscribe)
		ctx, end := context.WithCancel(t.Context())
		s.put(ctx, parentsOf("a", "things"))
		s.put(ctx, parentsOf("b", "others"))
		h.expect(t, "at first", "others", "things")
		s.put(ctx, parentsOf("a", "things"))
		h.expect(t, "after a change of the object, not of its spec", "others", "things")
		s.put(ctx, parentsOf("a", "more"))
		h.expect(t, "after a change of the spec", "more", "others")
		s.remove(identityOf(parentsOf("b", "others")))
		h.expect(t, "after a deletion", "more")
		h.rediscover()
		h.expect(t, "after other kinds are served", "more")
		end()
		s.wait()
		h.expect(t, "at the end")
		s.put(ctx, parentsOf("c", "things"))
		h.expect(t, "after the end")
	})
}

func TestAStandbyTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{refused: errors.New("not served")}
		s := newStandby(h.hold, h.subscribe)
		ctx, end := context.WithCancel(t.Context())
		s.put(ctx, parentsOf("a", "things"))
		h.expect(t, "while the kind is not served")
		h.refuse(nil)
		h.rediscover()
		h.expect(t, "when it is", "things")
		h.refuse(errors.New("not served"))
		h.rediscover()
		h.expect(t, "when it is not known any more", "things")
		s.remove(identityOf(parentsOf("a", "things")))
		h.refuse(errors.New("unreachable"))
		s.put(ctx, parentsOf("a", "things"))
		h.expect(t, "while the cluster is away")
		h.refuse(nil)
		time.Sleep(standbyRetry) //nolint:forbidigo // It is the time of a bubble.
		h.expect(t, "a moment after it is back", "things")
		end()
		s.wait()
		h.expect(t, "at the end")
	})
}
