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

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// clients is the number of concurrent clients of the limit, and of those that change parents.
const clients = 16

// measure measures all workloads of one size in a namespace of its own.
func (b *bench) measure(ctx context.Context, s size) ([]result, error) {
	b.serial++
	limit, err := b.limit(ctx, s, fmt.Sprintf("limit-%d", b.serial))
	if err != nil {
		return nil, fmt.Errorf("the limit: %w", err)
	}
	namespace := fmt.Sprintf("bench-%d", b.serial)
	if err := b.namespace(ctx, namespace); err != nil {
		return nil, err
	}
	m := b.newMeter(s, namespace)
	defer m.close()
	var results []result
	for _, w := range []struct {
		name  string
		limit float64
		run   func(context.Context) error
	}{
		{"create", limit.create, m.create},
		{"steady", 0, m.steady},
		{"update", limit.update, m.update},
		{"drift", 0, m.drift},
		{"restart", 0, m.restart},
	} {
		fmt.Fprintf(os.Stderr, "%s %s …\n", w.name, s)
		r, err := m.workload(ctx, w.name, w.limit, w.run)
		if err != nil {
			return results, fmt.Errorf("%s: %w", w.name, err)
		}
		results = append(results, r)
	}
	return results, m.remove(ctx)
}

// limits are the times of the bare writes.
type limits struct{ create, update float64 }

// limit does the writes that must be done, and nothing else.
func (b *bench) limit(ctx context.Context, s size, namespace string) (limits, error) {
	var l limits
	if err := b.namespace(ctx, namespace); err != nil {
		return l, err
	}
	fmt.Fprintf(os.Stderr, "limit %s …\n", s)
	started := time.Now()
	err := each(ctx, s.parents, func(i int) error {
		name := fmt.Sprintf("p%d", i)
		written, err := b.client.Create(ctx, target(namespace, ""), parentBody(namespace, name, s, "1", false))
		if err != nil {
			return err
		}
		for c := range s.children {
			if _, err := b.client.Create(ctx, childTarget(namespace, ""), childBody(namespace, name, c, "1", written)); err != nil {
				return err
			}
		}
		return b.bareStatus(ctx, namespace, name, s.children, "1")
	})
	if err != nil {
		return l, err
	}
	l.create = time.Since(started).Seconds()
	started = time.Now()
	err = each(ctx, s.parents, func(i int) error {
		name := fmt.Sprintf("p%d", i)
		written, err := b.client.Patch(ctx, target(namespace, name), types.MergePatchType, []byte(`{"spec":{"revision":"2"}}`))
		if err != nil {
			return err
		}
		for c := range s.children {
			body := childBody(namespace, name, c, "2", written)
			if _, err := b.client.Update(ctx, childTarget(namespace, fmt.Sprintf("%s-%d", name, c)), body); err != nil {
				return err
			}
		}
		return b.bareStatus(ctx, namespace, name, s.children, "2")
	})
	l.update = time.Since(started).Seconds()
	if err != nil {
		return l, err
	}
	return l, b.clear(ctx, namespace)
}

func (b *bench) bareStatus(ctx context.Context, namespace, name string, children int, revision string) error {
	t := target(namespace, name)
	t.Subresource = "status"
	_, err := b.client.Patch(ctx, t, types.MergePatchType, fmt.Appendf(nil, `{"status":{"children":%d,"revision":%q}}`, children, revision))
	return err
}

// meter measures workloads on the parents of one namespace.
type meter struct {
	*bench
	size      size
	namespace string
	parents   *cache.Informer
	cancel    func()

	mu       sync.Mutex
	revision string
	changed  map[string]time.Time
	took     []float64
	left     int
	done     chan struct{}
}

func (b *bench) newMeter(s size, namespace string) *meter {
	m := &meter{bench: b, size: s, namespace: namespace, changed: map[string]time.Time{}}
	m.parents = b.cache.Acquire(cache.Query{Resource: parentResource, LabelSelector: "bench=yes"})
	m.cancel = m.parents.Subscribe(m.seen)
	return m
}

func (m *meter) close() {
	m.cancel()
	m.parents.Release()
}

