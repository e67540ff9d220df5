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
)

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
