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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/gauge"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
)

// usage is what the subject and the hook have used so far.
type usage struct {
	cpu                float64 // seconds
	apiServerCPU       float64 // seconds of the kube-apiserver's process
	rss                float64 // MB
	live               float64 // bytes of the heap, of workloads that tell the memory of cached objects
	mallocs, allocated float64
	// requests are those that the API server counted, without those of the bench; own is the subject's own count. Those
	// and what it has allocated are of its metrics, and zero where they do not tell.
	requests, own map[string]int64
	hook          hookserver.Counts
}

// usage reads the counters of the server, the API server and the hook.
func (b *bench) usage(ctx context.Context) (usage, error) {
	var u usage
	var errs [6]error
	u.cpu, errs[0] = gauge.CPU(b.subject.PID())
	u.rss, errs[1] = gauge.RSS(b.subject.PID())
	u.hook, errs[2] = b.hookCounts(ctx)
	if err := errors.Join(errs[:]...); err != nil {
		return u, err
	}
	page, err := b.subject.Get(ctx, "/metrics")
	if err != nil {
		return u, err
	}
	u.mallocs, errs[3] = gauge.Value(page, "go_memstats_mallocs_total")
	u.allocated, errs[4] = gauge.Value(page, "go_memstats_alloc_bytes_total")
	u.own, errs[5] = gauge.Methods(page, strings.TrimPrefix(b.config.Host, "https://"))
	if err := errors.Join(errs[:]...); err != nil {
		return u, err
	}
	u.requests, u.apiServerCPU, err = b.apiServer(ctx)
	return u, err
}

// apiServer returns the requests that the API server counted for the workloads' resources, without those of the bench, and the processor
// time that it has used, in seconds.
func (b *bench) apiServer(ctx context.Context) (requests map[string]int64, cpu float64, err error) {
	page, err := gauge.Fetch(ctx, b.cluster, b.config.Host+"/metrics")
	if err != nil {
		return nil, 0, err
	}
	all, err := gauge.Requests(page, parentResource.Resource, childResource.Resource, podResource.Resource)
	if err != nil {
		return nil, 0, err
	}
	cpu, err = gauge.Value(page, "process_cpu_seconds_total")
	return less(all, b.tally.Counts()), cpu, err
}

func (b *bench) hookCounts(ctx context.Context) (hookserver.Counts, error) {
	body, err := gauge.Fetch(ctx, http.DefaultClient, b.hookURL+hookserver.PathCounts)
	if err != nil {
		return nil, err
	}
	var counts hookserver.Counts
	if err := json.Unmarshal(body, &counts); err != nil {
		return nil, fmt.Errorf("reading the hook's counters: %w", err)
	}
	return counts, nil
}

// live returns the bytes of the subject's heap that a collection leaves, for workloads that tell the memory of cached objects; 0 for others, and
// for a peer, of which no collection can be asked for. The resident memory has besides what the last collections had let the heap grow by.
func (m *meter) live(ctx context.Context, w workload) (float64, error) {
	if w.cached == 0 || m.peer != nil {
		return 0, nil
	}
	// The first collection leaves what pools hold, and what has finalizers.
	for range 2 {
		if _, err := m.subject.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, fmt.Errorf("asking the server to collect garbage: %w", err)
		}
	}
	page, err := m.subject.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	// What is allocated has the garbage of the printed profile besides, which grows with the places that allocate.
	return gauge.Value(page, "go_gc_heap_live_bytes")
}

// writeProfile stores one of the server's profiles.
func (b *bench) writeProfile(ctx context.Context, name, path string) error {
	body, err := b.subject.Get(ctx, "/debug/pprof/"+path)
	if err != nil {
		return fmt.Errorf("reading the profile %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(b.profile, name), body, 0o644)
}
