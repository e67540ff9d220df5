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

	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
)

// workInline is a controller whose hook is inline, and the workload that measures it beside its twin, whose hook is a webhook.
const (
	workInline  = "inline"
	workWebhook = "webhook"
)

// inlineHook is the sync hook that wants what [hookserver.PathSync] wants.
var inlineHook = fmt.Sprintf(`"sync":{"inline":{`+
	`"children":[{"forEach":[{"name":"i","in":"lists.range(parent.spec.children)"}],"template":{"apiVersion":"v1","kind":"ConfigMap",`+
	`"metadata":{"name":"${parent.metadata.name}-${i}"},"data":{"revision":"${parent.spec.revision}","payload":%q}}}],`+
	`"status":{"children":"${children.configmaps.filter(c, c.data.revision == parent.spec.revision).size()}","revision":"${parent.spec.revision}"}}}`,
	hookserver.Payload)

// twins are an inline hook, the webhook that wants the same, and bare writes. They are measured in turns, on a part of the parents each time:
// while the machine is slow, it is so for all of them.
type twins struct {
	*bench
	// size is that of each part.
	size   size
	bare   *limit
	meters map[string]*meter
	used   []string
	// limits are the times of bare writes by what was done, parts the results by workload, one for each part.
	limits map[string][]report.Times
	parts  map[string][]report.Result
}

// twins measures the creation and the update of parents of the inline hook and of the webhook.
func (b *bench) twins(ctx context.Context, s size) error {
	remove, err := b.controller(ctx, composite{name: workInline, method: inPlace})
	if err != nil {
		return err
	}
	fresh, err := b.newMeter(ctx, s, workInline)
	if err != nil {
		return err
	}
	fresh.close()
	t := &twins{
		bench: b, size: size{max(1, s.parents/b.plan.parts), s.children}, meters: map[string]*meter{},
		limits: map[string][]report.Times{}, parts: map[string][]report.Result{},
	}
	defer t.close()
	works := []step{{name: workCreate}, {name: workUpdate}}
	sides := []func(context.Context, string) error{
		t.write,
		func(ctx context.Context, work string) error { return t.manage(ctx, workWebhook, "bench", work) },
		func(ctx context.Context, work string) error { return t.manage(ctx, workInline, workInline, work) },
	}
	if err := alternate(b.plan.parts, works, len(sides), func(side int, work step, _ bool) error { return sides[side](ctx, work.name) }); err != nil {
		return err
	}
	for _, work := range works {
		webhook, inline := t.whole(workWebhook, work.name), t.whole(workInline, work.name)
		inline.WebhookCPU = webhook.CPU + webhook.HookCPU
		if err := errors.Join(b.keep(webhook), b.keep(inline)); err != nil {
			return err
		}
	}
	for _, namespace := range t.used {
		if err := b.clear(ctx, namespace); err != nil {
			return err
		}
	}
	return remove(ctx)
}

// write does the bare writes of a part.
func (t *twins) write(ctx context.Context, work string) (err error) {
	do := func(ctx context.Context) (report.Times, error) { return t.bare.update(ctx, "2", false) }
	if work == workCreate {
		if t.bare, err = t.newLimit(ctx, t.size); err != nil {
			return err
		}
		t.used = append(t.used, t.bare.namespace)
		do = t.bare.create
	}
	took, err := do(ctx)
	t.limits[work] = append(t.limits[work], took)
	return err
}

// manage measures what one of the controllers does with a part.
func (t *twins) manage(ctx context.Context, side, controller, work string) (err error) {
	if work == workCreate {
		t.closeMeter(side)
		if t.meters[side], err = t.meterOf(ctx, t.size, controller); err != nil {
			return err
		}
		t.used = append(t.used, t.meters[side].namespace)
	}
	m := t.meters[side]
	w := workload{name: side + "-" + work, run: m.update}
	if work == workCreate {
		w.run = m.createParents
	}
	r, err := m.measure(ctx, w)
	t.parts[w.name] = append(t.parts[w.name], r)
	return err
}

// whole returns the result of all parts of a workload, each compared with the bare writes of its part.
func (t *twins) whole(side, work string) report.Result {
	parts := t.parts[side+"-"+work]
	for i, took := range t.limits[work] {
		parts[i] = parts[i].Against(took)
	}
	return report.Whole(parts)
}

func (t *twins) closeMeter(side string) {
	if m := t.meters[side]; m != nil {
		m.close()
	}
}

func (t *twins) close() {
	t.closeMeter(workWebhook)
	t.closeMeter(workInline)
}

// evaluated adds the calls of inline hooks to those that the hook's process has counted. They are of a page of the server's metrics.
func evaluated(counts hookserver.Counts, page []byte) error {
	calls, err := gauge.Sum(page, "metacontroller_sync_requests_total", func(labels map[string]string) string {
		if labels["method"] == workInline {
			return workInline
		}
		return ""
	})
	counts[workInline] = hookserver.Count{Calls: int64(calls[workInline])}
	return err
}
