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
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain is a worker of the simulation where the program was started under a name such as worker_violates-3_dies-5: the histories of
// these seeds violate an invariant, end the process, or do not end.
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, "worker") {
		os.Exit(pretend(strings.Split(name, "_")[1:]))
	}
	os.Exit(m.Run())
}

func pretend(acts []string) int {
	var begin, stride, first, seeds uint64
	for _, arg := range os.Args[1:] {
		if file, ok := strings.CutPrefix(arg, "-simulation.replay=history/testdata/"); ok {
			return replayed(acts, strings.TrimSuffix(file, ".json"))
		}
		for format, into := range map[string][]any{
			"-simulation.worker=run %d %d": {&begin, &stride}, "-simulation.first=%d": {&first}, "-simulation.seeds=%d": {&seeds},
		} {
			_, _ = fmt.Sscanf(arg, format, into...) // It is another argument.
		}
	}
	fmt.Println("what a worker prints for people")
	for seed := begin; seed < first+seeds; seed += stride {
		fmt.Printf(prefix+`{"Seed":%d,"Begin":true}`+"\n", seed)
		number := strconv.FormatUint(seed, 10)
		switch {
		case slices.Contains(acts, "dies-"+number):
			fmt.Fprintln(os.Stderr, "deadlock")
			return 2
		case slices.Contains(acts, "stays-"+number):
			interrupted := make(chan os.Signal, 1)
			signal.Notify(interrupted, os.Interrupt)
			<-interrupted
		case slices.Contains(acts, "violates-"+number):
			fmt.Printf(prefix+`{"Seed":%d,"Invariant":"ready","Text":"it is not"}`+"\n", seed)
		default:
			fmt.Printf(prefix+`{"Seed":%d,"Decisions":3}`+"\n", seed)
		}
	}
	fmt.Println(prefix + `{"Pairs":{}}`)
	return 0
}

func replayed(acts []string, history string) int {
	switch {
	case slices.Contains(acts, "violates-"+history):
		fmt.Println("--- FAIL: TestReplay (0.01s)\n    VIOLATED latest-seen at 1s")
		return 1
	case slices.Contains(acts, "fails-"+history):
		fmt.Println("--- FAIL: TestReplay (0.01s)\n    there is no such file")
		return 1
	case slices.Contains(acts, "dies-"+history):
		return 2
	}
	return 0
}

// worker returns a binary that does so.
func worker(t *testing.T, acts ...string) *binary {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), strings.Join(append([]string{"worker"}, acts...), "_"))
	if err := os.Symlink(program, path); err != nil {
		t.Fatal(err)
	}
	return &binary{path: path, patience: time.Minute, known: map[uint64]message{}}
}

func TestViolationsCountThatHappenWithTheMutantAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		plain, mutated []string
		workers        int
		seed           uint64
		invariant      string
		run, discount  int
	}{
		"None":            {nil, nil, 1, 0, "", 10, 0},
		"One":             {nil, []string{"violates-3", "violates-5"}, 1, 3, "ready", 3, 0},
		"WithoutItToo":    {[]string{"violates-3"}, []string{"violates-3", "violates-5"}, 1, 5, "ready", 5, 1},
		"AllWithoutItToo": {[]string{"violates-3", "dies-5"}, []string{"violates-3", "violates-5"}, 1, 0, "", 10, 2},
		"EndsTheProcess":  {nil, []string{"dies-4"}, 1, 4, survives, 4, 0},
		"GoesOnAfterwards": {
			[]string{"dies-4"}, []string{"dies-4", "violates-6"}, 1, 6, "ready", 6, 1,
		},
		"OnSeveralCores": {[]string{"violates-3"}, []string{"violates-3"}, 3, 0, "", 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := search{first: 1, histories: 10, workers: tc.workers}
			o := s.find(t.Context(), worker(t, tc.plain...), worker(t, tc.mutated...))
			if o.err != nil {
				t.Fatal(o.err)
			}
			if o.violation.Seed != tc.seed || o.violation.Invariant != tc.invariant || o.run != tc.run || o.discounted != tc.discount {
				t.Errorf("%d histories with %d discounted, found seed %d by %q; want %d, %d, %d, %q",
					o.run, o.discounted, o.violation.Seed, o.violation.Invariant, tc.run, tc.discount, tc.seed, tc.invariant)
			}
		})
	}
}

