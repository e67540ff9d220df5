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

package reconciler

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/access"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
)

func TestParentsThatAreFinalizedForLongAreReportedOnce(t *testing.T) {
	var f parents
	a, b, began := f.add(parent.Key{Name: "a"}), f.add(parent.Key{Name: "b"}), time.Now()
	f.finalizes(a, began)
	for _, step := range []struct {
		reason      string
		do          func()
		after       time.Duration
		n, reported int
		due         time.Duration
		waiting     bool
	}{
		{"A hook may take its time.", func() {}, finalizeLimit - 1, 0, 0, finalizeLimit, true},
		{"It may not take more.", func() {}, finalizeLimit, 1, 1, finalizeLimit, true},
		{"Further syncs are the same finalization.", func() { f.finalizes(a, began.Add(finalizeLimit)) }, finalizeLimit, 1, 0, 0, false},
		{"Each parent has its own time.", func() { f.finalizes(b, began.Add(time.Second)) }, finalizeLimit, 1, 0, finalizeLimit + time.Second, true},
		{"Both are late.", func() {}, finalizeLimit + time.Second, 2, 1, finalizeLimit + time.Second, true},
		{"One is finalized.", func() { f.finalized(a) }, time.Hour, 1, 0, 0, false},
		{"One is gone.", func() { f.remove(b.key) }, time.Hour, 0, 0, 0, false},
	} {
		step.do()
		if due, ok := f.next(); ok != step.waiting || ok && !due.Equal(began.Add(step.due)) {
			t.Errorf("the next one is late at %s, %t; want %s, %t: %s", due.Sub(began), ok, step.due, step.waiting, step.reason)
		}
		n, _ := f.late(began.Add(step.after))
		if reported := f.report(began.Add(step.after)); n != step.n || len(reported) != step.reported {
			t.Errorf("%d are late, of which %d are reported now; want %d and %d: %s", n, len(reported), step.n, step.reported, step.reason)
		}
	}
}

// TestAParentWhoseChildrenGoOneByOneIsNotLate has a finalize hook delete children for as long as it takes.
func TestAParentWhoseChildrenGoOneByOneIsNotLate(t *testing.T) {
	var f parents
	a, now := f.add(parent.Key{Name: "a"}), time.Now()
	f.finalizes(a, now)
	for _, step := range []struct {
		reason         string
		children       int
		late, reported bool
	}{
		{"The first sync observes all.", 5, false, false},
		{"One is gone.", 4, false, false},
		{"Two are gone.", 2, false, false},
		{"None is gone since.", 2, true, true},
		{"They are made again.", 5, true, false},
		{"These are gone, as before.", 2, true, false},
		{"One is gone that was there all the time.", 1, false, false},
		{"The last one stays.", 1, true, true},
		{"The last one is gone.", 0, false, false},
		{"The hook does not say that it is done.", 0, true, true},
	} {
		now = now.Add(finalizeLimit)
		f.leaves(a, step.children, now)
		n, _ := f.late(now)
		if reported := f.report(now); n > 0 != step.late || len(reported) > 0 != step.reported {
			t.Errorf("%d are late, %d are reported; want %t and %t: %s", n, len(reported), step.late, step.reported, step.reason)
		}
	}
	f.finalized(a)
	f.leaves(a, 0, now)
	if _, lasts := f.lasts(a.key, now); lasts {
		t.Error("a parent that is not being finalized is late, since it has no children")
	}
}

// TestAParentBecomesLateDuringAPause has it known, though nothing but the time makes it so.
func TestAParentBecomesLateDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{
			hooks: &hooks.Set{Finalize: &hooks.Hook{}}, began: make(chan struct{}, 1),
			activity: make(chan struct{}, 1), shared: &Shared{},
		}
		c.paused.Store(true)
		c.finalizes(c.parents.add(parent.Key{Name: "a"}))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.watchFinalizing(ctx) })
		defer running.Wait()
		defer stop()
		began := time.Now()
		select {
		case <-c.Activity():
		case <-time.After(2 * finalizeLimit):
			t.Fatal("it was not told")
		}
		n, _ := c.parents.late(time.Now())
		if after := time.Since(began); after < finalizeLimit || n != 1 {
			t.Errorf("it was told after %s, when %d were late", after, n)
		}
	})
}

// TestALateParentIsReportedWhileOthersBegin lets the finalization of another parent begin more often than it is looked for late ones.
func TestALateParentIsReportedWhileOthersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, err := cluster.New(cluster.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
		if err != nil {
			t.Fatal(err)
		}
		resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		c := &Controller{
			hooks: &hooks.Set{Finalize: &hooks.Hook{}}, began: make(chan struct{}, 1),
			byResource: map[schema.GroupResource]*Source{resource.GroupResource(): {informer: host.Cache.Acquire(cache.Query{Resource: resource})}},
			shared:     &Shared{},
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.watchFinalizing(ctx) })
		defer running.Wait()
		defer stop()
		const interval = finalizeInterval / 2
		for i := range int(2 * finalizeLimit / interval) {
			c.finalizes(c.parents.add(parent.NewKey(resource.GroupResource(), "", strconv.Itoa(i))))
			<-time.After(interval)
			synctest.Wait()
			if due, ok := c.parents.next(); !ok || time.Since(due) > finalizeInterval {
				t.Fatalf("at parent %d: one was to be reported %s ago", i, time.Since(due))
			}
		}
	})
}

// TestAHookThatIsNotCalledIsNotBlamed lets parents wait for the finalize hook while the service account may not do what every sync needs.
func TestAHookThatIsNotCalledIsNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{
			hooks: &hooks.Set{Finalize: &hooks.Hook{}}, began: make(chan struct{}, 1),
			shared: &Shared{Access: access.New(access.Config{Account: rights.Account{Namespace: "team", Name: "alice"}})},
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.watchFinalizing(ctx) })
		defer running.Wait()
		defer stop()
		c.finalizes(c.parents.add(parent.Key{Name: "a"}))
		<-time.After(2 * finalizeLimit)
		synctest.Wait()
		if keys := c.parents.report(time.Now()); len(keys) != 1 {
			t.Error("it was reported while the controller was held")
		}
	})
}
