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

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
)

// customize measures parents with related objects: their creation, and changes of one related object at a time, each of
// which concerns only the parents that select it.
func (b *bench) customize(ctx context.Context) error {
	s := b.plan.customized
	l, err := b.newLimit(ctx, s)
	if err != nil {
		return err
	}
	bare, err := l.create(ctx)
	if err != nil {
		return err
	}
	affected := s.parents / b.plan.related
	started := time.Now()
	for i := range b.plan.changes {
		if err := l.relatedChange(ctx, i, affected); err != nil {
			return err
		}
	}
	change := time.Since(started).Seconds()
	if err := b.clear(ctx, l.namespace); err != nil {
		return err
	}
	hooks := map[string]string{hookSync: hookserver.PathRelated, "customize": fmt.Sprintf("%s?related=%d", hookserver.PathCustomize, b.plan.related)}
	return b.with(ctx, s, composite{name: "customize", hooks: hooks, method: inPlace}, func(m *meter) error {
		if err := each(ctx, b.plan.related, func(i int) error {
			_, err := m.client.Create(ctx, childTarget(m.namespace, ""), plainBody(m.namespace, relatedName(i), fmt.Sprintf(`{"slot":"%d"}`, i), "1"))
			return err
		}); err != nil {
			return err
		}
		if err := m.one(ctx, workload{name: "customize", limit: bare, run: m.createParents, cached: s.parents*(1+s.children) + b.plan.related}); err != nil {
			return err
		}
		return m.one(ctx, workload{name: "customize-change", limit: change, per: b.plan.changes * affected, run: m.changeRelated})
	})
}

func relatedName(i int) string { return fmt.Sprintf("related-%d", i) }

// relatedChange does the writes that a change of one related object needs.
func (l *limit) relatedChange(ctx context.Context, i, affected int) error {
	revision := fmt.Sprintf("change-%d", i)
	name := relatedName(i)
	if _, err := l.client.Create(ctx, childTarget(l.namespace, ""), plainBody(l.namespace, name, "{}", revision)); err != nil {
		return err
	}
	return each(ctx, affected, func(n int) error {
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
		m.expect(m.size.parents / m.plan.related)
		for p := slot; p < m.size.parents; p += m.plan.related {
			m.note(parentName(p), revision, m.size.children)
		}
		patch := fmt.Appendf(nil, `{"data":{"revision":%q}}`, revision)
		if _, err := m.client.Patch(ctx, childTarget(m.namespace, relatedName(slot)), types.MergePatchType, patch); err != nil {
			return err
		}
		if err := m.await(ctx); err != nil {
			return err
		}
	}
	return nil
}
