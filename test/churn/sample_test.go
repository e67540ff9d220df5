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

package churn

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// seriesSlack allows series that appear with something that happens rarely, such as another reason of an error.
const seriesSlack = 20

// A sample is what the server holds at one moment.
type sample struct {
	goroutines int
	// engine is how many of them are the engine's.
	engine int
	// heap is what is reachable.
	heap heap
	// sizes are the sums of the engine's gauges by metric, and series how many series every metric of the engine has.
	sizes  map[string]float64
	series map[string]int
	// stacks are how many goroutines there are by stack.
	stacks map[string]int
}

func (s *sample) String() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s.sizes)) {
		if strings.Contains(name, "/") && s.sizes[name] == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s %v", name, s.sizes[name]))
	}
	all := 0
	for _, n := range s.series {
		all += n
	}
	return fmt.Sprintf("  goroutines %d, of the engine %d\n  heap %s\n  series of the engine %d\n%s",
		s.goroutines, s.engine, s.heap, all, strings.Join(lines, "\n"))
}

// takeSample waits until the goroutines of what has been deleted have ended, and measures.
func takeSample(t *fixture.Test) *sample {
	t.T.Helper()
	s := &sample{sizes: map[string]float64{}, series: map[string]int{}}
	before, sizes := -1, map[string]float64{}
	cluster.EventuallyEvery(t.T, 2*time.Second, t.Limit, "the goroutines and the sizes to stay", func(ctx context.Context) (bool, string) {
		text, err := t.Server.Read(ctx, "/debug/pprof/goroutine?debug=1")
		if err != nil {
			return false, err.Error()
		}
		s.stacks, s.engine = stacksOf(text), 0
		for stack, n := range s.stacks {
			if ofEngine(stack) {
				s.engine += n
			}
		}
		if _, err := fmt.Sscanf(text, "goroutine profile: total %d", &s.goroutines); err != nil {
			return false, err.Error()
		}
		if err := s.measure(ctx, t); err != nil {
			return false, err.Error()
		}
		same := s.goroutines == before && maps.Equal(s.sizes, sizes)
		before, sizes = s.goroutines, maps.Clone(s.sizes)
		return same, fmt.Sprintf("%d goroutines, %v", s.goroutines, s.sizes)
	})
	s.heap = takeHeap(t)
	return s
}

// measure reads the metrics of the engine.
func (s *sample) measure(ctx context.Context, t *fixture.Test) error {
	page, err := t.Server.Metrics(ctx)
	if err != nil {
		return fmt.Errorf("measuring: %w", err)
	}
	for name, family := range page {
		if !strings.HasPrefix(name, "metacontroller_") && !strings.HasPrefix(name, "workqueue_") {
			continue
		}
		s.series[name] = len(family.GetMetric())
		// What is counted in seconds is never the same twice.
		if family.GetType() == dto.MetricType_GAUGE && !strings.HasSuffix(name, "_seconds") {
			s.sizes[name], _ = page.Value(name)
		}
	}
	// A sum does not say what is left.
	for what, n := range page.ByLabel("metacontroller_remembered", "what") {
		s.sizes["metacontroller_remembered/"+what] = n
	}
	return nil
}

// stacksOf reads a profile of goroutines.
func stacksOf(profile string) map[string]int {
	stacks := map[string]int{}
	for block := range strings.SplitSeq(profile, "\n\n") {
		for line := range strings.SplitSeq(block, "\n") {
			n := 0
			if _, err := fmt.Sscanf(line, "%d @ ", &n); err == nil {
				_, stack, _ := strings.Cut(block, line+"\n")
				stacks[stack] += n
				break
			}
		}
	}
	return stacks
}

// ofEngine reports whether a goroutine is at work for the engine.
func ofEngine(stack string) bool {
	return slices.ContainsFunc([]string{"/pkg/controller/", "/pkg/children/", "/pkg/cluster", "/pkg/hook/"}, func(folder string) bool {
		return strings.Contains(stack, "metacontroller-apiserver"+folder)
	})
}

// grown tells of which stacks there are more goroutines than before.
func (s *sample) grown(before *sample) string {
	var text strings.Builder
	for stack, n := range s.stacks {
		if more := n - before.stacks[stack]; more > 0 {
			fmt.Fprintf(&text, "%d more:\n%s\n", more, stack)
		}
	}
	return text.String()
}

