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

package simulation_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/history"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
)

// prefix begins the lines that a worker tells the fleet.
const prefix = "@simulation "

// message is what a worker tells.
type message struct {
	Seed      uint64        `json:"seed"`
	Begin     bool          `json:"begin,omitempty"`
	Decisions int           `json:"decisions,omitempty"`
	Calls     int           `json:"calls,omitempty"`
	Writes    int           `json:"writes,omitempty"`
	Invariant string        `json:"invariant,omitempty"`
	Text      string        `json:"text,omitempty"`
	Steps     int           `json:"steps,omitempty"`
	Table     string        `json:"table,omitempty"`
	Pairs     history.Pairs `json:"pairs,omitempty"`
	Draws     history.Draws `json:"draws,omitempty"`
}

func send(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	fmt.Println(prefix + string(line))
}

// fleet is the worker processes and what they found.
type fleet struct {
	t       *testing.T
	workers int
	began   time.Time

	mu                       sync.Mutex
	done                     int
	decisions, calls, writes int
	// short is how many histories ended without a violation before they were long enough: they are not counted elsewhere.
	short int
	// fewest and most are the numbers of decisions of the shortest and the longest history.
	fewest, most int
	// found has the first violation of each invariant, counts how often it was violated.
	found  map[string]message
	counts map[string]int
	pairs  history.Pairs
	draws  history.Draws
}

func newFleet(t *testing.T, workers int) *fleet {
	return &fleet{t: t, workers: workers, began: time.Now(), found: map[string]message{}, counts: map[string]int{}, pairs: history.Pairs{}, draws: history.Draws{}}
}

// run runs the workers until they end.
func (f *fleet) run() {
	var all sync.WaitGroup
	for i := range f.workers {
		all.Go(func() { f.work(*first+uint64(i), uint64(f.workers)) })
	}
	stop := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() {
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				fmt.Fprintln(os.Stderr, f.state())
			}
		}
	})
	all.Wait()
	close(stop)
	progress.Wait()
}

// work runs one worker after the other: one that dies of a history is followed by one that goes on with the next.
func (f *fleet) work(begin, stride uint64) {
	for {
		last, ended, output := f.process(fmt.Sprintf("run %d %d", begin, stride), f.take)
		if ended || last == 0 {
			if !ended {
				f.take(message{Invariant: "worker", Text: output})
			}
			return
		}
		f.take(message{Seed: last, Invariant: "process-survives", Text: output})
		begin = last + stride
	}
}

// process runs a worker. It returns the seed that it began last, and whether it ended by itself.
func (f *fleet) process(work string, take func(message)) (last uint64, ended bool, output string) {
	args := []string{
		"-test.run=^TestWorker$", "-test.timeout=0", "-simulation.worker=" + work, fmt.Sprintf("-simulation.seeds=%d", *seeds),
		fmt.Sprintf("-simulation.first=%d", *first),
	}
	c := exec.CommandContext(f.t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800")
	var errors strings.Builder
	c.Stderr = &errors
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return 0, false, err.Error()
	}
	var rest []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), prefix)
		if !ok {
			rest = append(rest, lines.Text())
			continue
		}
		var m message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return last, false, err.Error()
		}
		if m.Begin {
			last = m.Seed
			continue
		}
		take(m)
	}
	err = c.Wait()
	rest = append(rest, errors.String())
	return last, err == nil, strings.Join(rest[:min(len(rest), 120)], "\n")
}

func (f *fleet) take(m message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Pairs != nil {
		f.pairs.Merge(m.Pairs)
		f.draws.Merge(m.Draws)
		return
	}
	if m.Invariant == "" && m.Decisions < history.Length {
		f.short++
		return
	}
	f.done++
	f.decisions += m.Decisions
	if m.Invariant == "" && (f.fewest == 0 || m.Decisions < f.fewest) {
		f.fewest = m.Decisions // A violation ends a history early.
	}
	f.most = max(f.most, m.Decisions)
	f.calls += m.Calls
	f.writes += m.Writes
	if m.Invariant == "" {
		return
	}
	fmt.Fprintf(os.Stderr, "seed %d: %s\n", m.Seed, m.Text)
	if f.counts[m.Invariant]++; f.counts[m.Invariant] == 1 {
		f.found[m.Invariant] = m
	}
}

func (f *fleet) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := time.Since(f.began)
	violations := 0
	for _, n := range f.counts {
		violations += n
	}
	return fmt.Sprintf("%d histories in %v: %.1f per second; %d decisions, %d to %d in each and %.0f on average, %d hook calls, %d writes; %d violations; not counted: %d with less than %d decisions",
		f.done, took.Round(time.Second), float64(f.done)/took.Seconds(), f.decisions, f.fewest, f.most, float64(f.decisions)/float64(max(1, f.done)),
		f.calls, f.writes, violations, f.short, history.Length)
}

