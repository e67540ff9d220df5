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
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// meter measures workloads on the parents of one namespace, of the controllers whose names begin with a prefix.
type meter struct {
	*bench
	waits
	size       size
	namespace  string
	controller string
	revision   string
	release    []func()
	// results are those of one.
	results []report.Result
	// podRevision is the revision that all pods have.
	podRevision int
}

// newMeter returns a meter for a subject that has just been started, so that growth of memory is not hidden by what it has
// freed before.
func (b *bench) newMeter(ctx context.Context, s size, controller string) (*meter, error) {
	if !b.plan.quick {
		b.subject.Stop()
		if err := b.subject.Start(ctx); err != nil {
			return nil, err
		}
		if controller != "" && !b.subject.Conditions() {
			if err := b.probe(ctx, controller); err != nil {
				return nil, err
			}
		}
		// What the subject reads and allocates to start is not the workload's.
		if err := pause(ctx, 2*b.plan.settle); err != nil {
			return nil, err
		}
	}
	return b.meterOf(ctx, s, controller)
}

// meterOf returns a meter for the subject as it is.
func (b *bench) meterOf(ctx context.Context, s size, controller string) (*meter, error) {
	namespace, err := b.namespace(ctx, "bench")
	if err != nil {
		return nil, err
	}
	m := &meter{bench: b, size: s, namespace: namespace, controller: controller, revision: "1"}
	err = m.watch(ctx, cache.Query{Resource: parentResource}, m.seeParent)
	return m, err
}

