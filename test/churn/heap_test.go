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
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// engineOwner owns what the engine's code allocated, directly or in a library that it called.
const engineOwner = "engine"

// eventsOwner owns what the correlation of events remembers of the last 4,096 subjects, in each of its three caches, whether they are
// there still or not (k8s.io/client-go/tools/record).
const eventsOwner = "events"

// owners are who holds memory, by a part of a function's path in the stack of an allocation. The first that fits owns it.
var owners = []struct{ part, name string }{
	{"k8s.io/client-go/tools/record.(*EventCorrelator).EventCorrelate", eventsOwner},
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
	// total is exact; owners and stacks are estimated from the samples of the profile.
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

// grown tells which stacks hold more than before, the five with the most.
func (h heap) grown(before heap) string {
	names := slices.SortedFunc(maps.Keys(h.stacks), func(a, b string) int {
		return cmp.Compare(h.stacks[b]-before.stacks[b], h.stacks[a]-before.stacks[a])
	})
	var text strings.Builder
	for _, name := range names[:min(5, len(names))] {
		fmt.Fprintf(&text, "  %+.1f MiB %s\n", (h.stacks[name]-before.stacks[name])/(1<<20), name)
	}
	return text.String()
}

// takeHeap reads a profile of the server's heap.
func takeHeap(t *fixture.Test) heap {
	t.T.Helper()
	// What has a finalizer, or is in a pool, goes with a later collection.
	for range 3 {
		if _, err := t.Server.Read(t.T.Context(), "/debug/pprof/heap?gc=1"); err != nil {
			t.T.Fatal(err)
		}
	}
	text, err := t.Server.Read(t.T.Context(), "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		t.T.Fatal(err)
	}
	h := heap{owners: map[string]float64{}, stacks: map[string]float64{}}
	_, after, found := strings.Cut(text, "# HeapAlloc = ")
	if _, err := fmt.Sscan(after, &h.total); err != nil || !found {
		t.T.Fatalf("reading the heap's size: %v", err)
	}
	_, after, _ = strings.Cut(text, "@ heap/")
	var twice float64
	if _, err := fmt.Sscan(after, &twice); err != nil || twice == 0 {
		t.T.Fatalf("reading the rate of the samples: %v", err)
	}
	for block := range strings.SplitSeq(text, "\n\n") {
		h.add(block, twice/2)
	}
	return h
}

// add adds a block of a profile, which samples one allocation in rate bytes: how many objects of how many bytes are in use, and the stack
// that allocated them.
func (h heap) add(block string, rate float64) {
	// The first block begins with a line about the whole profile.
	if head, rest, _ := strings.Cut(block, "\n"); strings.HasPrefix(head, "heap profile:") {
		block = rest
	}
	var objects, bytes float64
	if _, err := fmt.Sscanf(block, "%f: %f [", &objects, &bytes); err != nil || objects == 0 {
		return
	}
	var functions []string
	owner := "others"
	for line := range strings.SplitSeq(block, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "#" {
			continue
		}
		function, _, _ := strings.Cut(fields[2], "+0x")
		functions = append(functions, function)
	}
	stack := strings.Join(functions, "\n")
	for _, o := range owners {
		if strings.Contains(stack, o.part) {
			owner = o.name
			break
		}
	}
	// An allocation of s bytes is seen with the probability 1-exp(-s/rate), and the text form of the profile is not scaled.
	estimate := bytes / (1 - math.Exp(-bytes/objects/rate))
	h.owners[owner] += estimate
	h.stacks[owner+": "+strings.Join(functions[:min(6, len(functions))], " < ")] += estimate
}
