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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
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
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "60")
		}
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

// recorder notes events as text.
type recorder struct{ events []string }

func (r *recorder) handle(e Event) {
	text := ""
	if e.Initial {
		text = "initially "
	}
	switch e.Type {
	case Added:
		text += "added " + e.New.Name() + e.New.ResourceVersion()
	case Updated:
		text += fmt.Sprintf("updated %s%s from %s", e.New.Name(), e.New.ResourceVersion(), e.Old.ResourceVersion())
	case Deleted:
		text += "deleted " + e.Old.Name() + e.Old.ResourceVersion()
	}
	r.events = append(r.events, text)
}

func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, r.events); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	r.events = nil
}

func anyOf(objects ...*object.Object) []any {
	list := make([]any, 0, len(objects))
	for _, o := range objects {
		list = append(list, o)
	}
	return list
}

func TestInformerDeliversChanges(t *testing.T) {
	i := newInformer(nil, Query{})
	r := &recorder{}
	defer i.Subscribe(r.handle)()
	at := func(name, uid, version string) *object.Object {
		return spec{name: name, uid: uid, version: version}.object(t)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if i.HasSynced() {
		t.Error("synced before the first list")
	}
	first := at("a", "u1", "1")
	do(i.Replace(anyOf(first), "5"))
	r.expect(t, "initially added a1")
	if !i.HasSynced() || i.LastSyncedVersion() != "5" {
		t.Errorf("synced: %v at %q, want 5", i.HasSynced(), i.LastSyncedVersion())
	}
	do(i.Add(at("b", "u2", "6")))
	do(i.Update(at("b", "u2", "7")))
	r.expect(t, "added b6", "updated b7 from 6")
	// Deleted and created again between two watches, in one event or in a list.
	do(i.Update(at("b", "u3", "8")))
	r.expect(t, "deleted b7", "added b8")
	do(i.Replace(anyOf(at("a", "u1", "1"), at("b", "u4", "9"), at("c", "u5", "10")), "11"))
	r.expect(t, "deleted b8", "added b9", "added c10")
	if kept, ok := i.Get("", "a"); !ok || kept != first {
		t.Error("a list with no change of an object replaced it")
	}
	do(i.Replace(anyOf(at("a", "u1", "12")), "12"))
	if len(r.events) != 3 || r.events[0] != "updated a12 from 1" {
		t.Errorf("events %q, want an update of a and two deletions", r.events)
	}
	r.events = nil
	do(i.Delete(at("a", "u1", "13")))
	do(i.Delete(at("a", "u1", "14")))
	r.expect(t, "deleted a13")
	if i.LastSyncedVersion() != "14" || i.Len() != 0 {
		t.Errorf("at %s with %d objects, want 14 and none", i.LastSyncedVersion(), i.Len())
	}
	do(i.Bookmark("20"))
	if i.LastSyncedVersion() != "20" {
		t.Errorf("at %s after a bookmark of 20", i.LastSyncedVersion())
	}
	if i.Add("text") == nil || i.Delete("text") == nil || i.Replace([]any{"text"}, "") == nil {
		t.Error("took in what is no object")
	}
}

func TestLateSubscribersGetWhatIsThere(t *testing.T) {
	i := newInformer(nil, Query{})
	if err := i.Replace(anyOf(spec{name: "a", version: "1"}.object(t)), "1"); err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	cancel := i.Subscribe(r.handle)
	r.expect(t, "initially added a1")
	cancel()
	if err := i.Add(spec{name: "b", version: "2"}.object(t)); err != nil {
		t.Fatal(err)
	}
	r.expect(t)
}

func TestAPanicOfAHandlerStopsNothing(t *testing.T) {
	i := newInformer(nil, Query{})
	defer i.Subscribe(func(Event) { panic("broken") })()
	r := &recorder{}
	defer i.Subscribe(r.handle)()
	if err := i.Add(spec{name: "a", version: "1"}.object(t)); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "added a1")
}

