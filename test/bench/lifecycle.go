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
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// rolling measures a rolling update of all parents at once, one child of each at a time.
func (b *bench) rolling(ctx context.Context) error {
	const name = "rolling"
	bare := func(ctx context.Context) (limits, error) {
		return b.bareAfterwards(ctx, name, b.plan.rolling, func(l *limit) (report.Times, error) { return l.update(ctx, "2", true) })
	}
	c := composite{name: name, hooks: map[string]string{hookSync: hookserver.PathSync}, method: "RollingInPlace"}
	return b.beside(ctx, bare, func(ctx context.Context) ([]report.Result, error) {
		return b.with(ctx, b.plan.rolling, c, func(m *meter) error {
			if err := m.createParents(ctx); err != nil {
				return err
			}
			return m.one(ctx, workload{name: name, run: m.update})
		})
	})
}

// bareAfterwards creates parents and children, and times what is done with them then.
func (b *bench) bareAfterwards(ctx context.Context, name string, s size, do func(l *limit) (report.Times, error)) (limits, error) {
	l, err := b.newLimit(ctx, s)
	if err != nil {
		return nil, err
	}
	if _, err := l.create(ctx); err != nil {
		return nil, err
	}
	took, err := do(l)
	if err != nil {
		return nil, err
	}
	return limits{name: took}, b.clear(ctx, l.namespace)
}

// with runs do with a controller and parents of its own, and deletes both afterwards. It returns what do has added to the meter's results.
func (b *bench) with(ctx context.Context, s size, c composite, do func(m *meter) error) ([]report.Result, error) {
	remove, err := b.controller(ctx, c)
	if err != nil {
		return nil, err
	}
	m, err := b.newMeter(ctx, s, c.name)
	if err != nil {
		return nil, err
	}
	defer m.close()
	if err := do(m); err != nil {
		return nil, err
	}
	if err := b.clear(ctx, m.namespace); err != nil {
		return nil, err
	}
	return m.results, remove(ctx)
}

// remove measures the deletion of all parents: the cluster's garbage collector removes their children.
func (b *bench) remove(ctx context.Context) error {
	return b.removal(ctx, "delete", composite{name: "delete", hooks: map[string]string{hookSync: hookserver.PathSync}, method: inPlace})
}

// finalize measures the deletion of all parents where a finalize hook has the server remove the children.
func (b *bench) finalize(ctx context.Context) error {
	hooks := map[string]string{hookSync: hookserver.PathSync, "finalize": hookserver.PathFinalize}
	return b.removal(ctx, "finalize", composite{name: "finalize", hooks: hooks, method: inPlace})
}

func (b *bench) removal(ctx context.Context, name string, c composite) error {
	// The garbage collector deletes only children of parents whose kind it knows.
	if err := b.collected(ctx); err != nil {
		return err
	}
	s, finalizer := b.plan.removed, c.hooks["finalize"] != ""
	bare := func(ctx context.Context) (limits, error) {
		return b.bareAfterwards(ctx, name, s, func(l *limit) (report.Times, error) { return l.remove(ctx, finalizer) })
	}
	return b.beside(ctx, bare, func(ctx context.Context) ([]report.Result, error) {
		return b.with(ctx, s, c, func(m *meter) error {
			if err := m.createParents(ctx); err != nil {
				return err
			}
			family := newFamily(m)
			for _, q := range []cache.Query{{Resource: parentResource}, children} {
				if err := m.watch(ctx, q, family.see); err != nil {
					return err
				}
			}
			return m.one(ctx, workload{name: name, run: m.removeParents})
		})
	})
}

// removeParents deletes all parents and waits until they and their children are gone.
func (m *meter) removeParents(ctx context.Context) error {
	m.expect(m.size.parents)
	err := each(ctx, m.size.parents, func(i int) error {
		name := parentName(i)
		m.note("family/"+name, "", 0)
		return m.client.Delete(ctx, target(m.namespace, name))
	})
	if err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}

// family tells when a parent and all its children are gone.
type family struct {
	meter *meter
	mu    sync.Mutex
	left  map[string]int
}

func newFamily(m *meter) *family { return &family{meter: m, left: map[string]int{}} }

func (f *family) see(e cache.Event) {
	if e.Type != cache.Deleted {
		return
	}
	name := e.Old.Name()
	if e.Old.Kind() != "Thing" {
		name = parentOf(name)
	}
	f.mu.Lock()
	f.left[name]++
	gone := f.left[name] == 1+f.meter.size.children
	f.mu.Unlock()
	if gone {
		f.meter.is("family/"+name, "", 0)
	}
}

// slowHook measures the creation of parents whose hook takes 50 ms. The limit is the time that its calls take with as
// many workers as a controller has.
func (b *bench) slowHook(ctx context.Context) error {
	hooks := map[string]string{hookSync: hookserver.PathSync + "?delay=" + b.plan.delay.String()}
	_, err := b.with(ctx, b.plan.slow, composite{name: "slow", hooks: hooks, method: inPlace}, func(m *meter) error {
		r, err := m.measure(ctx, workload{name: "slow-hook", run: m.createParents, cached: m.size.parents * (1 + m.size.children)})
		if err != nil {
			return err
		}
		r.Limit = r.CallsPerParent * float64(r.Parents) * b.plan.delay.Seconds() / workers
		r.Ratio = r.Seconds / r.Limit
		return m.keep(r)
	})
	return err
}