func encode(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

// engineOwner owns what the engine's code allocated, directly or in a library that it called.
const engineOwner = "engine"

// eventsOwner owns what the correlation of events remembers of the last 4,096 subjects, in each of its three caches, whether they are
// there still or not (k8s.io/client-go/tools/record).
const eventsOwner = "events"

// owners are who holds memory, by a part of a function's path in the stack of an allocation. The first that fits owns it.
var owners = []struct{ part, name string }{
	{"k8s.io/client-go/tools/record.(*EventCorrelator).", eventsOwner},
	{"metacontroller-apiserver/pkg/controller/", engineOwner},
	{"metacontroller-apiserver/pkg/children/", engineOwner},
	{"metacontroller-apiserver/pkg/cluster", engineOwner},
	{"metacontroller-apiserver/pkg/hook/", engineOwner},
	{"go.etcd.io/", "etcd"},
	{"k8s.io/apiserver/", "API server"},
	{"net/http.", "connections"},
}

// A heap is what is reachable after garbage collections, in bytes.
type heap struct {
	// total is exact; owners and stacks are what the profile estimates from its samples.
	total          int
	owners, stacks map[string]float64
}

func (h heap) String() string {
	parts := make([]string, 0, len(h.owners))
	for _, owner := range slices.Sorted(maps.Keys(h.owners)) {
		parts = append(parts, fmt.Sprintf("%s %.1f", owner, h.owners[owner]/(1<<20)))
	}
	return fmt.Sprintf("%.1f MiB (about: %s)", float64(h.total)/(1<<20), strings.Join(parts, ", "))
}

// grown tells which stacks of an owner hold more than before, the five with the most; without an owner, of all.
func (h heap) grown(before heap, owner string) string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(h.stacks)), func(name string) bool { return !strings.HasPrefix(name, owner) })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Compare(h.stacks[b]-before.stacks[b], h.stacks[a]-before.stacks[a])
	})
	var text strings.Builder
	for _, name := range names[:min(5, len(names))] {
		fmt.Fprintf(&text, "  %+.2f MiB %s\n", (h.stacks[name]-before.stacks[name])/(1<<20), name)
	}
	return text.String()
}

// takeHeap reads a profile of the server's heap.
func takeHeap(t *fixture.Test) heap {
	t.T.Helper()
	total, profile, err := t.Server.Heap(t.T.Context())
	if err != nil {
		t.T.Fatal(err)
	}
	h := heap{total: total, owners: map[string]float64{}, stacks: map[string]float64{}}
	file := filepath.Join(t.T.TempDir(), "heap")
	if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
		t.T.Fatal(err)
	}
	// The server would take ten seconds under the race detector to print it.
	text, err := exec.CommandContext(t.T.Context(), "go", "tool", "pprof", "-traces", "-sample_index=inuse_space", "-unit=B", file).Output()
	if err != nil {
		t.T.Fatalf("printing a profile of the heap: %v", err)
	}
	_, traces, _ := strings.Cut(string(text), separator)
	for trace := range strings.SplitSeq(traces, separator) {
		h.add(trace)
	}
	if len(h.stacks) == 0 {
		t.T.Fatalf("no stack in the profile of the heap:\n%s", text)
	}
	return h
}

// separator is at the beginning of the line before each stack that pprof prints.
const separator = "\n-----------+"

// add adds the stack of some allocations of one size: how many bytes of them are in use is before the function that allocated them, and
// the functions that called it are in the lines below.
func (h heap) add(trace string) {
	var (
		bytes     float64
		functions []string
	)
	for line := range strings.Lines(trace) {
		fields := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), " (inline)"))
		switch {
		case len(fields) == 2 && fields[0] == "bytes:": // The size of each of them.
		case len(fields) == 2 && len(functions) == 0:
			if _, err := fmt.Sscanf(fields[0], "%fB", &bytes); err != nil || bytes == 0 {
				return
			}
			functions = append(functions, fields[1])
		case len(fields) == 1 && len(functions) > 0:
			functions = append(functions, fields[0])
		}
	}
	stack, owner := strings.Join(functions, "\n"), "others"
	for _, o := range owners {
		if strings.Contains(stack, o.part) {
			owner = o.name
			break
		}
	}
	h.owners[owner] += bytes
	h.stacks[owner+": "+strings.Join(functions[:min(6, len(functions))], " < ")] += bytes
}
