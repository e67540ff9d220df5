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
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// children selects what has a parent.
var children = cache.Query{Resource: childResource, LabelSelector: "controller-uid"}

// Workloads that have a limit of bare writes.
const (
	workCreate = "create"
	workUpdate = "update"
	workDrift  = "drift"
)

// sized measures all workloads of one size on the same parents.
func (b *bench) sized(ctx context.Context, s size) error {
	if !slices.Equal(b.plan.workloads, []string{workInline}) {
		if err := b.beside(ctx,
			func(ctx context.Context) (limits, error) { return b.bare(ctx, s) },
			func(ctx context.Context) ([]report.Result, error) { return b.managed(ctx, s) }); err != nil {
			return err
		}
	}
	if !b.plan.selected(workInline) || b.peer != nil {
		return nil
	}
	return b.twins(ctx, s)
}

// managed measures all workloads of one size on the subject, without their limits.
func (b *bench) managed(ctx context.Context, s size) ([]report.Result, error) {
	m, err := b.newMeter(ctx, s, "bench")
	if err != nil {
		return nil, err
	}
	defer m.close()
	plain := func(w workload) func(context.Context) (report.Result, error) {
		return func(ctx context.Context) (report.Result, error) { return m.measure(ctx, w) }
	}
	create := workload{name: workCreate, run: m.createParents, cached: s.parents * (1 + s.children)}
	var results []report.Result
	for _, w := range []struct {
		name    string
		measure func(context.Context) (report.Result, error)
	}{
		{workCreate, plain(create)},
		{"steady", plain(workload{name: "steady", run: func(ctx context.Context) error { return pause(ctx, b.plan.steady) }, settled: true})},
		{workUpdate, plain(workload{name: workUpdate, run: m.update})},
		{workDrift, plain(workload{name: workDrift, run: m.drift})},
		{"resync", plain(workload{name: "resync", run: m.resync, settled: true})},
		{"single", m.single},
		{"restart", m.restart},
	} {
		if !b.plan.selected(w.name) {
			// The others need what create creates.
			if w.name == workCreate {
				if err := m.createParents(ctx); err != nil {
					return nil, err
				}
			}
			continue
		}
		r, err := w.measure(ctx)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if b.last && b.plan.withoutLimit {
		return results, nil
	}
	return results, b.clear(ctx, m.namespace)
}

// bare measures the limits of the selected workloads.
func (b *bench) bare(ctx context.Context, s size) (limits, error) {
	if !slices.ContainsFunc([]string{workCreate, workUpdate, workDrift}, b.plan.selected) {
		return nil, nil
	}
	l, err := b.newLimit(ctx, s)
	if err != nil {
		return nil, err
	}
	took := limits{}
	for _, w := range []struct {
		name  string
		write func(context.Context) (report.Times, error)
	}{
		{workCreate, l.create},
		{workUpdate, func(ctx context.Context) (report.Times, error) { return l.update(ctx, "2", false) }},
		{workDrift, l.drift},
	} {
		if w.name != workCreate && !b.plan.selected(w.name) {
			continue
		}
		if took[w.name], err = w.write(ctx); err != nil {
			return nil, err
		}
	}
	return took, b.clear(ctx, l.namespace)
}

// one measures a workload if it is selected, and adds the result to the meter's. It is run in any case, for those that need what it creates.
func (m *meter) one(ctx context.Context, w workload) error {
	if !m.plan.selected(w.name) {
		return w.run(ctx)
	}
	r, err := m.measure(ctx, w)
	if err != nil {
		return err
	}
	m.results = append(m.results, r)
	return nil
}

func (m *meter) update(ctx context.Context) error {
	m.revision = "2"
	m.expect(m.size.parents)
	err := each(ctx, m.size.parents, func(i int) error {
		name := parentName(i)
		m.note(name, m.revision, m.size.children)
		_, err := m.client.Patch(ctx, target(m.namespace, name), types.MergePatchType, []byte(`{"spec":{"revision":"2"}}`))
		return err
	})
	if err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}

// drift deletes one child of each parent and waits until all are there again.
func (m *meter) drift(ctx context.Context) error {
	if err := m.watch(ctx, children, m.seeChild); err != nil {
		return err
	}
	m.expect(m.size.parents)
	err := each(ctx, m.size.parents, func(i int) error {
		name := childName(parentName(i), 0)
		m.note("child/"+name, m.revision, 0)
		return m.client.Delete(ctx, childTarget(m.namespace, name))
	})
	if err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}

// resync changes the controller, which syncs all parents once, and waits until the hook was called for all of them.
func (m *meter) resync(ctx context.Context) error {
	before, err := m.hookCounts(ctx)
	if err != nil {
		return err
	}
	m.serial++
	controller := client.Target{Resource: compositeResource, Name: m.controller}
	patch := fmt.Appendf(nil, `{"spec":{"resyncPeriodSeconds":%d}}`, 86400+m.serial)
	if _, err := m.client.Patch(ctx, controller, types.MergePatchType, patch); err != nil {
		return err
	}
	return m.awaitCalls(ctx, before.Total().Calls+int64(m.size.parents))
}

// awaitCalls waits until the hook was called that often.
func (m *meter) awaitCalls(ctx context.Context, calls int64) error {
	ctx, cancel := context.WithTimeout(ctx, m.plan.timeout)
	defer cancel()
	for {
		counts, err := m.hookCounts(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %d hook calls: %w", calls, err)
		}
		if counts.Total().Calls >= calls {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for %d hook calls: %w", calls, err)
		}
	}
}

// single changes one child at a time, and measures the same kind of write to a ConfigMap of nobody in between.
func (m *meter) single(ctx context.Context) (report.Result, error) {
	if err := m.watch(ctx, children, m.seeChild); err != nil {
		return report.Result{}, err
	}
	if _, err := m.client.Create(ctx, childTarget(m.namespace, ""), plainBody(m.namespace, "nobodys", "{}", "1")); err != nil {
		return report.Result{}, err
	}
	var writes []float64
	r, err := m.measure(ctx, workload{name: "single", per: m.plan.trials, run: func(ctx context.Context) error {
		for i := range m.plan.trials {
			child := childName(parentName(rand.IntN(m.size.parents)), 0)
			patch := fmt.Appendf(nil, `{"data":{"revision":"broken-%d"}}`, i)
			m.expect(1)
			m.note("child/"+child, m.revision, 0)
			if _, err := m.client.Patch(ctx, childTarget(m.namespace, child), types.MergePatchType, patch); err != nil {
				return err
			}
			if err := m.await(ctx, m.plan.timeout); err != nil {
				return err
			}
			started := time.Now()
			if _, err := m.client.Patch(ctx, childTarget(m.namespace, "nobodys"), types.MergePatchType, patch); err != nil {
				return err
			}
			writes = append(writes, float64(time.Since(started).Microseconds())/1000)
		}
		return nil
	}})
	r.WriteP50, r.WriteP99 = report.Percentile(writes, 0.5), report.Percentile(writes, 0.99)
	return r, err
}

// restart restarts the subject with everything settled, and creates parents until the restart has settled. Seconds are
// those from the start of the process until the first of them is handled.
func (m *meter) restart(ctx context.Context) (report.Result, error) {
	// Every write to a new object is one change that its watchers see. What is written besides was not asked for.
	var asked atomic.Int64
	count := func(e cache.Event) {
		if e.New != nil && !e.Initial && strings.HasPrefix(e.New.Name(), "fresh") {
			asked.Add(1)
		}
	}
	for _, q := range []cache.Query{{Resource: parentResource}, children} {
		if err := m.watch(ctx, q, count); err != nil {
			return report.Result{}, err
		}
	}
	var handled time.Duration
	created := 0
	r, err := m.measure(ctx, workload{name: "restart", restarts: true, run: func(ctx context.Context) error {
		before, err := m.hookCounts(ctx)
		if err != nil {
			return err
		}
		m.subject.Stop()
		started := time.Now()
		if err := m.subject.Start(ctx); err != nil {
			return err
		}
		created, err = m.createFresh(ctx, before)
		m.mu.Lock()
		handled = m.first.Sub(started)
		m.mu.Unlock()
		return err
	}})
	if err != nil {
		return r, err
	}
	unasked := r.Writes() - (asked.Load() - int64(created))
	r.UnaskedWrites, r.Seconds = &unasked, handled.Seconds()
	return r, nil
}

// createFresh creates parents one after the other until all old ones have been synced. It returns how many.
func (m *meter) createFresh(ctx context.Context, before hookserver.Counts) (int, error) {
	const most = 2000
	m.expect(most)
	created := 0
	for ; created < most; created++ {
		if created >= m.plan.fresh && created%10 == 0 {
			now, err := m.hookCounts(ctx)
			if err != nil {
				return created, err
			}
			if now.Total().Calls-before.Total().Calls >= int64(m.size.parents) {
				break
			}
		}
		if err := m.createParent(ctx, fmt.Sprintf("fresh%d", created)); err != nil {
			return created, err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return created, err
		}
	}
	m.mu.Lock()
	if m.left -= most - created; m.left == 0 && created < most {
		close(m.done)
	}
	m.mu.Unlock()
	return created, m.await(ctx, m.plan.timeout)
}
