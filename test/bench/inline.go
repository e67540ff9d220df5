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
	"slices"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// Workloads with the inline hook, and what they are selected by.
const (
	workInline       = "inline"
	workInlineCreate = "inline-create"
	workInlineUpdate = "inline-update"
)

// inlineHook is the sync hook that wants what [hookserver.PathSync] wants.
var inlineHook = fmt.Sprintf(`"sync":{"inline":{`+
	`"children":[{"forEach":[{"name":"i","in":"lists.range(parent.spec.children)"}],"template":{"apiVersion":"v1","kind":"ConfigMap",`+
	`"metadata":{"name":"${parent.metadata.name}-${i}"},"data":{"revision":"${parent.spec.revision}","payload":%q}}}],`+
	`"status":{"children":"${children.configmaps.filter(c, c.data.revision == parent.spec.revision).size()}","revision":"${parent.spec.revision}"}}}`,
	hookserver.Payload)

// managedInline measures the creation and the update of parents whose controller has an inline hook.
func (b *bench) managedInline(ctx context.Context, s size) ([]report.Result, error) {
	return b.with(ctx, s, composite{name: workInline, method: inPlace}, func(m *meter) error {
		m.inline = true
		for _, w := range []workload{
			{name: workInlineCreate, run: m.createParents, cached: s.parents * (1 + s.children)},
			{name: workInlineUpdate, run: m.update},
		} {
			r, err := m.measure(ctx, w)
			if err != nil {
				return err
			}
			m.results = append(m.results, r)
		}
		return nil
	})
}

// besideWebhooks returns results with the processor time that the same workloads took with a webhook.
func besideWebhooks(results, webhooks []report.Result) []report.Result {
	for i := range results {
		r := &results[i]
		twin := slices.IndexFunc(webhooks, func(w report.Result) bool { return "inline-"+w.Workload == r.Workload })
		if twin >= 0 {
			r.WebhookCPU = webhooks[twin].CPU + webhooks[twin].HookCPU
		}
	}
	return results
}

// counts returns the calls of hooks: those that the hook's process has counted, or those that the server has evaluated itself.
func (m *meter) counts(ctx context.Context) (hookserver.Counts, error) {
	if !m.inline {
		return m.hookCounts(ctx)
	}
	page, err := m.subject.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	calls, err := gauge.Sum(page, "metacontroller_sync_requests_total", func(labels map[string]string) string {
		if labels["method"] == workInline {
			return workInline
		}
		return ""
	})
	return hookserver.Counts{workInline: {Calls: int64(calls[workInline])}}, err
}
