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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// limit does the writes that must be done, and nothing else, in a namespace of its own.
type limit struct {
	*bench
	size      size
	namespace string
	mu        sync.Mutex
	parents   map[string]*object.Object
}

// limits are the times of bare writes by the workload that they are the limit of.
type limits map[string]report.Times

// beside measures what has limits. A machine's speed drifts, so the bare writes are timed before and after, if at all.
func (b *bench) beside(ctx context.Context, bare func(context.Context) (limits, error), managed func(context.Context) ([]report.Result, error)) error {
	if b.plan.withoutLimit {
		bare = func(context.Context) (limits, error) { return nil, nil }
	}
	before, err := bare(ctx)
	if err != nil {
		return fmt.Errorf("the bare writes: %w", err)
	}
	results, err := managed(ctx)
	if err != nil {
		return err
	}
	after, err := bare(ctx)
	if err != nil {
		return fmt.Errorf("the bare writes: %w", err)
	}
	for _, r := range results {
		if first, ok := before[r.Workload]; ok {
			r = r.Against(first, after[r.Workload])
		}
		if err := b.keep(r); err != nil {
			return err
		}
	}
	return nil
}

// stopwatch times what is done with objects. The zero value is ready. It is safe for concurrent use.
type stopwatch struct {
	mu              sync.Mutex
	took, fromStart []float64
	seconds         float64
}

// pass times do for 0 to n-1 from all clients. Where first is not nil, it comes before, and each object's change begins with it. What
// further passes take is added.
func (w *stopwatch) pass(ctx context.Context, n int, first func() error, do func(i int) error) error {
	started := time.Now()
	if first != nil {
		if err := first(); err != nil {
			return err
		}
	}
	err := each(ctx, n, func(i int) error {
		began := time.Now()
		if first != nil {
			began = started
		}
		if err := do(i); err != nil {
			return err
		}
		ended := time.Now()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.took = append(w.took, float64(ended.Sub(began).Microseconds())/1000)
		w.fromStart = append(w.fromStart, float64(ended.Sub(started).Microseconds())/1000)
		return nil
	})
	w.seconds += time.Since(started).Seconds()
	return err
}

// times returns what all passes took.
func (w *stopwatch) times() report.Times {
	w.mu.Lock()
	defer w.mu.Unlock()
	return report.TimesOf(w.seconds, w.took, w.fromStart)
}

func (b *bench) newLimit(ctx context.Context, s size) (*limit, error) {
	namespace, err := b.namespace(ctx, "limit")
	return &limit{bench: b, size: s, namespace: namespace, parents: map[string]*object.Object{}}, err
}

// timed returns the times of do for all parents from all clients.
func (l *limit) timed(ctx context.Context, do func(name string) error) (report.Times, error) {
	var w stopwatch
	err := w.pass(ctx, l.size.parents, nil, func(i int) error { return do(parentName(i)) })
	return w.times(), err
}

func (l *limit) create(ctx context.Context) (report.Times, error) {
	return l.timed(ctx, func(name string) error {
		written, err := l.client.Create(ctx, target(l.namespace, ""), parentBody(l.namespace, name, l.size, "", "1"))
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.parents[name] = written
		l.mu.Unlock()
		return l.createChildren(ctx, name, written)
	})
}

func (l *limit) createChildren(ctx context.Context, name string, owner *object.Object) error {
	for c := range l.size.children {
		if _, err := l.client.Create(ctx, childTarget(l.namespace, ""), childBody(l.namespace, name, c, "1", owner)); err != nil {
			return err
		}
	}
	return l.bareStatus(ctx, l.namespace, name, l.size.children, "1")
}

func (l *limit) owner(name string) *object.Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parents[name]
}

// update changes parents and children. With revisions it also writes what a rolling update keeps on the way: a
// ControllerRevision that comes, is told of each child, and goes.
func (l *limit) update(ctx context.Context, revision string, revisions bool) (report.Times, error) {
	return l.timed(ctx, func(name string) error {
		if _, err := l.client.Patch(ctx, target(l.namespace, name), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"revision":%q}}`, revision)); err != nil {
			return err
		}
		kept := client.Target{Resource: revisionResource, Namespace: l.namespace}
		if revisions {
			if _, err := l.client.Create(ctx, kept, fmt.Appendf(nil, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision",`+
				`"metadata":{"name":%q,"namespace":%q},"parentPatch":{"spec":{"children":%d,"revision":%q}}}`, name, l.namespace, l.size.children, revision)); err != nil {
				return err
			}
			kept.Name = name
		}
		for c := range l.size.children {
			if revisions {
				names := fmt.Appendf(nil, `{"children":[{"apiGroup":"","kind":"ConfigMap","names":[%q]}]}`, childName(name, c))
				if _, err := l.client.Patch(ctx, kept, types.MergePatchType, names); err != nil {
					return err
				}
			}
			body := childBody(l.namespace, name, c, revision, l.owner(name))
			if _, err := l.client.Update(ctx, childTarget(l.namespace, childName(name, c)), body); err != nil {
				return err
			}
		}
		if revisions {
			if err := l.client.Delete(ctx, kept); err != nil {
				return err
			}
		}
		return l.bareStatus(ctx, l.namespace, name, l.size.children, revision)
	})
}

// drift deletes one child of each parent and creates it again.
func (l *limit) drift(ctx context.Context) (report.Times, error) {
	return l.timed(ctx, func(name string) error {
		if err := l.client.Delete(ctx, childTarget(l.namespace, childName(name, 0))); err != nil {
			return err
		}
		_, err := l.client.Create(ctx, childTarget(l.namespace, ""), childBody(l.namespace, name, 0, "2", l.owner(name)))
		return err
	})
}

// remove deletes all parents, with their children first where the parents have a finalizer, and else after them.
func (l *limit) remove(ctx context.Context, finalizer bool) (report.Times, error) {
	if finalizer {
		if _, err := l.timed(ctx, func(name string) error {
			_, err := l.client.Patch(ctx, target(l.namespace, name), types.MergePatchType, []byte(`{"metadata":{"finalizers":["bench.example.com/hold"]}}`))
			return err
		}); err != nil {
			return report.Times{}, err
		}
	}
	return l.timed(ctx, func(name string) error {
		if finalizer {
			if err := l.client.Delete(ctx, target(l.namespace, name)); err != nil {
				return err
			}
		}
		for c := range l.size.children {
			if err := l.client.Delete(ctx, childTarget(l.namespace, childName(name, c))); err != nil {
				return err
			}
		}
		if finalizer {
			_, err := l.client.Patch(ctx, target(l.namespace, name), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			return err
		}
		return l.client.Delete(ctx, target(l.namespace, name))
	})
}