// watch tells handle of the changes of one resource in the namespace until the meter is closed.
func (m *meter) watch(ctx context.Context, q cache.Query, handle func(cache.Event)) error {
	informer := m.cache.Acquire(q)
	cancel := informer.Subscribe(func(e cache.Event) { //nolint:contextcheck // Handlers have none.
		o := e.New
		if o == nil {
			o = e.Old
		}
		if o.Namespace() == m.namespace {
			handle(e)
		}
	})
	m.release = append(m.release, func() { cancel(); informer.Release() })
	select {
	case <-informer.Synced():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *meter) close() {
	for _, release := range m.release {
		release()
	}
}

// seeParent is told of every change of a parent.
func (m *meter) seeParent(e cache.Event) {
	if e.New == nil {
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
	if json.Unmarshal(raw, &status) == nil && status.ObservedGeneration == e.New.Generation() {
		m.is(e.New.Name(), status.Revision, status.Children)
	}
}

// seeChild is told of every change of a child or attachment. Its revision is waited for under "child/" and its name.
func (m *meter) seeChild(e cache.Event) {
	if e.Type == cache.Deleted {
		m.is("gone/"+e.Old.Name(), "", 0)
		return
	}
	raw, ok := e.New.Field("data", "revision")
	if !ok || e.Initial {
		return
	}
	var revision string
	if json.Unmarshal(raw, &revision) == nil {
		m.is("child/"+e.New.Name(), revision, 0)
	}
}

// workload is what is measured at once.
type workload struct {
	name string
	run  func(context.Context) error
	// per is the number of parents by which calls and usage are divided, that of the size where it is zero.
	per int
	// settled says that all objects are settled, so that all writes are unasked for.
	settled bool
	// restarts says that the subject is another process afterwards.
	restarts bool
	// cached is the number of objects that the subject caches afterwards and did not before.
	cached int
}

// measure runs a workload and says what it took.
func (m *meter) measure(ctx context.Context, w workload) (report.Result, error) {
	fmt.Fprintf(os.Stderr, "%s %s, %s …\n", w.name, m.size, m.subject.Name())
	before, err := m.settle(ctx)
	if err != nil {
		return report.Result{}, err
	}
	if before.live, err = m.live(ctx, w); err != nil {
		return report.Result{}, err
	}
	m.times()
	m.timesFromStart()
	profiled := make(chan error, 1)
	if m.profiles(w) {
		go func() { profiled <- m.writeProfile(ctx, "cpu.pprof", "profile?seconds=15") }()
	} else {
		profiled <- nil
	}
	started := time.Now()
	if err := w.run(ctx); err != nil {
		return report.Result{}, fmt.Errorf("%s %s: %w", w.name, m.size, err)
	}
	seconds := time.Since(started).Seconds()
	if err := <-profiled; err != nil {
		return report.Result{}, err
	}
	after, err := m.settle(ctx)
	if err != nil {
		return report.Result{}, err
	}
	if w.restarts {
		// The counters started anew with the process.
		before.cpuAsked, before.own, before.mallocs, before.allocated = 0, nil, 0, 0
	}
	if after.live, err = m.live(ctx, w); err != nil {
		return report.Result{}, err
	}
	r := m.result(w, seconds, before, after)
	if m.profiles(w) {
		err = m.writeProfile(ctx, "heap.pprof", "heap?gc=1")
	}
	return r, err
}

// profiles reports whether profiles are taken of a workload: the creation of 3000×3, or else of the last size.
func (m *meter) profiles(w workload) bool {
	if m.profile == "" || m.peer != nil || w.name != workCreate {
		return false
	}
	sizes := m.plan.sizes
	of := size{3000, 3}
	if !slices.Contains(sizes, of) {
		of = sizes[len(sizes)-1]
	}
	return m.size == of
}

func (m *meter) result(w workload, seconds float64, before, after usage) report.Result {
	per := float64(w.per)
	if per == 0 {
		per = float64(m.size.parents)
	}
	times, calls, callsBefore := report.TimesOf(seconds, m.times(), m.timesFromStart()), after.hook.Total(), before.hook.Total()
	r := report.Result{
		Measured: m.subject.Name(), Workload: w.name, Parents: m.size.parents, Children: m.size.children, Seconds: seconds,
		P50: times.P50, P99: times.P99, StartP50: times.StartP50, StartP99: times.StartP99,
		CallsPerParent:    float64(calls.Calls-callsBefore.Calls) / per,
		BytesInPerParent:  float64(calls.BytesIn-callsBefore.BytesIn) / per,
		BytesOutPerParent: float64(calls.BytesOut-callsBefore.BytesOut) / per,
		Requests:          less(after.requests, before.requests), OwnRequests: less(after.own, before.own),
		CPU: after.cpu - before.cpuAsked, PerThousand: (after.cpu - before.cpuAsked) / per * 1000, HookCPU: after.hookCPU - before.hookCPU,
		APIServerCPU: after.apiServerCPU - before.apiServerCPU, RSSBefore: before.rss, RSSAfter: after.rss,
		Mallocs: (after.mallocs - before.mallocs) / per, AllocBytes: (after.allocated - before.allocated) / per,
	}
	if len(after.own) > 0 {
		attribute(r.Requests, r.OwnRequests["GET"])
	}
	if w.settled {
		writes := r.Writes()
		r.UnaskedWrites = &writes
	}
	if w.cached > 0 {
		r.BytesPerObject = (after.rss - before.rss) * (1 << 20) / float64(w.cached)
		r.LiveBytesPerObject = (after.live - before.live) / float64(w.cached)
	}
	return r
}

// attribute reduces reads to as many as the subject can have made: it counts its GETs itself, watches among them, and the
// rest are the garbage collector's, which lists nothing.
func attribute(requests map[string]int64, own int64) {
	for key, n := range requests {
		if verb, _, _ := strings.Cut(key, " "); verb == "LIST" {
			requests[key] = min(n, own)
			own -= requests[key]
		}
	}
	for key, n := range requests {
		if verb, _, _ := strings.Cut(key, " "); verb == "GET" {
			requests[key] = min(n, own)
		}
	}
}

// less returns what was counted between two readings.
func less(after, before map[string]int64) map[string]int64 {
	counts := map[string]int64{}
	for key, n := range after {
		if n -= before[key]; n != 0 {
			counts[key] = n
		}
	}
	return counts
}

// settle waits until no hook is called and nothing is written for a while, and returns the usage then. To ask the subject itself would cost it what is
// measured.
func (m *meter) settle(ctx context.Context) (usage, error) {
	activity := func() (sum int64, err error) {
		calls, err := m.hookCounts(ctx)
		if err != nil {
			return 0, err
		}
		requests, _, err := m.apiServer(ctx)
		return calls.Total().Calls + report.Result{Requests: requests}.Writes(), err
	}
	last, err := activity()
	for err == nil {
		if err = pause(ctx, m.plan.settle); err != nil {
			break
		}
		now, err := activity()
		if err != nil {
			return usage{}, err
		}
		if now == last {
			return m.usage(ctx)
		}
		last = now
	}
	return usage{}, err
}

// createParents creates all parents and waits until they have converged.
func (m *meter) createParents(ctx context.Context) error {
	m.expect(m.size.parents)
	if err := each(ctx, m.size.parents, func(i int) error { return m.createParent(ctx, parentName(i)) }); err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}

func (m *meter) createParent(ctx context.Context, name string) error {
	m.note(name, m.revision, m.size.children)
	_, err := m.client.Create(ctx, target(m.namespace, ""), parentBody(m.namespace, name, m.size, m.controller, m.revision))
	return err
}

// parentOf returns the name of the parent of a child such as p17-2.
func parentOf(child string) string {
	return child[:max(0, strings.LastIndexByte(child, '-'))]
}

// waits are changes whose effect is waited for. The zero value waits for nothing. It is safe for concurrent use.
type waits struct {
	mu    sync.Mutex
	wants map[string]want
	took  []float64
	// began is when it was begun to wait last, and fromStart how long after that each change has had its effect, in milliseconds.
	began     time.Time
	fromStart []float64

	left  int
	done  chan struct{}
	first time.Time
}

// want is what an object is to become.
type want struct {
	revision string
	children int
	since    time.Time
}

// expect starts to wait for n changes.
func (w *waits) expect(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wants, w.left, w.done, w.first = make(map[string]want, n), n, make(chan struct{}), time.Time{}
	w.began = time.Now()
}

// note says that an object is changed now.
func (w *waits) note(key, revision string, children int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wants[key] = want{revision, children, time.Now()}
}

// is tells what an object has become.
func (w *waits) is(key, revision string, children int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted, ok := w.wants[key]
	if !ok || wanted.revision != revision || wanted.children != children {
		return
	}
	delete(w.wants, key)
	now := time.Now()
	w.took = append(w.took, float64(now.Sub(wanted.since).Microseconds())/1000)
	w.fromStart = append(w.fromStart, float64(now.Sub(w.began).Microseconds())/1000)
	if w.first.IsZero() {
		w.first = now
	}
	if w.left--; w.left == 0 {
		close(w.done)
	}
}

// await waits until all that is expected has happened, and no longer than it may take.
func (w *waits) await(ctx context.Context, most time.Duration) error {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d objects have not converged in %s", w.left, most)
	}
}

// times returns how long each change took since the last call, in milliseconds.
func (w *waits) times() []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := w.took
	w.took = nil
	return took
}

