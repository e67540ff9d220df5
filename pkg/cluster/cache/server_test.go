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

package cache

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

const (
	item     = `{"metadata":{"name":%q,"resourceVersion":%q,"uid":%q}}`
	listOf   = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`
	refusal  = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d,"message":"refused"}`
	bookmark = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":%q}}}`
)

// apiServer serves lists and watches of pods as a test says. It counts watches that are open.
type apiServer struct {
	t *testing.T
	// list returns a status code and a body.
	list func(r *http.Request) (code int, body string)
	// watch gets a function that sends an event, and ends the response when it returns. With another code than 200 the
	// text is the body.
	watch func(r *http.Request) (code int, body string, stream func(send func(event string)))

	mu   sync.Mutex
	open int
	// urls are the paths and queries of the requests.
	urls []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.urls = append(s.urls, r.URL.Path+"?"+r.URL.Query().Get("fieldSelector")+r.URL.Query().Get("labelSelector"))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		code, body := s.list(r)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
		return
	}
	code, body, stream := s.watch(r)
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body))
	if stream == nil {
		return
	}
	s.count(1)
	defer s.count(-1)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	stream(func(event string) {
		_, _ = w.Write([]byte(event + "\n"))
		_ = flush()
	})
}

func (s *apiServer) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
}

func (s *apiServer) watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// run starts the server and a cache of it, whose transport may be wrapped.
func (s *apiServer) run(wrap ...transport.WrapperFunc) *Cache {
	s.t.Helper()
	config := s.config()
	config.WrapTransport = transport.Wrappers(wrap...)
	c, err := New(Options{Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	s.start(c)
	return c
}

// config starts the server.
func (s *apiServer) config() *rest.Config {
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// start runs a cache until the end of the test.
func (s *apiServer) start(c *Cache) {
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	s.t.Cleanup(func() {
		stop()
		<-ended
	})
}

// waits is a watch in which nothing happens.
func waits(r *http.Request) (code int, body string, stream func(send func(event string))) {
	return http.StatusOK, "", func(func(string)) { <-r.Context().Done() }
}

func pods() Query {
	return Query{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
}

func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return met(), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestAListIsReadInPagesAndThenWatched(t *testing.T) {
	s := &apiServer{t: t}
	s.list = func(r *http.Request) (int, string) {
		if r.URL.Query().Get("continue") == "" {
			return http.StatusOK, fmt.Sprintf(listOf, "10", "next", fmt.Sprintf(item, "a", "1", "u1"))
		}
		return http.StatusOK, fmt.Sprintf(listOf, "10", "", fmt.Sprintf(item, "b", "2", "u2"))
	}
	s.watch = func(r *http.Request) (int, string, func(func(string))) {
		if version := r.URL.Query().Get("resourceVersion"); version != "10" {
			t.Errorf("watched from %q, want 10", version)
		}
		return http.StatusOK, "", func(send func(string)) {
			send(`{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"11"}}}`)
			send(fmt.Sprintf(bookmark, "15"))
			<-r.Context().Done()
		}
	}
	i := s.run().Acquire(pods())
	defer i.Release()
	<-i.Synced()
	b, ok := i.Get("", "b")
	if !ok || b.Kind() != "Pod" || b.APIVersion() != "v1" {
		t.Errorf("b is %v, %v", b, ok)
	}
	eventually(t, "the deletion and the bookmark", func() bool { return i.LastSyncedVersion() == "15" && i.Len() == 1 })
	if err := i.Err(); err != nil {
		t.Errorf("error %v after success", err)
	}
}

// TestTheFirstListIsOfNow is about several API servers: a list of what one has at hand may be older than what was seen before.
func TestTheFirstListIsOfNow(t *testing.T) {
	s := &apiServer{t: t}
	s.list = func(r *http.Request) (int, string) {
		q := r.URL.Query()
		if q.Get("resourceVersion") != "" || q.Get("limit") != "" || r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("the request has %v and %v, want all of now, and no compression", q, r.Header)
		}
		if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "application/json;as=PartialObjectMetadataList;") {
			t.Errorf("the request accepts %s, which API servers reject for a list", accept)
		}
		return http.StatusOK, fmt.Sprintf(listOf, "10", "", fmt.Sprintf(item, "a", "1", "u1"))
	}
	s.watch = func(r *http.Request) (int, string, func(func(string))) {
		if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "application/json;as=PartialObjectMetadata;") {
			t.Errorf("watched as %s, want metadata", accept)
		}
		return http.StatusOK, "", func(func(string)) { <-r.Context().Done() }
	}
	q := pods()
	q.MetadataOnly = true
	i := s.run().Acquire(q)
	defer i.Release()
	<-i.Synced()
	if i.Len() != 1 {
		t.Errorf("%d objects, want 1", i.Len())
	}
	eventually(t, "the watch", func() bool { return s.watches() == 1 })
}

// expectListedAgain checks the events of an informer whose first watch expires, so that it lists a second time.
func expectListedAgain(t *testing.T, first, second string, events ...string) {
	t.Helper()
	s := &apiServer{t: t}
	var lists, watches atomic.Int32
	s.list = func(*http.Request) (int, string) {
		if lists.Add(1) == 1 {
			return http.StatusOK, fmt.Sprintf(listOf, "5", "", first)
		}
		return http.StatusOK, fmt.Sprintf(listOf, "9", "", second)
	}
	s.watch = func(r *http.Request) (int, string, func(func(string))) {
		first := watches.Add(1) == 1
		return http.StatusOK, "", func(send func(string)) {
			if first {
				send(`{"type":"ERROR","object":` + fmt.Sprintf(refusal, "Expired", 410) + `}`)
				return
			}
			<-r.Context().Done()
		}
	}
	i := s.run().Acquire(pods())
	defer i.Release()
	r := &recorder{}
	defer i.Subscribe(r.handle)()
	eventually(t, "the second list", func() bool { return i.LastSyncedVersion() == "9" })
	i.deliver.Lock()
	defer i.deliver.Unlock()
	r.expect(t, events...)
}

func TestAnExpiredWatchIsListedAgain(t *testing.T) {
	expectListedAgain(t, fmt.Sprintf(item, "a", "1", "u1"), fmt.Sprintf(item, "b", "7", "u2"), "initially added a1", "added b7", "deleted a1")
}

// A definition that changes may take fields away, and give them back, without a write of the objects that have them.
func TestAListMayShowAnotherFormOfTheSameVersion(t *testing.T) {
	const a, b = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u","resourceVersion":"1"}%s}`, `{"metadata":{"name":"p","uid":"u","resourceVersion":"1"}%s}`
	for name, tc := range map[string]struct {
		first, second string
		events        []string
	}{
		"TheSame":        {fmt.Sprintf(a, `,"spec":{"x":1}`), fmt.Sprintf(a, `,"spec":{"x":1}`), []string{"initially added p1"}},
		"InAnotherOrder": {fmt.Sprintf(a, `,"spec":{"x":1}`), fmt.Sprintf(b, `,"spec":{"x":1}`), []string{"initially added p1"}},
		"AField":         {fmt.Sprintf(a, `,"spec":{}`), fmt.Sprintf(a, `,"spec":{"x":1}`), []string{"initially added p1", "updated p1 from 1"}},
		"WithoutAField":  {fmt.Sprintf(a, `,"spec":{}`), fmt.Sprintf(b, ``), []string{"initially added p1", "updated p1 from 1"}},
	} {
		t.Run(name, func(t *testing.T) { expectListedAgain(t, tc.first, tc.second, tc.events...) })
	}
}

func TestRefusalsAreShownUntilTheyEnd(t *testing.T) {
	s := &apiServer{t: t}
	var mu sync.Mutex
	allowed := false
	s.list = func(*http.Request) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		if !allowed {
			return http.StatusForbidden, fmt.Sprintf(refusal, "Forbidden", 403)
		}
		return http.StatusOK, fmt.Sprintf(listOf, "5", "", "")
	}
	s.watch = waits
	i := s.run().Acquire(pods())
	defer i.Release()
	<-i.Failed()
	if err := i.Err(); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want forbidden", err)
	}
	if i.HasSynced() {
		t.Error("synced in spite of refusals")
	}
	mu.Lock()
	allowed = true
	mu.Unlock()
	<-i.Synced()
	if err := i.Err(); err != nil {
		t.Errorf("error %v after success", err)
	}
}