// workload runs a workload and says what it took.
func (m *meter) workload(ctx context.Context, name string, limit float64, run func(context.Context) error) (result, error) {
	before, err := m.settle(ctx)
	if err != nil {
		return result{}, err
	}
	m.mu.Lock()
	m.took = nil
	m.mu.Unlock()
	profiled := make(chan error, 1)
	if m.profile != "" && name == "create" {
		go func() { profiled <- m.writeProfile(ctx, "cpu.pprof", "profile?seconds=8") }()
	} else {
		profiled <- nil
	}
	started := time.Now()
	if err := run(ctx); err != nil {
		return result{}, err
	}
	seconds := time.Since(started).Seconds()
	if err := <-profiled; err != nil {
		return result{}, err
	}
	after, err := m.settle(ctx)
	if err != nil {
		return result{}, err
	}
	r := result{
		Workload: name, Parents: m.size.parents, Children: m.size.children, Seconds: seconds, Limit: limit,
		CallsPerParent: float64(after.hook.Calls-before.hook.Calls) / float64(m.size.parents),
		Requests:       map[string]int64{}, CPU: after.cpu - before.cpu,
		PerThousand: (after.cpu - before.cpu) / float64(m.size.parents) * 1000, RSSBefore: before.rss, RSSAfter: after.rss,
	}
	if limit > 0 {
		r.Ratio = seconds / limit
	}
	if name == "restart" {
		// The counters started anew with the process.
		r.CPU, r.PerThousand = after.cpu, after.cpu/float64(m.size.parents)*1000
		before.requests = nil
	}
	for method, n := range after.requests {
		r.Requests[method] = n - before.requests[method]
	}
	if name == "create" {
		r.BytesPerObject = (after.rss - before.rss) * (1 << 20) / float64(m.size.parents*(1+m.size.children))
		if err := m.writeProfile(ctx, "heap.pprof", "heap?gc=1"); err != nil {
			return r, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.took)
	if n := len(m.took); n > 0 {
		r.P50, r.P99 = m.took[n/2], m.took[n*99/100]
	}
	return r, nil
}

// settle waits until the hook is left alone for two seconds, and returns the usage then.
func (m *meter) settle(ctx context.Context) (usage, error) {
	last, err := m.usage(ctx)
	for err == nil {
		if err = pause(ctx, 2*time.Second); err != nil {
			break
		}
		var now usage
		if now, err = m.usage(ctx); err == nil && now.hook.Calls == last.hook.Calls {
			return now, nil
		}
		last = now
	}
	return last, err
}

// expect starts to wait for all parents to converge to a revision.
func (m *meter) expect(revision string, left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision, m.left, m.done = revision, left, make(chan struct{})
	m.changed = make(map[string]time.Time, left)
}

func (m *meter) note(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed[name] = time.Now()
}

// seen is told of every change of a parent.
func (m *meter) seen(e cache.Event) {
	if e.New == nil || e.New.Namespace() != m.namespace {
		return
	}
	raw, ok := e.New.Field("status")
	if !ok {
		return
	}
	var status struct {
		Children           int    `json:"children"`
		Revision           string `json:"revision"`
		ObservedGeneration int64  `json:"observedGeneration"`
	}
	if json.Unmarshal(raw, &status) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	since, waited := m.changed[e.New.Name()]
	if !waited || status.Revision != m.revision || status.Children != m.size.children || status.ObservedGeneration != e.New.Generation() {
		return
	}
	delete(m.changed, e.New.Name())
	m.took = append(m.took, float64(time.Since(since).Microseconds())/1000)
	if m.left--; m.left == 0 {
		close(m.done)
	}
}

func (m *meter) await(ctx context.Context) error {
	m.mu.Lock()
	done := m.done
	m.mu.Unlock()
	timeout := time.NewTimer(10 * time.Minute)
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Errorf("%d parents have not converged", m.left)
	}
}

func (m *meter) create(ctx context.Context) error {
	m.expect("1", m.size.parents)
	err := each(ctx, m.size.parents, func(i int) error {
		name := fmt.Sprintf("p%d", i)
		m.note(name)
		_, err := m.client.Create(ctx, target(m.namespace, ""), parentBody(m.namespace, name, m.size, "1", true))
		return err
	})
	if err != nil {
		return err
	}
	return m.await(ctx)
}

func (m *meter) update(ctx context.Context) error {
	m.expect("2", m.size.parents)
	err := each(ctx, m.size.parents, func(i int) error {
		name := fmt.Sprintf("p%d", i)
		m.note(name)
		_, err := m.client.Patch(ctx, target(m.namespace, name), types.MergePatchType, []byte(`{"spec":{"revision":"2"}}`))
		return err
	})
	if err != nil {
		return err
	}
	return m.await(ctx)
}