func TestHistoryWithoutAnEndIsAViolation(t *testing.T) {
	mutated := worker(t, "stays-2")
	mutated.patience = time.Second
	o := search{first: 1, histories: 5, workers: 1}.find(t.Context(), worker(t), mutated)
	if o.err != nil || o.violation.Seed != 2 || o.violation.Invariant != ends {
		t.Errorf("found seed %d by %q, error %v; want seed 2 by %q", o.violation.Seed, o.violation.Invariant, o.err, ends)
	}
}

func TestKeptHistoriesShowMutants(t *testing.T) {
	for name, tc := range map[string]struct {
		act       string
		shows, ok bool
	}{
		"Violates": {"violates-doubt", true, true},
		"Passes":   {"violates-other", false, true},
		"Fails":    {"fails-doubt", false, false},
		"Dies":     {"dies-doubt", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if shows, err := worker(t, tc.act).shows(t.Context(), "doubt"); shows != tc.shows || (err == nil) != tc.ok {
				t.Errorf("it shows: %v, error %v", shows, err)
			}
		})
	}
}

func TestWorkersThatDoNotStartAreErrors(t *testing.T) {
	missing := worker(t)
	missing.path += "-missing"
	if o := (search{first: 1, histories: 5, workers: 2}).find(t.Context(), worker(t), missing); o.err == nil {
		t.Error("no error")
	}
}

func TestVerdict(t *testing.T) {
	outcomes := func(found, unseen, failed int) []outcome {
		var all []outcome
		for range found {
			all = append(all, outcome{mutant: Mutant{Name: "found"}, violation: message{Seed: 1}})
		}
		for range unseen {
			all = append(all, outcome{mutant: Mutant{Name: "unseen", Unseen: "it changes no behavior"}})
		}
		for range failed {
			all = append(all, outcome{mutant: Mutant{Name: "failed"}, err: errors.New("it does not compile")})
		}
		return all
	}
	for name, tc := range map[string]struct {
		outcomes []outcome
		ok       bool
	}{
		"AllFound":         {outcomes(25, 0, 0), true},
		"EnoughFound":      {outcomes(23, 2, 0), true},
		"TooFewFound":      {outcomes(22, 3, 0), false},
		"OneDoesNotBuild":  {outcomes(25, 0, 1), false},
		"OneUnexplained":   {append(outcomes(24, 0, 0), outcome{mutant: Mutant{Name: "missed", Kept: "doubt"}}), false},
		"OneShown":         {append(outcomes(24, 0, 0), outcome{mutant: Mutant{Name: "missed", Kept: "doubt"}, shown: true}), true},
		"NoneWereSelected": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := verdict(tc.outcomes); (err == nil) != tc.ok {
				t.Errorf("the verdict is %v", err)
			}
		})
	}
}

func TestSummaryCountsPlainViolations(t *testing.T) {
	b := &binary{known: map[uint64]message{}}
	for _, want := range []string{"of 0 of these histories violate: none anything", "of 2 of these histories violate: 1 ready"} {
		if got := b.summary(); !strings.Contains(got, want) {
			t.Errorf("the summary is %q, want %q", got, want)
		}
		b.known = map[uint64]message{1: {Seed: 1}, 2: {Seed: 2, Invariant: "ready"}}
	}
}

func TestTableNamesEachMutant(t *testing.T) {
	text := table([]outcome{
		{mutant: Mutant{Name: "seen"}, run: 7, violation: message{Seed: 7, Invariant: "ready"}},
		{mutant: Mutant{Name: "missed", Unseen: "it changes no behavior"}, run: 9},
		{mutant: Mutant{Name: "rare", Kept: "doubt"}, run: 8, shown: true},
		{mutant: Mutant{Name: "broken"}, err: errors.New("it does not compile")},
	})
	for _, want := range []string{"rare: shown by the kept history doubt", "seen", "7 histories", "ready", "> 9 histories", "not found", "missed: it changes no behavior", "broken", "error"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the table:\n%s", want, text)
		}
	}
}
