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
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

// spec describes an object of a test.
type spec struct {
	namespace, name, uid, version string
	labels                        map[string]string
	controller                    string
}

func (s spec) object(t testing.TB) *object.Object {
	t.Helper()
	var pairs []string
	for key, value := range s.labels {
		pairs = append(pairs, fmt.Sprintf("%q:%q", key, value))
	}
	owners := ""
	if s.controller != "" {
		owners = fmt.Sprintf(`,"ownerReferences":[{"uid":"other"},{"uid":%q,"controller":true}]`, s.controller)
	}
	o, err := object.Parse([]byte(fmt.Sprintf(
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":%q,"labels":{%s}%s}}`,
		s.namespace, s.name, s.uid, s.version, strings.Join(pairs, ","), owners)), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestIndexesFindWhatAScanFinds makes many random changes, and compares every index with a scan.
func TestIndexesFindWhatAScanFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newStore()
	all := map[key]*object.Object{}
	selectors := []string{"app=a", "app in (a,b)", "app", "app,tier=x", "app!=a", "!app", "tier=x,app notin (b)", "", "size>3"}
	for round := range 3000 {
		made := spec{
			namespace: fmt.Sprint("ns", random.IntN(3)), name: fmt.Sprint("n", random.IntN(20)),
			uid: fmt.Sprint("u", random.IntN(4)), version: fmt.Sprint(round + 1), labels: map[string]string{},
		}
		for label, values := range map[string]string{"app": "abc", "tier": "xy", "size": "159"} {
			if at := random.IntN(5); at < len(values) {
				made.labels[label] = values[at : at+1]
			}
		}
		if random.IntN(2) == 0 {
			made.controller = fmt.Sprint("owner", random.IntN(3))
		}
		k := key{made.namespace, made.name}
		if random.IntN(3) == 0 {
			if got := s.remove(k); got != all[k] {
				t.Fatalf("removing %v returned %v, want %v", k, got, all[k])
			}
			delete(all, k)
		} else {
			o := made.object(t)
			if got := s.put(o); got != all[k] {
				t.Fatalf("putting %v returned %v, want %v", k, got, all[k])
			}
			all[k] = o
		}
		if round%10 != 0 {
			continue
		}
		check := func(what string, got []*object.Object, want func(*object.Object) bool) {
			t.Helper()
			var expected []*object.Object
			for _, o := range all {
				if want(o) {
					expected = append(expected, o)
				}
			}
			if diff := gocmp.Diff(names(expected), names(got)); diff != "" {
				t.Fatalf("round %d: %s (-want +got)\n%s", round, what, diff)
			}
		}
		var bytes int64
		for _, o := range all {
			bytes += int64(len(o.JSON()))
		}
		if n, size := s.size(); n != len(all) || size != bytes {
			t.Fatalf("round %d: %d objects of %d bytes, want %d of %d", round, n, size, len(all), bytes)
		}
		for _, namespace := range []string{"", "ns0", "ns2", "none"} {
			here := func(o *object.Object) bool { return namespace == "" || o.Namespace() == namespace }
			check("list of "+namespace, s.list(namespace), here)
			for _, text := range selectors {
				selector, err := labels.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				check("orphans with "+text+" of "+namespace, s.matching(&s.orphans, namespace, selector), func(o *object.Object) bool {
					return here(o) && o.Controller() == nil && selector.Matches(labels.Set(o.Labels()))
				})
				check("objects with "+text+" of "+namespace, s.matching(&s.all, namespace, selector), func(o *object.Object) bool {
					return here(o) && selector.Matches(labels.Set(o.Labels()))
				})
			}
		}
		for _, wanted := range [][]string{{"n0"}, {"n1", "n7", "none"}, nil, {"n0", "n1", "n10", "n11", "n12", "n13", "n14", "n15", "n16", "n17", "n18", "n19", "n2"}} {
			check(fmt.Sprint("objects named ", wanted), s.named(wanted), func(o *object.Object) bool { return slices.Contains(wanted, o.Name()) })
		}
		for _, owner := range []types.UID{"owner0", "owner2", "nobody"} {
			check("controlled by "+string(owner), s.controlledBy(owner), func(o *object.Object) bool {
				return o.Controller() != nil && o.Controller().UID == owner
			})
		}
		if s.len() != len(all) {
			t.Fatalf("round %d: len is %d, want %d", round, s.len(), len(all))
		}
	}
	for k := range all {
		s.remove(k)
	}
	left := len(s.all.objects) + s.all.count + len(s.controlled) + len(s.orphans.objects) + s.orphans.count
	for _, g := range []*group{&s.all, &s.orphans} {
		if len(g.postings) == 0 {
			t.Error("selectors were used again and again, and no label is indexed")
		}
		for _, p := range g.postings {
			left += len(p.values)
		}
	}
	if left != 0 {
		t.Errorf("%d entries are left in indexes of an empty store", left)
	}
	if got := s.matching(&s.orphans, "", labels.Nothing()); len(got) != 0 {
		t.Errorf("a selector that matches nothing found %v", got)
	}
}

// TestLabelsThatNoSelectorUsesAnyMoreAreDropped has a selector with a label of its own for each parent.
func TestLabelsThatNoSelectorUsesAnyMoreAreDropped(t *testing.T) {
	s := newStore()
	const parents = 10 * maxPostings
	find := func(parent int) []*object.Object {
		return s.matching(&s.orphans, "ns", labels.SelectorFromSet(labels.Set{fmt.Sprint("parent-", parent): "yes"}))
	}
	for n := range parents {
		s.put(spec{namespace: "ns", name: fmt.Sprint("n", n), uid: fmt.Sprint("u", n), version: "1", labels: map[string]string{
			fmt.Sprint("parent-", n): "yes", "app": "a",
		}}.object(t))
	}
	common := labels.SelectorFromSet(labels.Set{"app": "a"})
	for n := range parents {
		if found := find(n); len(found) != 1 || found[0].Name() != fmt.Sprint("n", n) {
			t.Fatalf("parent %d has the orphans %v", n, names(found))
		}
		if found := s.matching(&s.orphans, "ns", common); len(found) != parents {
			t.Fatalf("%d orphans have the common label, want %d", len(found), parents)
		}
	}
	if len(s.orphans.postings) > maxPostings {
		t.Errorf("%d labels are indexed, want at most %d", len(s.orphans.postings), maxPostings)
	}
	if s.orphans.postings["app"] == nil {
		t.Error("the label that is used all the time was dropped")
	}
	if found := find(0); len(found) != 1 {
		t.Errorf("a parent whose label was dropped has the orphans %v", names(found))
	}
}

// TestALabelIsIndexedWhenItIsWorthIt has selectors that look at one of many small namespaces.
func TestALabelIsIndexedWhenItIsWorthIt(t *testing.T) {
	s := newStore()
	const namespaces, each = 50, 4
	for n := range namespaces * each {
		s.put(spec{namespace: fmt.Sprint("ns", n%namespaces), name: fmt.Sprint("n", n), version: "1", labels: map[string]string{
			"app": "a", fmt.Sprint("label-", n%namespaces): "yes",
		}}.object(t))
	}
	for n := range namespaces {
		namespace, label := fmt.Sprint("ns", n), fmt.Sprint("label-", n)
		if found := s.matching(&s.all, namespace, labels.SelectorFromSet(labels.Set{label: "yes"})); len(found) != each {
			t.Fatalf("%s has the objects %v with its own label, want %d", namespace, names(found), each)
		}
	}
	if len(s.all.postings) != 0 {
		t.Errorf("%d labels are indexed that were looked for once, in a small namespace", len(s.all.postings))
	}
	for n := range namespaces {
		if found := s.matching(&s.all, fmt.Sprint("ns", n), labels.SelectorFromSet(labels.Set{"app": "a"})); len(found) != each {
			t.Fatalf("namespace %d has the objects %v with the common label, want %d", n, names(found), each)
		}
	}
	if s.all.postings["app"] == nil || len(s.all.postings) != 1 {
		t.Errorf("indexed are %v, want the label that all looked for", s.all.postings)
	}
	if len(s.all.scanned) > maxPostings {
		t.Errorf("scans of %d labels are remembered, want at most %d", len(s.all.scanned), maxPostings)
	}
}

// counting counts the objects at which a selector is made to look.
type counting struct {
	labels.Selector

	looked int
}

func (c *counting) Matches(set labels.Labels) bool {
	c.looked++
	return c.Selector.Matches(set)
}

func TestALookupCostsTheObjectsWithTheRarestLabelThatItsSelectorDemands(t *testing.T) {
	const each = 4
	for _, row := range []struct {
		why      string
		selector func(instance int) string
		// before are selectors that were looked for before.
		before []string
	}{
		{"the rare label comes last", func(i int) string { return fmt.Sprint("app=shop,b-instance=", i) }, nil},
		{"the rare label comes first", func(i int) string { return fmt.Sprint("b-instance=", i, ",z-app=shop") }, nil},
		{"a label without a value is demanded beside", func(i int) string { return fmt.Sprint("app,b-instance=", i) }, nil},
		{"several values", func(i int) string { return fmt.Sprintf("app in (shop,other),b-instance in (%d,none)", i) }, nil},
		{"the common label is indexed already", func(i int) string { return fmt.Sprint("app=shop,b-instance=", i) }, []string{"app=shop", "app=shop"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			for _, count := range []int{1000, 10000} {
				s := newStore()
				for n := range count {
					s.put(spec{namespace: "ns", name: fmt.Sprint("n", n), version: "1", labels: map[string]string{
						"app": "shop", "b-instance": fmt.Sprint(n / each), "z-app": "shop",
					}}.object(t))
				}
				find := func(text string) *counting {
					selector, err := labels.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					c := &counting{Selector: selector}
					s.matching(&s.all, "", c)
					return c
				}
				for _, text := range row.before {
					find(text)
				}
				for i := range 3 { // The labels are indexed after this.
					find(row.selector(i))
				}
				for i := range 20 {
					if c := find(row.selector(100 + i)); c.looked != each {
						t.Errorf("of %d objects a lookup looks at %d, want the %d that match", count, c.looked, each)
					}
				}
				if row.before == nil && len(s.all.postings) != 1 {
					t.Errorf("%d labels are indexed, of which one is of use", len(s.all.postings))
				}
			}
		})
	}
}

func names(objects []*object.Object) []string {
	found := make([]string, 0, len(objects))
	for _, o := range objects {
		found = append(found, o.Namespace()+"/"+o.Name()+"@"+o.ResourceVersion())
	}
	slices.SortFunc(found, cmp.Compare[string])
	return found
}

func TestWhatIsLeftOfAnOwnersObjectsDoesNotHoldThoseThatAreGone(t *testing.T) {
	const size, owners = 1 << 18, 32
	s := newStore()
	parse := func(owner int, name, more string) *object.Object {
		o, err := object.Parse(fmt.Appendf(nil, `{"more":%q,"metadata":{"name":"%s-%d","ownerReferences":[{"uid":"owner-%d","controller":true}]}}`,
			more, name, owner, owner), object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	inUse := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := inUse()
	for owner := range owners {
		s.put(parse(owner, "small", ""))
		large := parse(owner, "large", strings.Repeat("x", size))
		s.put(large)
		s.remove(key{large.Namespace(), large.Name()})
	}
	if grown := inUse() - before; grown > owners*size/4 {
		t.Errorf("%d objects of %d bytes that are gone keep %d bytes in use", owners, size, grown)
	}
	if got := len(s.controlledBy("owner-0")); got != 1 {
		t.Errorf("%d objects are left of an owner, want 1", got)
	}
}

// panicking is a body that panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a hole in the parser") }
func (panicking) Close() error             { return nil }

// onePanic is a transport that makes the first response to lists, or to watches, panic while it is read.
type onePanic struct {
	next  http.RoundTripper
	watch bool
	done  atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (p *onePanic) RoundTrip(r *http.Request) (*http.Response, error) {
	if watch := r.URL.Query().Get("watch") != ""; watch == p.watch && p.done.CompareAndSwap(false, true) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: panicking{}, Request: r}, nil
	}
	return p.next.RoundTrip(r)
}

// onePod has a pod in the list, and another in the watch.
func onePod(t *testing.T) *apiServer {
	t.Helper()
	return &apiServer{
		t: t,
		list: func(*http.Request) (int, string) {
			return http.StatusOK, fmt.Sprintf(listOf, "5", "", fmt.Sprintf(item, "a", "1", "u1"))
		},
		watch: func(r *http.Request) (int, string, func(func(string))) {
			return http.StatusOK, "", func(send func(string)) {
				send(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":"6","uid":"u2"}}}`)
				<-r.Context().Done()
			}
		},
	}
}

// TestAPanicWhileReadingFailsTheRequestOnly would end the process, for client-go reads on goroutines of its own.
func TestAPanicWhileReadingFailsTheRequestOnly(t *testing.T) {
	for name, watch := range map[string]bool{"list": false, "watch": true} {
		t.Run(name, func(t *testing.T) {
			failing := &onePanic{watch: watch}
			i := onePod(t).run(func(next http.RoundTripper) http.RoundTripper {
				failing.next = next
				return failing
			}).Acquire(pods())
			defer i.Release()
			if !watch {
				<-i.Failed()
			}
			eventually(t, "both pods", func() bool { return failing.done.Load() && i.Len() == 2 && i.Err() == nil })
		})
	}
}

// TestAPanicOfAnInformerIsItsErrorUntilItRunsAgain breaks the store, in place of an unknown bug.
func TestAPanicOfAnInformerIsItsErrorUntilItRunsAgain(t *testing.T) {
	s := onePod(t)
	c, err := New(Options{Config: s.config()})
	if err != nil {
		t.Fatal(err)
	}
	i := c.Acquire(pods())
	defer i.Release()
	whole := i.store
	i.store = nil
	s.start(c)
	<-i.Failed()
	eventually(t, "the error", func() bool { return i.Err() != nil && strings.Contains(i.Err().Error(), "panic while watching") })
	i.deliver.Lock()
	i.store = whole
	i.deliver.Unlock()
	select {
	case <-i.Synced():
	case <-time.After(30 * time.Second):
		t.Fatal("the informer did not start again")
	}
	eventually(t, "no error", func() bool { return i.Err() == nil })
}

func TestAPanicOfAnObserverStopsNothing(t *testing.T) {
	i := newInformer(nil, Query{})
	broken := i.Observe(func(string, Event) { panic("an observer") })
	broken.Wake()
	defer broken.Close()
	seen := ""
	observer := i.Observe(func(version string, _ Event) { seen = version })
	observer.Wake()
	defer observer.Close()
	if err := i.Bookmark("7"); err != nil || seen != "7" {
		t.Errorf("the next observer saw %q, error %v", seen, err)
	}
}

// TestWhatAHandlerMissedByAPanicIsRepeated lets changes happen between the panic and the next bookmark.
func TestWhatAHandlerMissedByAPanicIsRepeated(t *testing.T) {
	at := func(uid, version string) *object.Object { return spec{name: "a", uid: uid, version: version}.object(t) }
	for name, tc := range map[string]struct {
		missed, meanwhile func(i *Informer) error
		want              []string
	}{
		"Update": {func(i *Informer) error { return i.Update(at("u1", "2")) }, nil, []string{"updated a2 from 1"}},
		"UpdateAndAnother": {
			func(i *Informer) error { return i.Update(at("u1", "2")) }, func(i *Informer) error { return i.Update(at("u1", "3")) },
			[]string{"updated a3 from 2", "updated a3 from 1"},
		},
		"UpdateOfWhatIsGone": {
			func(i *Informer) error { return i.Update(at("u1", "2")) }, func(i *Informer) error { return i.Delete(at("u1", "3")) },
			[]string{"deleted a3", "deleted a1"},
		},
		"Deletion": {func(i *Informer) error { return i.Delete(at("u1", "2")) }, nil, []string{"deleted a2"}},
		"DeletionOfWhatIsReplaced": {
			func(i *Informer) error { return i.Delete(at("u1", "2")) }, func(i *Informer) error { return i.Add(at("u2", "3")) },
			[]string{"added a3", "deleted a2", "added a3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInformer(nil, Query{})
			r := &recorder{}
			broken := false
			cancel := i.Subscribe(func(e Event) {
				if broken {
					panic("broken")
				}
				r.handle(e)
			})
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			do(i.Add(at("u1", "1")))
			r.expect(t, "added a1")
			before := recovery.Count()
			broken = true
			do(tc.missed(i))
			do(i.Bookmark("10"))
			if got := recovery.Count() - before; got != 2 {
				t.Errorf("counted %d panics, want that of the event and that of its repetition", got)
			}
			broken = false
			if tc.meanwhile != nil {
				do(tc.meanwhile(i))
			}
			if i.Err() == nil || !strings.Contains(i.Err().Error(), "panic while handling an event of the cache: broken") {
				t.Errorf("the error is %v, want the panic", i.Err())
			}
			do(i.Bookmark("11"))
			r.expect(t, tc.want...)
			do(i.Bookmark("12"))
			r.expect(t)
			if i.Err() != nil {
				t.Errorf("the error is %v after the handler ran", i.Err())
			}
			broken = true
			do(i.Add(spec{name: "b", uid: "b", version: "13"}.object(t)))
			cancel()
			if i.Err() != nil {
				t.Errorf("the error is %v after the handler's end", i.Err())
			}
		})
	}
}

func TestThatAHandlerMissesAChangeIsToldWhenItBeginsAndEnds(t *testing.T) {
	i := newInformer(nil, Query{})
	var told []bool
	defer i.NotifyErr(func() { told = append(told, i.Err() != nil) })()
	broken := true
	defer i.Subscribe(func(Event) {
		if broken {
			panic("broken")
		}
	})()
	add := func(name string) {
		t.Helper()
		if err := i.Add(spec{name: name, uid: name, version: "1"}.object(t)); err != nil {
			t.Fatal(err)
		}
	}
	add("a")
	add("b")
	broken = false
	if err := i.Bookmark("2"); err != nil {
		t.Fatal(err)
	}
	add("c")
	if want := []bool{true, false}; !slices.Equal(told, want) {
		t.Errorf("it was told that there is an error: %v, want %v", told, want)
	}
}

var _ io.ReadCloser = panicking{}

const benchObjects = 10000

// benchServer lists many objects of 0.9 KB, as a controller makes them.
func benchServer(b *testing.B) *rest.Config {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("sendInitialEvents") {
			// client-go lists when a server does not know such watches.
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
			return
		}
		if r.URL.Query().Get("watch") != "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		var buffer strings.Builder
		buffer.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"20000"},"items":[`)
		for n := range benchObjects {
			if n > 0 {
				buffer.WriteByte(',')
			}
			fmt.Fprintf(&buffer, `{"metadata":{"name":"child-%[1]d","namespace":"ns-%[2]d",`+
				`"uid":"9f3c1f5e-7a0b-4f57-9d0a-%012[1]d","resourceVersion":"%[1]d","creationTimestamp":"2026-01-02T03:04:05Z",`+
				`"labels":{"app":"bench","controller-uid":"11111111-2222-3333-4444-%012[3]d"},`+
				`"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Parent","name":"parent-%[3]d","uid":"11111111-2222-3333-4444-%012[3]d","controller":true,"blockOwnerDeletion":true}],`+
				`"managedFields":[{"manager":"metacontroller","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:key":{}},"f:metadata":{"f:annotations":{".":{}},"f:labels":{".":{},"f:app":{}},"f:ownerReferences":{".":{}}}}}]},`+
				`"data":{"key":%[4]q}}`, n+1, n%100, n/3, strings.Repeat("x", 200))
			if buffer.Len() > 1<<20 {
				_, _ = w.Write([]byte(buffer.String()))
				buffer.Reset()
			}
		}
		buffer.WriteString("]}")
		_, _ = w.Write([]byte(buffer.String()))
	}))
	b.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// BenchmarkInformerMemory measures what a synced informer with its indexes keeps for each object, ours and client-go's
// dynamic one.
func BenchmarkInformerMemory(b *testing.B) {
	config := benchServer(b)
	measure := func(b *testing.B, sync func(ctx context.Context) (release func())) {
		for b.Loop() {
			ctx, stop := context.WithCancel(b.Context())
			before := heap()
			release := sync(ctx)
			b.ReportMetric(float64(heap()-before)/benchObjects, "bytes/object")
			stop()
			release()
		}
	}
	b.Run("Compact", func(b *testing.B) {
		measure(b, func(ctx context.Context) func() {
			c, err := New(Options{Config: config})
			if err != nil {
				b.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.Run(ctx)
			}()
			i := c.Acquire(pods())
			<-i.Synced()
			if i.Len() != benchObjects {
				b.Fatalf("%d objects", i.Len())
			}
			return func() {
				<-ended
				i.Release()
			}
		})
	})
	b.Run("Dynamic", func(b *testing.B) {
		measure(b, func(ctx context.Context) func() {
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				b.Fatal(err)
			}
			factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
			informer := factory.ForResource(pods().Resource).Informer()
			factory.Start(ctx.Done())
			if !clientcache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				b.Fatal("not synced")
			}
			if n := len(informer.GetStore().ListKeys()); n != benchObjects {
				b.Fatalf("%d objects", n)
			}
			return factory.Shutdown
		})
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkClaimLookup measures the lookups of a sync in the indexes: the children of one owner, and the orphans that its
// selector matches, among many children of others.
func BenchmarkClaimLookup(b *testing.B) {
	i := newInformer(nil, Query{})
	for n := range benchObjects {
		s := spec{
			namespace: fmt.Sprint("ns", n%10), name: fmt.Sprint("n", n), uid: fmt.Sprint("u", n), version: fmt.Sprint(n + 1),
			controller: fmt.Sprint("owner", n/3),
		}
		if err := i.Add(s.object(b)); err != nil {
			b.Fatal(err)
		}
	}
	selector := labels.SelectorFromSet(labels.Set{"controller-uid": "owner7"})
	b.ReportAllocs()
	for b.Loop() {
		if children := i.ControlledBy("owner7"); len(children) != 3 {
			b.Fatalf("%d children", len(children))
		}
		if orphans := i.Orphans("ns1", selector); len(orphans) != 0 {
			b.Fatalf("%d orphans", len(orphans))
		}
	}
}

// BenchmarkOrphanEvent measures what a change of an orphan costs when selectors use many labels.
func BenchmarkOrphanEvent(b *testing.B) {
	for _, selectors := range []int{1, 2000} {
		b.Run(fmt.Sprint(selectors), func(b *testing.B) {
			s := newStore()
			o := spec{namespace: "ns", name: "a", uid: "u", version: "1", labels: map[string]string{"key-0": "a", "tier": "x"}}.object(b)
			s.put(o)
			for n := range selectors {
				s.matching(&s.orphans, "ns", labels.SelectorFromSet(labels.Set{fmt.Sprint("key-", n): "a"}))
			}
			b.ReportAllocs()
			for b.Loop() {
				s.put(o)
			}
		})
	}
}

// BenchmarkMatching measures how a rule finds the few objects with a label among the many of its namespace.
// matching prepares lookups among so many objects, of which ten match.
func matching(selector func(slot int) labels.Set) slope.Prepare {
	return func(tb testing.TB, n int) func() {
		tb.Helper()
		s := newStore()
		for i := range n {
			s.put(spec{namespace: "ns", name: fmt.Sprint("n", i), version: "1", labels: map[string]string{
				"slot": fmt.Sprint(i / 10), "app": "a",
			}}.object(tb))
		}
		slot := 0
		return func() {
			slot++
			if found := s.matching(&s.all, "ns", labels.SelectorFromSet(selector(slot%max(1, n/10)))); len(found) != 10 {
				tb.Fatalf("%d objects", len(found))
			}
		}
	}
}

func bySlot(slot int) labels.Set { return labels.Set{"slot": fmt.Sprint(slot)} }

func bySlotAndCommonLabel(slot int) labels.Set {
	return labels.Set{"app": "a", "slot": fmt.Sprint(slot)}
}

func BenchmarkMatching(b *testing.B) { slope.Benchmark(b, matching(bySlot)) }

func BenchmarkMatchingOfTwoLabels(b *testing.B) { slope.Benchmark(b, matching(bySlotAndCommonLabel)) }

func TestALookupDoesNotCostTheObjectsThatDoNotMatch(t *testing.T) {
	slope.Check(t, 1000, slope.Constant, matching(bySlot))
	slope.Check(t, 1000, slope.Constant, matching(bySlotAndCommonLabel))
}
