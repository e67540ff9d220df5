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
	"os"
	"slices"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

// TestMain runs the hook where the bench starts this program again for it.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "hook" {
		os.Exit(m.Run())
	}
	//nolint:forbidigo // No test runs there, and the process ends when the bench ends it.
	if err := hookserver.Run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestSmoke runs every workload at a small size. Times do not count here, but what was called, read and written does.
func TestSmoke(t *testing.T) {
	s := size{20, 2}
	results := map[string]report.Result{}
	o := options{
		server: server.Binary(t), root: cluster.Root(),
		plan: plan{
			sizes: []size{s}, settle: 250 * time.Millisecond, steady: time.Second, trials: 10, fresh: 10, quick: true,
			rolling: s, removed: s, slow: size{20, 2}, delay: 50 * time.Millisecond, customized: size{20, 1}, related: 10, changes: 5,
			fleet: s, controllers: 5, crowd: s, pods: 40, matching: 10, parts: 2, timeout: 5 * time.Minute,
		},
		keep: func(r report.Result) error {
			results[r.Workload] = r
			return nil
		},
	}
	l := &lane{options: o, start: newBench, alone: true}
	defer l.end()
	if err := inTurns(t.Context(), 1, o.plan.steps(), []*lane{l}); err != nil {
		t.Fatal(err)
	}
	for _, e := range expectations {
		r, ok := results[e.workload]
		if !ok {
			t.Errorf("%s: there is no result", e.workload)
			continue
		}
		if figure := e.figure(r); figure < e.least || figure > e.most {
			t.Errorf("%s: %s is %v, want %v to %v: %s\n%+v", e.workload, e.name, figure, e.least, e.most, e.reason, r)
		}
	}
	if t.Failed() {
		return
	}
	for _, w := range limited {
		expectTimes(t, results[w])
	}
}

// limited are the workloads that are measured beside bare writes.
var limited = []string{
	"create", "update", "drift", "webhook-create", "webhook-update", "inline-create", "inline-update", "decorator", "decorator-change", "customize", "customize-change", "5-controllers", "rolling", "delete", "finalize",
}

// expectTimes checks that the times of a workload's objects and of its limit's were measured.
func expectTimes(t *testing.T, r report.Result) {
	t.Helper()
	if len(r.Limits) != 2 || r.Limit <= 0 || r.Ratio <= 0 {
		t.Errorf("%s: the limit is %v of %v, the ratio %v, want the mean of two that were measured", r.Workload, r.Limit, r.Limits, r.Ratio)
	}
	for name, pair := range map[string][2]float64{
		"time": {r.P50, r.P99}, "limit's time": {r.LimitP50, r.LimitP99},
		"time from the start": {r.StartP50, r.StartP99}, "limit's time from the start": {r.LimitStartP50, r.LimitStartP99},
	} {
		if pair[0] <= 0 || pair[1] < pair[0] {
			t.Errorf("%s: the %s has a p50 of %v and a p99 of %v ms", r.Workload, name, pair[0], pair[1])
		}
	}
}

type expectation struct {
	workload, name string
	figure         func(report.Result) float64
	least, most    float64
	reason         string
}

var (
	calls = func(r report.Result) float64 { return r.CallsPerParent }
	reads = func(r report.Result) float64 {
		return float64(r.Reads("things", "pods") + r.Requests["LIST configmaps"])
	}
	gets    = func(r report.Result) float64 { return float64(r.Requests["GET configmaps"]) }
	writes  = func(r report.Result) float64 { return float64(r.Writes()) }
	unasked = func(r report.Result) float64 { return float64(*r.UnaskedWrites) }
)

// watches is how often the server may renew watches in a workload. Those count as GETs on its side, so that as many of the
// garbage collector's reads cannot be told from its own. It is far less than one for each parent.
const watches = 6

func requests(keys ...string) func(report.Result) float64 {
	return func(r report.Result) float64 {
		n := 0.0
		for key, count := range r.Requests {
			if slices.Contains(keys, key) {
				n += float64(count)
			}
		}
		return n
	}
}

