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

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// customize measures parents with related objects: their creation, and changes of one related object at a time, each of
// which concerns only the parents that select it.
func (b *bench) customize(ctx context.Context) error {
	s := b.plan.customized
	hooks := map[string]string{hookSync: hookserver.PathRelated, "customize": fmt.Sprintf("%s?related=%d", hookserver.PathCustomize, b.plan.related)}
	return b.beside(ctx, b.bareCustomize, func(ctx context.Context) ([]report.Result, error) {
		return b.with(ctx, s, composite{name: "customize", hooks: hooks, method: inPlace}, func(m *meter) error {
			if err := each(ctx, b.plan.related, func(i int) error {
				_, err := m.client.Create(ctx, childTarget(m.namespace, ""), plainBody(m.namespace, relatedName(i), fmt.Sprintf(`{"slot":"%d"}`, i), "1"))
				return err
			}); err != nil {
				return err
			}
			if err := m.one(ctx, workload{name: workCustomize, run: m.createParents, cached: s.parents*(1+s.children) + b.plan.related}); err != nil {
				return err
			}
			return m.one(ctx, workload{name: workCustomizeChange, per: b.plan.changes * b.plan.affected(), run: m.changeRelated})
		})
	})
}

// Workloads with related objects.
const (
	workCustomize       = "customize"
	workCustomizeChange = "customize-change"
)

// affected is the number of parents that select the same related object.
func (p plan) affected() int { return p.customized.parents / p.related }

func (b *bench) bareCustomize(ctx context.Context) (limits, error) {
	l, err := b.newLimit(ctx, b.plan.customized)
	if err != nil {
		return nil, err
	}
	created, err := l.create(ctx)
	if err != nil {
		return nil, err
	}
	var w stopwatch
	for i := range b.plan.changes {
		if err := l.relatedChange(ctx, &w, i); err != nil {
			return nil, err
		}
	}
	return limits{workCustomize: created, workCustomizeChange: w.times()}, b.clear(ctx, l.namespace)
}

func relatedName(i int) string { return fmt.Sprintf("related-%d", i) }

// relatedChange does the writes that a change of one related object needs.
func (l *limit) relatedChange(ctx context.Context, w *stopwatch, i int) error {
	revision := fmt.Sprintf("change-%d", i)
	return w.pass(ctx, l.plan.affected(), func() error {
		_, err := l.client.Create(ctx, childTarget(l.namespace, ""), plainBody(l.namespace, relatedName(i), "{}", revision))
		return err
	}, func(n int) error {
		parent := parentName(n)
		for c := range l.size.children {
			body := childBody(l.namespace, parent, c, revision, l.owner(parent))
			if _, err := l.client.Update(ctx, childTarget(l.namespace, childName(parent, c)), body); err != nil {
				return err
			}
		}
		return l.bareStatus(ctx, l.namespace, parent, l.size.children, revision)
	})
}

// changeRelated changes one related object after the other, and waits each time for the parents that select it.
func (m *meter) changeRelated(ctx context.Context) error {
	for i := range m.plan.changes {
		slot, revision := i%m.plan.related, fmt.Sprintf("change-%d", i)
		m.expect(m.plan.affected())
		for p := slot; p < m.size.parents; p += m.plan.related {
			m.note(parentName(p), revision, m.size.children)
		}
		patch := fmt.Appendf(nil, `{"data":{"revision":%q}}`, revision)
		if _, err := m.client.Patch(ctx, childTarget(m.namespace, relatedName(slot)), types.MergePatchType, patch); err != nil {
			return err
		}
		if err := m.await(ctx, m.plan.timeout); err != nil {
			return err
		}
	}
	return nil
}
