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
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// prefix begins the lines that a worker of the simulation prints for others to read, see test/simulation.
const prefix = "@simulation "

const (
	// survives is violated by a history that ends its process, and ends by one that does not end in time.
	survives = "process-survives"
	ends     = "history-ends"
)

// message is what a worker says of a history.
type message struct {
	Seed      uint64 `json:"Seed"`
	Begin     bool   `json:"Begin"`
	Invariant string `json:"Invariant"`
	Text      string `json:"Text"`
}

// binary is a build of the simulation's tests, with a mutant switched on. Its methods may be called concurrently.
type binary struct {
	path string
	// mutant is its name; empty for none.
	mutant string
	// folder is where it runs.
	folder string
	// patience is how long one history may take.
	patience time.Duration
}

// histories runs those from a seed up to an end in one process. take is called with what came of each, until it returns
// false. When the process ends of one or that one does not end, that counts as a violation, and the others follow in a new process.
func (b *binary) histories(ctx context.Context, begin, end uint64, take func(message) bool) error {
	for begin < end {
		last, ended, output, err := b.process(ctx, begin, end, take)
		switch {
		case err != nil || ctx.Err() != nil || ended == "":
			return err
		case last.Seed < begin:
			return fmt.Errorf("%s began no history: %s", b.path, output)
		case !take(message{Seed: last.Seed, Invariant: ended, Text: output}):
			return nil
		}
		begin = last.Seed + 1
	}
	return nil
}

// process runs one worker. It returns the message about the history that was begun last, and which invariant it violated by ending the
// process, with the output; empty if the process did all, or was to end.
func (b *binary) process(ctx context.Context, begin, end uint64, take func(message) bool) (last message, ended, output string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, b.path, "-test.run=^TestWorker$", "-test.timeout=0",
		fmt.Sprintf("-simulation.worker=run %d 1", begin), fmt.Sprintf("-simulation.first=%d", begin),
		fmt.Sprintf("-simulation.seeds=%d", end-begin))
	c.Dir, c.Env = b.folder, append(os.Environ(), "GOMAXPROCS=1", variable+"="+b.mutant)
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return last, "", "", fmt.Errorf("starting %s: %w", b.path, err)
	}
	var late atomic.Bool
	watchdog := time.AfterFunc(b.patience, func() { late.Store(true); cancel() })
	defer watchdog.Stop()
	satisfied := false
	var rest []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for !satisfied && lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), prefix)
		var m message
		switch {
		case !ok:
			rest = append(rest, lines.Text())
			continue
		case json.Unmarshal([]byte(text), &m) != nil || m.Seed == 0:
			continue
		}
		watchdog.Reset(b.patience)
		if last = m; !m.Begin && !take(m) {
			satisfied = true
			cancel()
		}
	}
	err = c.Wait()
	output = strings.Join(append(rest, complaints.String()), "\n")
	switch {
	case satisfied || err == nil || ctx.Err() != nil && !late.Load():
		return last, "", "", nil
	case late.Load():
		return last, ends, fmt.Sprintf("it did not end within %v", b.patience), nil
	}
	return last, survives, output, nil
}

// shows reports whether a kept history violates an invariant.
func (b *binary) shows(ctx context.Context, kept string) (bool, error) {
	c := exec.CommandContext(ctx, b.path, "-test.run=^TestReplay$", "-simulation.replay=history/testdata/"+kept+".json")
	c.Dir, c.Env = b.folder, append(os.Environ(), "GOMAXPROCS=1", variable+"="+b.mutant)
	output, err := c.CombinedOutput()
	if err != nil && !strings.Contains(string(output), "VIOLATED") {
		return false, fmt.Errorf("replaying %s: %w: %s", kept, err, output)
	}
	return err != nil, nil
}

// search is what histories are run: so many, from a first seed on.
type search struct{ first, histories uint64 }

// outcome is what came of a mutant.
type outcome struct {
	mutant Mutant
	// err says why no histories were run.
	err error
	// violation is the first violation that does not happen without the mutant; its Seed is 0 if there is none.
	violation message
	// run counts the histories that were run, and discounted those of them that violate something without the mutant, too.
	run, discounted int
	took            time.Duration
	// shown says that its kept history shows what these do not.
	shown bool
}

func (o outcome) found() bool { return o.violation.Seed != 0 }

// explained reports whether it is known why random histories do not show the mutant.
func (o outcome) explained() bool { return o.mutant.Unseen != "" || o.shown }

// find runs histories of a mutant until one violates an invariant and violates none in the plain build.
func (s search) find(ctx context.Context, plain, mutated *binary) (result outcome) {
	began := time.Now()
	err := mutated.histories(ctx, s.first, s.first+s.histories, func(m message) bool {
		result.run++
		if m.Invariant == "" {
			return true
		}
		var without message
		if result.err = plain.histories(ctx, m.Seed, m.Seed+1, func(m message) bool { without = m; return true }); result.err != nil || ctx.Err() != nil {
			return false
		}
		if without.Invariant != "" {
			result.discounted++
			return true
		}
		result.violation = m
		return false
	})
	result.err, result.took = cmp.Or(result.err, err), time.Since(began)
	if !result.found() && ctx.Err() != nil {
		result.err = context.Cause(ctx)
	}
	return result
}