func TestHandlersSeeTheStoreAfterTheChange(t *testing.T) {
	i := newInformer(nil, Query{})
	seen := 0
	defer i.Subscribe(func(e Event) {
		seen++
		if o, ok := i.Get("", "a"); e.Type != Deleted && (!ok || o != e.New) || e.Type == Deleted && ok {
			t.Errorf("event %v, but the store has %v", e, o)
		}
		if o := e.New; o != nil && i.LastSyncedVersion() == o.ResourceVersion() {
			t.Errorf("at %s while its event is delivered", o.ResourceVersion())
		}
	})()
	observer := i.Observe(func(version string, _ Event) {
		if version != "" && i.LastSyncedVersion() != version {
			t.Errorf("got %s at %s", version, i.LastSyncedVersion())
		}
	})
	observer.Wake()
	defer observer.Close()
	for _, version := range []string{"1", "2"} {
		if err := i.Add(spec{name: "a", version: version}.object(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Delete(spec{name: "a", version: "3"}.object(t)); err != nil {
		t.Fatal(err)
	}
	if seen != 3 {
		t.Errorf("saw %d events, want 3", seen)
	}
}

func BenchmarkCacheInsert(b *testing.B) {
	const count = 10000
	objects := make([]*object.Object, count)
	for n := range objects {
		s := spec{namespace: "ns", name: fmt.Sprint("n", n), uid: fmt.Sprint("u", n), version: fmt.Sprint(n + 1)}
		if n%2 == 0 {
			s.controller = fmt.Sprint("owner", n/6)
		}
		objects[n] = s.object(b)
	}
	b.ReportAllocs()
	for b.Loop() {
		i := newInformer(nil, Query{})
		for _, o := range objects {
			if err := i.Add(o); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/object")
}

// controlled returns an object that an owner of a kind controls, nobody if the kind is empty.
func controlled(t testing.TB, version int, apiVersion, kind string) *object.Object {
	t.Helper()
	owners := ""
	if kind != "" {
		owners = fmt.Sprintf(`,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"o","uid":"uid-of-%s","controller":true}]`, apiVersion, kind, kind)
	}
	o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"%d"%s}}`, version, owners),
		object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnEventIsForThoseWhoseOwnersItConcerns(t *testing.T) {
	everyone := []string{"all", "things", "others", "names"}
	of := func(kind string, awaitsNames bool) Interest {
		return Interest{Owners: []schema.GroupKind{{Group: "example.com", Kind: kind}}, AwaitsNames: func() bool { return awaitsNames }}
	}
	type state struct{ apiVersion, kind string }
	thing, again, other, nobody := state{"example.com/v1", "Thing"}, state{"example.com/v2", "Thing"}, state{"example.com/v1", "Other"}, state{}
	for name, tc := range map[string]struct {
		// before and after are nil where there is no object.
		before, after *state
		want          []string
	}{
		"created":                           {nil, &thing, []string{"all", "things"}},
		"created for another owner":         {nil, &other, []string{"all", "others"}},
		"created for nobody":                {nil, &nobody, everyone},
		"changed":                           {&thing, &thing, []string{"all", "things"}},
		"named in another version":          {&thing, &again, []string{"all", "things"}},
		"adopted":                           {&nobody, &thing, everyone},
		"released":                          {&thing, &nobody, everyone},
		"taken over":                        {&thing, &other, everyone},
		"changed without an owner":          {&nobody, &nobody, everyone},
		"gone":                              {&thing, nil, []string{"all", "things", "names"}},
		"gone, of nobody":                   {&nobody, nil, []string{"all", "names"}},
		"of an owner that nobody has":       {nil, &state{"v1", "Node"}, []string{"all"}},
		"of the same kind in another group": {nil, &state{"v1", "Thing"}, []string{"all"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInformer(nil, Query{})
			if tc.before != nil {
				if err := i.Add(controlled(t, 1, tc.before.apiVersion, tc.before.kind)); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			handler := func(name string) Handler {
				return func(e Event) {
					if !e.Initial {
						got = append(got, name)
					}
				}
			}
			cancel := []func(){
				i.SubscribeTo(of("Thing", false), handler("things")),
				i.SubscribeTo(of("Other", false), handler("others")),
				i.SubscribeTo(of("Third", true), handler("names")),
				i.Subscribe(handler("all")),
			}
			if len(got) > 0 {
				t.Errorf("%v were called for what is there", got)
			}
			var err error
			if tc.after != nil {
				err = i.Update(controlled(t, 2, tc.after.apiVersion, tc.after.kind))
			} else {
				err = i.Delete(controlled(t, 2, tc.before.apiVersion, tc.before.kind))
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("called are %v, error %v, want %v", got, err, tc.want)
			}
			got = nil
			for _, each := range cancel {
				each()
			}
			if err := i.Add(controlled(t, 3, "example.com/v1", "Thing")); err != nil || len(got) > 0 || len(i.subscribers.byOwner) > 0 {
				t.Errorf("called are %v, error %v, left are %v", got, err, i.subscribers)
			}
		})
	}
}

func TestAnObserverIsCalledWhileItIsAwake(t *testing.T) {
	i := newInformer(nil, Query{})
	var got []string
	o := i.Observe(func(version string, _ Event) { got = append(got, version) })
	for version, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"at first it rests", func() {}, nil},
		{"it wakes", o.Wake, []string{"1"}},
		{"it is awake", o.Wake, []string{"1", "2"}},
		{"it rests", o.Rest, []string{"1", "2"}},
		{"it wakes again", o.Wake, []string{"1", "2", "4"}},
		{"it is closed", o.Close, []string{"1", "2", "4"}},
		{"it wakes no more", o.Wake, []string{"1", "2", "4"}},
	} {
		step.do()
		if err := i.Bookmark(strconv.Itoa(version)); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: called with %v, error %v, want %v", step.what, got, err, step.want)
		}
	}
	if len(i.observers.awake()) > 0 {
		t.Error("it is not forgotten")
	}
}

// TestAnObserverThatWakesMissesNothing has one wake while versions come. What it does not see as the present version it must be called with.
func TestAnObserverThatWakesMissesNothing(t *testing.T) {
	const last = 20000
	i := newInformer(nil, Query{})
	var mu sync.Mutex
	wanted, called := 0, make(chan struct{}, 1)
	var o *Observer
	o = i.Observe(func(version string, _ Event) {
		mu.Lock()
		defer mu.Unlock()
		if at, err := strconv.Atoi(version); err != nil || wanted == 0 || at < wanted {
			return
		}
		wanted = 0
		o.Rest()
		called <- struct{}{}
	})
	var running sync.WaitGroup
	running.Go(func() {
		for version := 1; version <= last; version++ {
			if err := i.Bookmark(strconv.Itoa(version)); err != nil {
				t.Error(err)
			}
		}
	})
	// want reports whether the next version is still to come.
	want := func() bool {
		mu.Lock()
		defer mu.Unlock()
		o.Wake()
		present, _ := strconv.Atoi(i.LastSyncedVersion()) // Empty before the first.
		if present == last {
			return false
		}
		wanted = present + 1
		return true
	}
	for want() {
		<-called
	}
	running.Wait()
}

// An API server that fills its cache of a new kind asks for a second, and is ready in a few milliseconds.
func TestAListIsAskedForAgainSoon(t *testing.T) {
	s := &apiServer{t: t}
	var lists atomic.Int32
	s.list = func(*http.Request) (int, string) {
		if lists.Add(1) == 1 {
			return http.StatusTooManyRequests, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,
				"message":"storage is (re)initializing"}`
		}
		return http.StatusOK, fmt.Sprintf(listOf, "5", "", "")
	}
	s.watch = func(r *http.Request) (int, string, func(func(string))) {
		return http.StatusOK, "", func(func(string)) { <-r.Context().Done() }
	}
	i := s.run().Acquire(pods())
	defer i.Release()
	select {
	case <-i.Synced():
	case <-i.Failed():
		t.Errorf("the informer failed with %v", i.Err())
	case <-time.After(wait.ForeverTestTimeout):
		t.Error("the informer waits as long as the API server asked for")
	}
}
