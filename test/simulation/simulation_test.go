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

// Package simulation runs the whole engine against an in-memory API server on virtual time, through random histories with faults,
// and checks after each what must always be true. docs/reliability.md says what is simulated and what is not.
//
// Its parts: package apiserver is the API server, package truth compares it with a real one, package world lets one or two engines run
// against it and decides what happens next, package history makes the histories, runs, shrinks and prints them, and package
// invariant says what must be true.
package simulation_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/history"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

var (
	seeds = flag.Uint64("simulation.seeds", 40, "how many histories are run")
	// A fixed beginning makes a failure in continuous integration one that everybody has.
	first    = flag.Uint64("simulation.first", 1, "the first seed")
	replay   = flag.String("simulation.replay", "", "a seed or a file of a history that is run alone, and printed")
	trace    = flag.Bool("simulation.trace", false, "with -simulation.replay: print what the world did, too")
	alone    = flag.Bool("simulation.alone", false, "run in this process, for profiles and coverage")
	asWorker = flag.String("simulation.worker", "", "for the test itself: what this process does")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.memprofile"); f == nil || f.Value.String() == "" {
		runtime.MemProfileRate = 0
	}
	// A collection lets goroutines run in an order that depends on the machine.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	os.Exit(m.Run())
}

// shrinks is how long a history is shrunk.
const shrinks = 3 * time.Minute

const (
	// memoryLimit is the size of the heap at which garbage is collected within a history, and garbageLimit that at which it is before one.
	memoryLimit, garbageLimit = 3 << 30, 192 << 20
)

// run lets a history happen. Garbage is collected before it.
func run(t *testing.T, h history.History, logged bool) history.Result {
	t.Helper()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(heap); heap[0].Value.Uint64() > garbageLimit {
		runtime.GC()
	}
	return history.Run(t, h, logged)
}

// TestHistories runs random histories in one process for each core, and shrinks the first one that violates each invariant.
func TestHistories(t *testing.T) {
	switch {
	case *asWorker != "":
		t.Skip("this process is a worker")
	case *replay != "":
		t.Skip("a history is replayed")
	case *alone:
		work(t, *first, 1, nil)
		return
	}
	f := newFleet(t, runtime.NumCPU())
	f.run()
	f.report()
}

// TestRunsRepeat runs histories again. Go's own runtime promises nothing about it: on a busy machine it preempts goroutines anywhere.
func TestRunsRepeat(t *testing.T) {
	if *asWorker != "" || *replay != "" {
		t.Skip("another test is meant")
	}
	if !world.Repeatable(t) {
		t.Skip("the runtime is not that of hack/repeatable-runtime")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := *first; seed < *first+6; seed++ {
		// What a process makes once, and what it makes because no sync.Pool has one, takes random numbers of the run that makes it.
		var runs [3]history.Result
		for i := range runs {
			runtime.GC()
			runtime.GC() // A pool loses its objects with the second one.
			runs[i] = run(t, history.Generate(seed), false)
		}
		if a, b := runs[1], runs[2]; a.Hash != b.Hash {
			t.Errorf("seed %d: two runs differ, of %d and %d decisions", seed, a.Decisions, b.Decisions)
		}
	}
}

// TestWorker is what the processes of TestHistories run.
func TestWorker(t *testing.T) {
	if *asWorker == "" {
		t.Skip("only for the processes of TestHistories")
	}
	var begin, stride uint64
	if _, err := fmt.Sscanf(*asWorker, "run %d %d", &begin, &stride); err == nil {
		work(t, begin, stride, send)
		return
	}
	if file, ok := strings.CutPrefix(*asWorker, once); ok {
		runOnce(t, file)
		return
	}
	var seed uint64
	if _, err := fmt.Sscanf(*asWorker, "shrink %d", &seed); err != nil {
		t.Fatalf("no such work: %q", *asWorker)
	}
	shrinkHere(t, history.Generate(seed))
}

// TestReplay runs the history of -simulation.replay.
func TestReplay(t *testing.T) {
	if *replay == "" {
		t.Skip("no history is given")
	}
	var seed uint64
	h, err := history.Read(*replay)
	if _, scanned := fmt.Sscanf(*replay, "%d", &seed); scanned == nil && !strings.HasSuffix(*replay, ".json") {
		h, err = history.Generate(seed), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	result := run(t, h, true)
	show(t, h, result)
	if result.Violation != nil {
		t.Error(result.Violation)
	}
}

// TestKeptHistories runs the histories that once violated an invariant.
func TestKeptHistories(t *testing.T) {
	if *asWorker != "" || *replay != "" {
		t.Skip("another test is meant")
	}
	files, err := filepath.Glob("history/testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			h, err := history.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if v := run(t, h, false).Violation; v != nil {
				t.Errorf("%v\n%s\nreplay with: go test ./test/simulation -run TestReplay -simulation.replay %s", v, h.Explanation, file)
			}
		})
	}
}

// show prints what happened in a history.
func show(t *testing.T, h history.History, r history.Result) {
	t.Helper()
	var b strings.Builder
	history.Table(&b, h, r)
	if *trace {
		world.PrintTrace(&b, r.Trace)
	}
	t.Log("\n" + b.String())
}

// work runs histories.
func work(t *testing.T, begin, stride uint64, tell func(message)) {
	t.Helper()
	pairs, draws := history.Pairs{}, history.Draws{}
	for seed := begin; seed < *first+*seeds; seed += stride {
		if tell != nil {
			tell(message{Seed: seed, Begin: true})
		}
		result := run(t, history.Generate(seed), false)
		pairs.Add(result.Happened)
		draws.Merge(result.Draws)
		m := message{Seed: seed, Decisions: result.Decisions, Calls: result.Calls, Writes: result.Writes}
		if v := result.Violation; v != nil {
			m.Invariant, m.Text = v.Invariant, v.String()
		}
		if tell != nil {
			tell(m)
		} else if m.Invariant != "" {
			t.Errorf("seed %d: %s", seed, m.Text)
		}
	}
	if tell != nil {
		tell(message{Pairs: pairs, Draws: draws})
	}
}
