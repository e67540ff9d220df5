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
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
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

// clients is the number of concurrent clients of the limit, and of those that change parents.
const clients = 16

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

func parentName(i int) string { return fmt.Sprintf("p%d", i) }

func childName(parent string, i int) string { return fmt.Sprintf("%s-%d", parent, i) }

func target(namespace, name string) client.Target {
	return client.Target{Resource: parentResource, Namespace: namespace, Name: name}
}

func childTarget(namespace, name string) client.Target {
	return client.Target{Resource: childResource, Namespace: namespace, Name: name}
}

// parentBody returns a parent of the controller with that name, or of none where it is empty.
func parentBody(namespace, name string, s size, controller, revision string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"bench.example.com/v1","kind":"Thing","metadata":{"name":%q,"namespace":%q,"labels":{"bench":%q}},`+
		`"spec":{"children":%d,"revision":%q}}`, name, namespace, controller, s.children, revision)
}

func childBody(namespace, parent string, i int, revision string, owner *object.Object) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"labels":{"controller-uid":%q},`+
		`"ownerReferences":[{"apiVersion":"bench.example.com/v1","kind":"Thing","name":%q,"uid":%q,"controller":true,"blockOwnerDeletion":true}]},`+
		`"data":{"revision":%q,"payload":%q}}`, childName(parent, i), namespace, owner.UID(), parent, owner.UID(), revision, hookserver.Payload)
}

// plainBody returns a ConfigMap without owner, of the same size as a child.
func plainBody(namespace, name, labels, revision string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"labels":%s},"data":{"revision":%q,"payload":%q}}`,
		name, namespace, labels, revision, hookserver.Payload)
}

func (b *bench) bareStatus(ctx context.Context, namespace, name string, children int, revision string) error {
	t := target(namespace, name)
	t.Subresource = "status"
	_, err := b.client.Patch(ctx, t, types.MergePatchType, fmt.Appendf(nil, `{"status":{"children":%d,"revision":%q}}`, children, revision))
	return err
}

// namespace makes a namespace, with the service account that pods need.
func (b *bench) namespace(ctx context.Context, prefix string) (string, error) {
	b.serial++
	name := fmt.Sprintf("%s-%d", prefix, b.serial)
	t := client.Target{Resource: childResource.GroupVersion().WithResource("namespaces")}
	_, err := b.client.Create(ctx, t, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
	return name, err
}

// clear deletes the parents and children of a namespace.
func (b *bench) clear(ctx context.Context, namespace string) error {
	for _, t := range []client.Target{target(namespace, ""), childTarget(namespace, "")} {
		if err := b.deleteAll(ctx, t); err != nil {
			return err
		}
	}
	return b.idle(ctx)
}

// deleteAll deletes all objects of a resource in a namespace, one by one: a request for all of them takes longer than an API
// server lets a request take.
func (b *bench) deleteAll(ctx context.Context, t client.Target) error {
	names, err := b.client.Names(ctx, t)
	if err != nil {
		return fmt.Errorf("listing %s to delete them: %w", t.Resource.Resource, err)
	}
	err = each(ctx, len(names), func(i int) error {
		one := t
		one.Name = names[i]
		// The garbage collector may be faster.
		if err := b.client.Delete(ctx, one); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("deleting %s: %w", t.Resource.Resource, err)
	}
	return nil
}

// collected waits until the cluster's garbage collector knows the parents' kind, which it looks for every 30 seconds. Until
// then it reads every parent again and again.
func (b *bench) collected(ctx context.Context) error {
	if b.knownToCollector {
		return nil
	}
	namespace, err := b.namespace(ctx, "collector")
	if err != nil {
		return err
	}
	owner, err := b.client.Create(ctx, target(namespace, ""), parentBody(namespace, "p0", size{1, 1}, "", "1"))
	if err != nil {
		return err
	}
	if _, err := b.client.Create(ctx, childTarget(namespace, ""), childBody(namespace, "p0", 0, "1", owner)); err != nil {
		return err
	}
	if err := b.client.Delete(ctx, target(namespace, "p0")); err != nil {
		return err
	}
	for range 240 {
		_, err := b.client.Get(ctx, childTarget(namespace, childName("p0", 0)))
		if apierrors.IsNotFound(err) {
			b.knownToCollector = true
			return b.idle(ctx)
		}
		if err := errors.Join(err, pause(ctx, 250*time.Millisecond)); err != nil {
			return err
		}
	}
	return fmt.Errorf("the garbage collector has not removed a child in a minute")
}

// idle waits until the API server is asked for parents and children no more: the garbage collector follows deletions.
func (b *bench) idle(ctx context.Context) error {
	var last map[string]int64
	for range 120 {
		counts, _, err := b.apiServer(ctx)
		if err != nil || maps.Equal(counts, last) {
			return err
		}
		last = counts
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the API server does not come to rest in a minute")
}