// timesFromStart returns how long after expect each change since the last call had its effect, in milliseconds.
func (w *waits) timesFromStart() []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	fromStart := w.fromStart
	w.fromStart = nil
	return fromStart
}

// usage is what the subject and the hook have used so far.
type usage struct {
	cpu                float64 // seconds until it is asked for its metrics
	cpuAsked           float64 // seconds after that
	hookCPU            float64 // seconds of the hook's process
	apiServerCPU       float64 // seconds of the kube-apiserver's process
	rss                float64 // MB
	live               float64 // bytes of the heap, of workloads that tell the memory of cached objects
	mallocs, allocated float64
	// requests are those that the API server counted, without those of the bench; own is the subject's own count. Those
	// and what it has allocated are of its metrics, and zero where they do not tell.
	requests, own map[string]int64
	hook          hookserver.Counts
}

// usage reads the counters of the server, the API server and the hook.
func (b *bench) usage(ctx context.Context) (usage, error) {
	var u usage
	var errs [7]error
	u.cpu, errs[0] = gauge.CPU(b.subject.PID())
	u.rss, errs[1] = gauge.RSS(b.subject.PID())
	u.hook, errs[2] = b.hookCounts(ctx)
	u.hookCPU, errs[6] = gauge.CPU(b.hookPID)
	if err := errors.Join(errs[:]...); err != nil {
		return u, err
	}
	page, err := b.subject.Get(ctx, "/metrics")
	if err != nil {
		return u, err
	}
	if u.cpuAsked, err = gauge.CPU(b.subject.PID()); err != nil {
		return u, err
	}
	if err := evaluated(u.hook, page); err != nil {
		return u, err
	}
	u.mallocs, errs[3] = gauge.Value(page, "go_memstats_mallocs_total")
	u.allocated, errs[4] = gauge.Value(page, "go_memstats_alloc_bytes_total")
	u.own, errs[5] = gauge.Methods(page, strings.TrimPrefix(b.config.Host, "https://"))
	if err := errors.Join(errs[:]...); err != nil {
		return u, err
	}
	u.requests, u.apiServerCPU, err = b.apiServer(ctx)
	return u, err
}

// apiServer returns the requests that the API server counted for the workloads' resources, without those of the bench, and the processor
// time that it has used, in seconds.
func (b *bench) apiServer(ctx context.Context) (requests map[string]int64, cpu float64, err error) {
	page, err := gauge.Fetch(ctx, b.cluster, b.config.Host+"/metrics")
	if err != nil {
		return nil, 0, err
	}
	all, err := gauge.Requests(page, parentResource.Resource, childResource.Resource, podResource.Resource)
	if err != nil {
		return nil, 0, err
	}
	cpu, err = gauge.Value(page, "process_cpu_seconds_total")
	return less(all, b.tally.Counts()), cpu, err
}

func (b *bench) hookCounts(ctx context.Context) (hookserver.Counts, error) {
	body, err := gauge.Fetch(ctx, http.DefaultClient, b.hookURL+hookserver.PathCounts)
	if err != nil {
		return nil, err
	}
	var counts hookserver.Counts
	if err := json.Unmarshal(body, &counts); err != nil {
		return nil, fmt.Errorf("reading the hook's counters: %w", err)
	}
	return counts, nil
}

// live returns the bytes of the subject's heap that a collection leaves, for workloads that tell the memory of cached objects; 0 for others, and
// for a peer, of which no collection can be asked for. The resident memory has besides what the last collections had let the heap grow by.
func (m *meter) live(ctx context.Context, w workload) (float64, error) {
	if w.cached == 0 || m.peer != nil {
		return 0, nil
	}
	// The first collection leaves what pools hold, and what has finalizers.
	for range 2 {
		if _, err := m.subject.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, fmt.Errorf("asking the server to collect garbage: %w", err)
		}
	}
	page, err := m.subject.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	// What is allocated has the garbage of the printed profile besides, which grows with the places that allocate.
	return gauge.Value(page, "go_gc_heap_live_bytes")
}

// writeProfile stores one of the server's profiles.
func (b *bench) writeProfile(ctx context.Context, name, path string) error {
	body, err := b.subject.Get(ctx, "/debug/pprof/"+path)
	if err != nil {
		return fmt.Errorf("reading the profile %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(b.profile, name), body, 0o644)
}
