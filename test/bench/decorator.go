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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
)

// decorator measures a DecoratorController for a few of many pods: its start, and a change of all pods at once.
func (b *bench) decorator(ctx context.Context) error {
	s := size{b.plan.matching, 1}
	m, err := b.newMeter(ctx, s, "")
	if err != nil {
		return err
	}
	defer m.close()
	if _, err := m.watch(ctx, cache.Query{Resource: childResource, LabelSelector: "bench=attachment"}, m.seeChild); err != nil {
		return err
	}
	if err := m.createPods(ctx); err != nil {
		return err
	}
	started := time.Now()
	if err := m.bareAttachments(ctx, m.client.Create, "1"); err != nil {
		return err
	}
	create := time.Since(started).Seconds()
	started = time.Now()
	if err := m.pokePods(ctx, "1"); err != nil {
		return err
	}
	if err := m.bareAttachments(ctx, m.client.Update, "2"); err != nil {
		return err
	}
	update := time.Since(started).Seconds()
	if err := m.one(ctx, workload{name: "decorator", limit: create, cached: b.plan.pods, run: m.decorate}); err != nil {
		return err
	}
	if err := m.one(ctx, workload{name: "decorator-change", limit: update, run: func(ctx context.Context) error {
		m.expect(s.parents)
		if err := m.pokePods(ctx, "2"); err != nil {
			return err
		}
		return m.await(ctx)
	}}); err != nil {
		return err
	}
	if err := b.deleteController(ctx, decoratorResource, "decorator"); err != nil {
		return err
	}
	if err := b.deleteAll(ctx, m.pod("")); err != nil {
		return err
	}
	return b.clear(ctx, m.namespace)
}

func (m *meter) pod(name string) client.Target {
	return client.Target{Resource: podResource, Namespace: m.namespace, Name: name}
}

// createPods creates pods that no scheduler looks at, and of which the first match the decorator.
func (m *meter) createPods(ctx context.Context) error {
	create := func(i int) error {
		_, err := m.client.Create(ctx, m.pod(""), fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d-0","namespace":%q,`+
			`"labels":{"decorated":"%t"},"annotations":{"revision":"0"}},"spec":{"schedulerName":"none","automountServiceAccountToken":false,`+
			`"containers":[{"name":"main","image":"example.com/none"}]}}`, i, m.namespace, i < m.plan.matching))
		return err
	}
	// A pod needs the service account that the cluster makes for a new namespace in its own time.
	for attempt := 0; ; attempt++ {
		err := create(0)
		if err == nil {
			break
		}
		if !apierrors.IsForbidden(err) || attempt == 100 {
			return fmt.Errorf("creating a pod: %w", err)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return each(ctx, m.plan.pods-1, func(i int) error { return create(i + 1) })
}

func (m *meter) pokePods(ctx context.Context, revision string) error {
	return each(ctx, m.plan.pods, func(i int) error {
		name := fmt.Sprintf("p%d-0", i)
		if i < m.plan.matching && revision != "1" {
			m.note("child/"+name, revision, 0)
		}
		kind, patch := m.poke(revision)
		_, err := m.client.Patch(ctx, m.pod(name), kind, patch)
		return err
	})
}

// bareAttachments writes as many ConfigMaps as there will be attachments.
func (m *meter) bareAttachments(ctx context.Context, write writer, revision string) error {
	return each(ctx, m.plan.matching, func(i int) error {
		name := fmt.Sprintf("bare-%d", i)
		t := childTarget(m.namespace, name)
		if revision == "1" {
			t.Name = ""
		}
		_, err := write(ctx, t, plainBody(m.namespace, name, "{}", revision))
		return err
	})
}

// decorate creates the controller and waits for all attachments.
func (m *meter) decorate(ctx context.Context) error {
	m.expect(m.plan.matching)
	for i := range m.plan.matching {
		m.note(fmt.Sprintf("child/p%d-0", i), "1", 0)
	}
	err := m.createController(ctx, decoratorResource, fmt.Appendf(nil, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController",`+
		`"metadata":{"name":"decorator"},"spec":{"resources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"decorated":"true"}}}],`+
		`"attachments":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"InPlace"}}],`+
		`"hooks":{"sync":{"webhook":{"url":%q}}}}}`, m.hookURL+hookserver.PathDecorate))
	if err != nil {
		return err
	}
	return m.await(ctx)
}