func TestABrokenStreamIsWatchedAgain(t *testing.T) {
	s := &apiServer{t: t}
	var starts int
	s.watch = func(r *http.Request) (int, string, func(func(string))) {
		starts++
		number := starts
		return http.StatusOK, "", func(send func(string)) {
			if number < 3 {
				send(`{"type":"ADDED","object":{"metadata":{"name":1}}}`)
				return
			}
			send(fmt.Sprintf(`{"type":"ADDED","object":`+item+`}`, "a", "6", "u1"))
			<-r.Context().Done()
		}
	}
	s.list = func(*http.Request) (int, string) { return http.StatusOK, fmt.Sprintf(listOf, "5", "", "") }
	i := s.run().Acquire(pods())
	defer i.Release()
	eventually(t, "the object behind the broken streams", func() bool { return i.Len() == 1 })
}

func TestHoldersShareAWatchAndTheLastEndsIt(t *testing.T) {
	s := &apiServer{t: t}
	s.list = func(*http.Request) (int, string) { return http.StatusOK, fmt.Sprintf(listOf, "5", "", "") }
	s.watch = waits
	c := s.run()
	first, second := c.Acquire(pods()), c.Acquire(pods())
	if first != second {
		t.Error("two informers for one query")
	}
	<-first.Synced()
	eventually(t, "one watch", func() bool { return s.watches() == 1 })
	first.Release()
	one := pods()
	one.Namespace, one.Name, one.LabelSelector = "ns", "n", "a=b"
	third := c.Acquire(one)
	<-third.Synced()
	eventually(t, "a second watch", func() bool { return s.watches() == 2 })
	third.Release()
	second.Release()
	eventually(t, "the watches' end", func() bool { return s.watches() == 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := "/api/v1/namespaces/ns/pods?metadata.name=na=b"; !strings.Contains(strings.Join(s.urls, " "), want) {
		t.Errorf("the requests are %q, want %s among them", s.urls, want)
	}
}

// TestAnInformerThatIsStoppedIsNoFailure stops one whose watch the API server has not responded to yet.
func TestAnInformerThatIsStoppedIsNoFailure(t *testing.T) {
	s := &apiServer{t: t}
	s.list = func(*http.Request) (int, string) { return http.StatusOK, fmt.Sprintf(listOf, "5", "", "") }
	asked := make(chan struct{})
	s.watch = func(r *http.Request) (int, string, func(func(string))) {
		close(asked)
		<-r.Context().Done()
		return http.StatusOK, "", nil
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := New(Options{Config: &rest.Config{Host: server.URL, QPS: -1}})
	if err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	i := c.Acquire(pods())
	<-asked
	i.Release()
	stop()
	<-ended
	if text := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); strings.Contains(text, "Failed to watch") {
		t.Errorf("logged %s", text)
	}
}