// workers is the server's default for --workers.
const workers = 20

// controllers measures the start of many controllers at once, each with parents that wait for it.
func (b *bench) controllers(ctx context.Context) error {
	name := fmt.Sprintf("%d-controllers", b.plan.controllers)
	return b.beside(ctx, func(ctx context.Context) (limits, error) {
		l, err := b.newLimit(ctx, b.plan.fleet)
		if err != nil {
			return nil, err
		}
		created, err := l.create(ctx)
		if err != nil {
			return nil, err
		}
		return limits{name: created}, b.clear(ctx, l.namespace)
	}, func(ctx context.Context) ([]report.Result, error) { return b.fleet(ctx, name) })
}

func (b *bench) fleet(ctx context.Context, name string) ([]report.Result, error) {
	s, n := b.plan.fleet, b.plan.controllers
	m, err := b.newMeter(ctx, s, "")
	if err != nil {
		return nil, err
	}
	defer m.close()
	controller := func(i int) string { return fmt.Sprintf("fleet-%d", i%n) }
	if err := each(ctx, s.parents, func(i int) error {
		_, err := m.client.Create(ctx, target(m.namespace, ""), parentBody(m.namespace, parentName(i), s, controller(i), "1"))
		return err
	}); err != nil {
		return nil, err
	}
	if err := m.one(ctx, workload{name: name, cached: s.parents * (1 + s.children), run: func(ctx context.Context) error {
		m.expect(s.parents)
		for i := range s.parents {
			m.note(parentName(i), m.revision, s.children)
		}
		if err := each(ctx, n, func(i int) error {
			c := composite{name: controller(i), hooks: map[string]string{hookSync: hookserver.PathSync}, method: inPlace}
			return b.createController(ctx, compositeResource, b.compositeBody(c))
		}); err != nil {
			return err
		}
		return m.await(ctx, m.plan.timeout)
	}}); err != nil {
		return nil, err
	}
	if err := b.clear(ctx, m.namespace); err != nil {
		return nil, err
	}
	return m.results, each(ctx, n, func(i int) error { return b.deleteController(ctx, compositeResource, controller(i)) })
}

// neighbour changes the one parent of a controller again and again, alone first, and then while another controller has many parents to
// create. P50 and P99 are those of the changes meanwhile, WriteP50 and WriteP99 those alone.
func (b *bench) neighbour(ctx context.Context) error {
	hooks := map[string]string{hookSync: hookserver.PathSync}
	_, err := b.with(ctx, b.plan.crowd, composite{name: "crowd", hooks: hooks, method: inPlace}, func(m *meter) error {
		remove, err := b.controller(ctx, composite{name: "quiet", hooks: hooks, method: inPlace})
		if err != nil {
			return err
		}
		quiet, err := b.meterOf(ctx, size{1, m.size.children}, "quiet")
		if err != nil {
			return err
		}
		defer quiet.close()
		if err := quiet.createParents(ctx); err != nil {
			return err
		}
		ended := make(chan struct{})
		close(ended)
		quiet.times()
		if err := quiet.changes(ctx, b.plan.trials, ended); err != nil {
			return err
		}
		alone := quiet.times()
		r, err := m.measure(ctx, workload{name: "neighbour", cached: m.size.parents * (1 + m.size.children), run: func(ctx context.Context) error {
			crowd, ended := make(chan error, 1), make(chan struct{})
			go func() {
				defer close(ended)
				crowd <- m.createParents(ctx)
			}()
			err := quiet.changes(ctx, 1, ended)
			return errors.Join(err, <-crowd)
		}})
		if err != nil {
			return err
		}
		meanwhile := quiet.times()
		r.P50, r.P99 = report.Percentile(meanwhile, 0.5), report.Percentile(meanwhile, 0.99)
		r.WriteP50, r.WriteP99 = report.Percentile(alone, 0.5), report.Percentile(alone, 0.99)
		if err := errors.Join(b.clear(ctx, quiet.namespace), remove(ctx)); err != nil {
			return err
		}
		return m.keep(r)
	})
	return err
}

// changes changes the first parent at least so many times, one after the other, until others have ended.
func (m *meter) changes(ctx context.Context, least int, others <-chan struct{}) error {
	for n := 0; ; n++ {
		select {
		case <-others:
			if n >= least {
				return nil
			}
		default:
		}
		m.serial++
		m.revision = fmt.Sprintf("n%d", m.serial)
		m.expect(1)
		m.note(parentName(0), m.revision, m.size.children)
		patch := fmt.Appendf(nil, `{"spec":{"revision":%q}}`, m.revision)
		if _, err := m.client.Patch(ctx, target(m.namespace, parentName(0)), types.MergePatchType, patch); err != nil {
			return err
		}
		if err := m.await(ctx, m.plan.timeout); err != nil {
			return err
		}
	}
}
