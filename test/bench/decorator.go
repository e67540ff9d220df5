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
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// decorator measures a DecoratorController for a few of many pods: its start, and a change of all pods at once.
func (b *bench) decorator(ctx context.Context) error {
	s := size{b.plan.matching, 1}
	m, err := b.newMeter(ctx, s, "")
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.watch(ctx, cache.Query{Resource: childResource, LabelSelector: "bench=attachment"}, m.seeChild); err != nil {
		return err
	}
	if err := m.createPods(ctx); err != nil {
		return err
	}
	if err := b.beside(ctx, m.bareDecorator, m.decorated); err != nil {
		return err
	}
	if err := b.deleteAll(ctx, m.pod("")); err != nil {
		return err
	}
	return b.clear(ctx, m.namespace)
}

// Workloads with pods.
const (
	workDecorator       = "decorator"
	workDecoratorChange = "decorator-change"
)

// decorated measures a DecoratorController, which is there as long as it is measured.
func (m *meter) decorated(ctx context.Context) ([]report.Result, error) {
	if err := m.one(ctx, workload{name: workDecorator, cached: m.plan.pods, run: m.decorate}); err != nil {
		return nil, err
	}
	if err := m.one(ctx, workload{name: workDecoratorChange, run: func(ctx context.Context) error {
		m.expect(m.size.parents)
		m.podRevision++
		revision := strconv.Itoa(m.podRevision)
		if err := each(ctx, m.plan.pods, func(i int) error {
			if i < m.plan.matching {
				m.note("child/"+podName(i), revision, 0)
			}
			return m.poke(ctx, i, revision)
		}); err != nil {
			return err
		}
		return m.await(ctx, m.plan.timeout)
	}}); err != nil {
		return nil, err
	}
	return m.results, m.deleteController(ctx, decoratorResource, "decorator")
}

// bareDecorator writes as many ConfigMaps as there will be attachments, and then all of them and all pods. No controller looks at them.
func (m *meter) bareDecorator(ctx context.Context) (limits, error) {
	m.podRevision++
	revision := strconv.Itoa(m.podRevision)
	name := func(i int) string { return fmt.Sprintf("bare-%d", i) }
	var created, changed, others stopwatch
	if err := created.pass(ctx, m.plan.matching, nil, func(i int) error {
		_, err := m.client.Create(ctx, childTarget(m.namespace, ""), plainBody(m.namespace, name(i), "{}", "1"))
		return err
	}); err != nil {
		return nil, err
	}
	if err := changed.pass(ctx, m.plan.matching, nil, func(i int) error {
		if err := m.poke(ctx, i, revision); err != nil {
			return err
		}
		_, err := m.client.Update(ctx, childTarget(m.namespace, name(i)), plainBody(m.namespace, name(i), "{}", "2"))
		return err
	}); err != nil {
		return nil, err
	}
	if err := others.pass(ctx, m.plan.pods-m.plan.matching, nil, func(i int) error { return m.poke(ctx, m.plan.matching+i, revision) }); err != nil {
		return nil, err
	}
	change := changed.times()
	change.Seconds += others.times().Seconds
	err := each(ctx, m.plan.matching, func(i int) error { return m.client.Delete(ctx, childTarget(m.namespace, name(i))) })
	return limits{workDecorator: created.times(), workDecoratorChange: change}, err
}

func podName(i int) string { return fmt.Sprintf("p%d-0", i) }

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

// poke changes an annotation of a pod that hooks read as the revision.
func (m *meter) poke(ctx context.Context, i int, revision string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"revision":%q}}}`, revision)
	_, err := m.client.Patch(ctx, m.pod(podName(i)), types.MergePatchType, patch)
	return err
}

// decorate creates the controller and waits for all attachments.
func (m *meter) decorate(ctx context.Context) error {
	m.expect(m.plan.matching)
	for i := range m.plan.matching {
		m.note("child/"+podName(i), strconv.Itoa(m.podRevision), 0)
	}
	err := m.createController(ctx, decoratorResource, fmt.Appendf(nil, `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController",`+
		`"metadata":{"name":"decorator"},"spec":{"resources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"decorated":"true"}}}],`+
		`"attachments":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"InPlace"}}],`+
		`"hooks":{"sync":{"webhook":{"url":%q}}}}}`, m.hookURL+hookserver.PathDecorate))
	if err != nil {
		return err
	}
	return m.await(ctx, m.plan.timeout)
}