// steady does nothing for a while, in which nothing should happen.
func (m *meter) steady(ctx context.Context) error { return pause(ctx, 15*time.Second) }

// drift deletes one child of each parent and waits until all are there again.
func (m *meter) drift(ctx context.Context) error {
	informer := m.bench.cache.Acquire(cache.Query{Resource: childResource})
	defer informer.Release()
	select {
	case <-informer.Synced():
	case <-ctx.Done():
		return ctx.Err()
	}
	// Names of the children that are to come back, with the time at which they went.
	names := map[string]time.Time{}
	var mu sync.Mutex
	left, done := m.size.parents, make(chan struct{})
	defer informer.Subscribe(func(e cache.Event) {
		if e.Type != cache.Added || e.Initial || e.New.Namespace() != m.namespace {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		since, ok := names[e.New.Name()]
		if !ok {
			return
		}
		delete(names, e.New.Name())
		m.mu.Lock()
		m.took = append(m.took, float64(time.Since(since).Microseconds())/1000)
		m.mu.Unlock()
		if left--; left == 0 {
			close(done)
		}
	})()
	err := each(ctx, m.size.parents, func(i int) error {
		name := fmt.Sprintf("p%d-0", i)
		o, ok := informer.Get(m.namespace, name)
		if !ok {
			return fmt.Errorf("child %s is missing", name)
		}
		mu.Lock()
		names[name] = time.Now()
		mu.Unlock()
		return m.client.Delete(ctx, childTarget(m.namespace, name), o.UID())
	})
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restart restarts the server with everything settled, and waits until a fresh change is handled.
func (m *meter) restart(ctx context.Context) error {
	m.stopServer()
	if err := m.startServer(ctx); err != nil {
		return err
	}
	m.expect("1", 1)
	m.note("fresh")
	if _, err := m.client.Create(ctx, target(m.namespace, ""), parentBody(m.namespace, "fresh", m.size, "1", true)); err != nil {
		return err
	}
	if err := m.await(ctx); err != nil {
		return err
	}
	return pause(ctx, 5*time.Second)
}

// remove deletes everything, so that the next size starts with an empty cluster.
func (m *meter) remove(ctx context.Context) error { return m.clear(ctx, m.namespace) }

// clear deletes the parents and children of a namespace.
func (b *bench) clear(ctx context.Context, namespace string) error {
	for _, t := range []client.Target{target(namespace, ""), childTarget(namespace, "")} {
		if err := b.client.DeleteCollection(ctx, t); err != nil {
			return fmt.Errorf("deleting %s: %w", t.Resource.Resource, err)
		}
	}
	return nil
}

// each calls do for 0 to n-1 from all clients.
func each(ctx context.Context, n int, do func(i int) error) error {
	numbers, errs := make(chan int), make(chan error, clients)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for i := range numbers {
				if err := do(i); err != nil {
					errs <- err
					cancel()
					return
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case numbers <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(numbers)
	running.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return ctx.Err()
	}
}

func target(namespace, name string) client.Target {
	return client.Target{Resource: parentResource, Namespace: namespace, Name: name}
}

func childTarget(namespace, name string) client.Target {
	return client.Target{Resource: childResource, Namespace: namespace, Name: name}
}

func parentBody(namespace, name string, s size, revision string, selected bool) []byte {
	labels := `{}`
	if selected {
		labels = `{"bench":"yes"}`
	}
	return fmt.Appendf(nil, `{"apiVersion":"bench.example.com/v1","kind":"Thing","metadata":{"name":%q,"namespace":%q,"labels":%s},`+
		`"spec":{"children":%d,"revision":%q}}`, name, namespace, labels, s.children, revision)
}

func childBody(namespace, parent string, i int, revision string, owner *object.Object) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d","namespace":%q,"labels":{"controller-uid":%q},`+
		`"ownerReferences":[{"apiVersion":"bench.example.com/v1","kind":"Thing","name":%q,"uid":%q,"controller":true,"blockOwnerDeletion":true}]},`+
		`"data":{"revision":%q,"payload":%q}}`, parent, i, namespace, owner.UID(), parent, owner.UID(), revision, payload)
}

func (b *bench) namespace(ctx context.Context, name string) error {
	t := client.Target{Resource: childResource.GroupVersion().WithResource("namespaces")}
	_, err := b.client.Create(ctx, t, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
	return err
}