// expectations are what a run must show whatever the machine.
var expectations = []expectation{
	{"create", "calls per parent", calls, 1, 3, "once for the parent, and at most twice more for its children and its status"},
	{"create", "reads", reads, 0, watches, "the cache has everything"},
	{"create", "reads of children", gets, 0, watches, "the cache has everything"},
	{"create", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"create", "status writes", requests("PATCH things/status"), 20, 40, "one before the children are seen, one after"},
	{"create", "writes", writes, 60, 80, "there is nothing else to write"},
	{"inline-create", "calls per parent", calls, 1, 3, "as with a webhook"},
	{"inline-create", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"inline-create", "bytes sent to the hook", func(r report.Result) float64 { return r.BytesInPerParent }, 0, 0, "no process is called"},
	{"inline-update", "calls per parent", calls, 1, 4, "as with a webhook"},
	{"inline-update", "children updated", requests("PUT configmaps", "PATCH configmaps"), 40, 40, "each child is updated once"},
	{"webhook-create", "calls per parent", calls, 1, 3, "only its own calls count"},
	{"webhook-create", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"webhook-update", "children updated", requests("PUT configmaps", "PATCH configmaps"), 40, 40, "each child is updated once"},
	{"inline-update", "CPU of a webhook", func(r report.Result) float64 { return r.WebhookCPU }, 0.001, 600, "it was measured in the same run"},
	{"steady", "calls per parent", calls, 0, 0, "nothing changes"},
	{"steady", "writes", unasked, 0, 0, "nothing changes"},
	{"steady", "reads", reads, 0, watches, "nothing changes"},
	{"update", "calls per parent", calls, 1, 4, "children change one after the other"},
	{"update", "children updated", requests("PUT configmaps", "PATCH configmaps"), 40, 40, "each child is updated once"},
	{"update", "reads", reads, 0, watches, "the cache has everything"},
	{"drift", "children created", requests("POST configmaps"), 20, 20, "one child of each parent was deleted"},
	{"drift", "reads", reads, 0, watches, "the cache has everything"},
	{"resync", "calls per parent", calls, 1, 1, "every parent is synced once"},
	{"resync", "writes", unasked, 0, 0, "all are settled"},
	{"resync", "reads", reads, 0, watches + 2, "informers start with one list each, and have everything then"},
	{"single", "children repaired", requests("PUT configmaps", "PATCH configmaps"), 10, 10, "one repair for each trial"},
	{"single", "calls per trial", calls, 1, 3, "only the child's own parent is synced"},
	{"restart", "unasked writes", unasked, 0, 0, "what was settled before stays as it is"},
	{"restart", "lists", requests("LIST things", "LIST configmaps"), 2, 2, "informers start with one list each"},
	{"slow-hook", "calls per parent", calls, 1, 3, "waiting for the hook is no reason to call it again"},
	{"slow-hook", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"decorator", "calls per matching pod", calls, 1, 3, "pods that do not match are nothing to the hook"},
	{"decorator", "attachments created", requests("POST configmaps"), 10, 10, "one for each matching pod"},
	{"decorator-change", "calls per matching pod", calls, 1, 3, "pods that do not match are nothing to the hook"},
	{"decorator-change", "attachments updated", requests("PUT configmaps", "PATCH configmaps"), 10, 10, "one for each matching pod"},
	{"customize", "calls per parent", calls, 2, 4, "one customize call, and as many sync calls as without"},
	{"customize-change", "calls per affected parent", calls, 1, 3, "parents that do not select the changed object are not called"},
	{"customize-change", "children updated", requests("PUT configmaps", "PATCH configmaps"), 10, 10, "only those of the selecting parents"},
	{"5-controllers", "calls per parent", calls, 1, 3, "each parent belongs to one controller"},
	{"5-controllers", "children created", requests("POST configmaps"), 40, 40, "each child is created once"},
	{"neighbour", "children created", requests("POST configmaps"), 40, 40, "each child of the other controller is created once"},
	{"neighbour", "changes meanwhile", func(r report.Result) float64 { return r.P99 }, 0.001, 60_000, "there is one at least"},
	{"neighbour", "changes alone", func(r report.Result) float64 { return r.WriteP99 }, 0.001, 60_000, "they were measured before"},
	{"rolling", "children updated", requests("PUT configmaps", "PATCH configmaps"), 40, 40, "each child is updated once"},
	{"delete", "writes by others than the bench", requests("DELETE configmaps"), 40, 40, "the garbage collector deletes each child once"},
	{"finalize", "children deleted", requests("DELETE configmaps"), 40, 40, "each child is deleted once"},
	{"finalize", "finalizers removed", requests("PATCH things", "PUT things"), 20, 20, "one write ends each parent"},
}