// report shrinks the first history of each violation, and prints what was found.
func (f *fleet) report() {
	f.t.Log(f.state())
	f.t.Log("\n" + f.pairs.Table())
	f.t.Log("Drawn were:\n" + f.draws.Table())
	for _, invariant := range slices.Sorted(maps.Keys(f.found)) {
		m := f.found[invariant]
		shrunk := ""
		if m.Seed != 0 && invariant != "process-survives" {
			shrunk = f.shrink(m)
		}
		f.t.Errorf("%s, %d times; first by seed %d: %s\n%s", invariant, f.counts[invariant], m.Seed, m.Text, shrunk)
	}
	if f.done == 0 {
		f.t.Error("no history was run")
	}
	if f.short > 2+f.done/100 {
		f.t.Errorf("%d histories ended before %d decisions: the generator gives the engine too little to do", f.short, history.Length)
	}
}

// once is the work of a process that runs the history of a file as TestReplay does.
const once = "once "

func runOnce(t *testing.T, file string) {
	t.Helper()
	h, err := history.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	result := run(t, h, true)
	m := message{Seed: h.Seed, Steps: result.Steps}
	if v := result.Violation; v != nil {
		m.Invariant, m.Text, m.Table = v.Invariant, v.String(), table(h, result)
	}
	send(m)
}

func table(h history.History, r history.Result) string {
	var b strings.Builder
	history.Table(&b, h, r)
	return b.String()
}

// shrink shrinks the history of a violation, keeps it, and returns what is to be printed of it. Each candidate runs in a process
// of its own, so that it is replayed as it was found: what a process makes once, and what its pools hold, decide about a history, too.
func (f *fleet) shrink(found message) string {
	h := history.Generate(found.Seed)
	file := filepath.Join(f.t.TempDir(), "candidate.json")
	first := f.runAlone(h, file)
	if first.Invariant != found.Invariant {
		return f.shrinkElsewhere(found.Seed)
	}
	h = h.Until(first.Steps)
	last := first
	small := shrinkInTime(h, func(candidate history.History) bool {
		m := f.runAlone(candidate, file)
		if m.Invariant != found.Invariant {
			return false
		}
		last = m
		return true
	})
	return last.Table + kept(f.t, small, found.Invariant, len(h.Steps))
}

// shrinkInTime shrinks a history until the time for that is over.
func shrinkInTime(h history.History, violates func(history.History) bool) history.History {
	end := time.Now().Add(shrinks)
	return history.Shrink(h, func(candidate history.History) bool { return time.Now().Before(end) && violates(candidate) })
}

// runAlone runs a history, which it writes to a file, in a process of its own.
func (f *fleet) runAlone(h history.History, file string) message {
	if err := h.Write(file); err != nil {
		f.t.Fatal(err)
	}
	var result message
	_, _, _ = f.process(once+file, func(m message) { result = m })
	return result
}

// shrinkElsewhere shrinks a history that violates nothing in a process that has run no other, in one that runs all candidates.
func (f *fleet) shrinkElsewhere(seed uint64) string {
	printed := ""
	if _, ended, output := f.process(fmt.Sprintf("shrink %d", seed), func(m message) { printed = m.Table }); !ended {
		printed += output
	}
	return printed
}

// again runs a history until it violates something. The history that is returned has the steps that were done until then.
func again(t *testing.T, h history.History) (history.History, *invariant.Violation) {
	t.Helper()
	for range 5 {
		if r := run(t, h, false); r.Violation != nil {
			return h.Until(r.Steps), r.Violation
		}
	}
	return h, nil
}

// shrinkHere shrinks a history in this process, prints it, and keeps it.
func shrinkHere(t *testing.T, h history.History) {
	t.Helper()
	h, v := again(t, h)
	if v == nil {
		t.Fatalf("seed %d violates nothing when it is run again", h.Seed)
	}
	small := shrinkInTime(h, func(candidate history.History) bool {
		found := run(t, candidate, false).Violation
		return found != nil && found.Invariant == v.Invariant
	})
	result := run(t, small, true)
	text := table(small, result)
	if result.Violation == nil {
		text += "It violated this after other histories in the same process, and did not when it was printed.\n"
	}
	send(message{Seed: h.Seed, Table: text + kept(t, small, v.Invariant, len(h.Steps))})
}

// kept stores a shrunk history, and returns how to replay it.
func kept(t *testing.T, small history.History, violated string, steps int) string {
	t.Helper()
	small.Invariant = violated
	file := filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d.json", violated, small.Seed))
	if err := small.Write(file); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d of %d steps are left. Replay with:\n  make simulate-replay HISTORY=%s\n", len(small.Steps), steps, file)
}
