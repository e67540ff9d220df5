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
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

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
