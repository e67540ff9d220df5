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

// Command bench measures the server against what the API server itself can take, and against Metacontroller.
//
// One run starts a local control plane, the server with default flags, and a hook in a process of its own. For every
// workload it measures, side by side on the same control plane, the limit (16 clients that do only the writes that must
// be done) and the server. A peer, which is Metacontroller, has a control plane of its own, and is measured in turns with the server.
// It prints one JSON line for each workload, and tables at the end. See docs/performance.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/bench/hookserver"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/report"
	"github.com/metacontroller/metacontroller-apiserver/test/bench/subject"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs the hook, as the bench starts it, or the bench.
func command(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == "hook" {
		return hookserver.Run(ctx, os.Stdout)
	}
	p := defaultPlan()
	sizes := flag.String("sizes", "300x3,3000x3,10000x3,100x50", "sizes of the sized workloads, parents x children; empty for none")
	names := flag.String("workloads", "", "the workloads to measure, comma separated; all where it is empty: "+allWorkloads)
	runs := flag.Int("runs", 1, "how often each workload is measured; the tables have medians. With 0 only what -results holds is printed")
	o := options{root: "."}
	flag.StringVar(&o.server, "server", "bin/metacontroller-apiserver", "the server's binary")
	flag.Func("server-args", "flags of the server, separated by spaces; without it, the server has its default flags", func(text string) error {
		o.serverArguments = strings.Fields(text)
		return nil
	})
	flag.DurationVar(&p.timeout, "timeout", p.timeout, "how long the objects of a workload may take to converge")
	flag.BoolVar(&p.withoutLimit, "without-limit", false, "make no bare writes: the results have no ratios, and come sooner")
	peers := peerFlags()
	kept := flag.String("results", "", "a file of JSON lines to which results are added; the tables are of all that it holds")
	flag.StringVar(&o.profile, "profile", "", "a folder for CPU and heap profiles of the creation of 3000x3, or of the last size")
	compare := flag.String("compare", "", "two files of results, comma separated: nothing is measured, and the second is compared with the first")
	flag.Parse()
	if *compare != "" {
		return printComparison(*compare)
	}
	var err error
	if p.sizes, err = parseSizes(*sizes); err != nil {
		return err
	}
	if p.workloads, err = parseWorkloads(*names); err != nil {
		return err
	}
	o.plan = p
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return fmt.Errorf("creating the folder for profiles: %w", err)
		}
	}
	var results []report.Result
	if *kept != "" {
		if results, err = report.Read(*kept); err != nil {
			return err
		}
	}
	o.keep = func(r report.Result) error {
		results = append(results, r)
		if *kept != "" {
			if err := report.Append(*kept, r); err != nil {
				return err
			}
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	err = measureAll(ctx, o, peers(), *runs)
	fmt.Fprintf(os.Stderr, "\n%s\n%s\n%s\n", report.Table(results), report.Targets(results), report.Peers(results))
	return err
}

// definitionsFile is where Metacontroller's source has its CustomResourceDefinitions.
const definitionsFile = "manifests/production/metacontroller-crds-v1.yaml"

// peerFlags defines the flags about peers. The function that it returns says what they tell.
func peerFlags() func() []subject.PeerOptions {
	binary := flag.String("peer", "", "Metacontroller's binary: it is measured in turns with the server")
	definitions := flag.String("peer-crds", "", "the file of its CustomResourceDefinitions, "+definitionsFile+" beside the binary where it is empty")
	var arguments [][]string
	flag.Func("peer-args", "flags of the peer, separated by spaces; given more than once, there are as many peers; without it, the peer has its default flags",
		func(text string) error {
			arguments = append(arguments, strings.Fields(text))
			return nil
		})
	return func() []subject.PeerOptions {
		if *binary == "" {
			return nil
		}
		if *definitions == "" {
			*definitions = filepath.Join(filepath.Dir(*binary), definitionsFile)
		}
		if len(arguments) == 0 {
			arguments = [][]string{nil}
		}
		var peers []subject.PeerOptions
		for _, a := range arguments {
			peers = append(peers, subject.PeerOptions{Binary: *binary, Definitions: *definitions, Arguments: a})
		}
		return peers
	}
}

// printComparison prints how the results in the second of two files differ from those in the first.
func printComparison(files string) error {
	first, second, ok := strings.Cut(files, ",")
	if !ok {
		return fmt.Errorf("comparing %q: it must be two files, comma separated", files)
	}
	base, err := report.Read(first)
	if err != nil {
		return err
	}
	changed, err := report.Read(second)
	if err != nil {
		return err
	}
	fmt.Print(report.Comparison(base, changed))
	return nil
}

// measureAll measures everything as often as it is told.
func measureAll(ctx context.Context, o options, peers []subject.PeerOptions, runs int) error {
	if runs < 1 {
		return nil
	}
	lanes := []*lane{{options: o, start: newBench, alone: len(peers) == 0}}
	for _, p := range peers {
		l := &lane{options: o, start: newBench}
		l.peer = &p
		lanes = append(lanes, l)
	}
	defer func() {
		for _, l := range lanes {
			l.end()
		}
	}()
	return inTurns(ctx, runs, o.plan.steps(), lanes)
}

// size is a number of parents with a number of children each.
type size struct{ parents, children int }

func (s size) String() string { return fmt.Sprintf("%d×%d", s.parents, s.children) }

// plan says what is measured, and how large.
type plan struct {
	// sizes are those of the sized workloads.
	sizes []size
	// workloads are those that are measured, all where it is empty.
	workloads []string
	// settle is for how long the hook must be left alone before usage is read, steady the length of the workload.
	settle, steady time.Duration
	// trials is the number of single changes, fresh the least number of parents created after a restart.
	trials, fresh int

	rolling, removed, slow, customized, fleet, crowd size
	// delay is how long the slow hook takes.
	delay time.Duration
	// pods are those of the decorator, of which some match.
	pods, matching int
	// related objects are selected by an equal number of parents each; changes is how often one is changed.
	related, changes int
	controllers      int
	// parts are those of the parents that the twins have in turns.
	parts int

	// timeout is how long the objects of a workload may take to converge.
	timeout time.Duration
	// quick saves time where times do not count: the subject is not restarted for each measurement of memory, and the
	// garbage collector gets to know the new kind while the first workloads run.
	quick bool
	// withoutLimit says that the bare writes are not made: results have no ratios, and come two to three times as often.
	withoutLimit bool
}

func defaultPlan() plan {
	return plan{
		settle: 2 * time.Second, steady: 15 * time.Second, trials: 200, fresh: 100,
		rolling: size{300, 3}, removed: size{300, 3}, slow: size{1000, 3}, delay: 50 * time.Millisecond,
		customized: size{1000, 1}, related: 100, changes: 50, fleet: size{1000, 3}, controllers: 50, crowd: size{10000, 3},
		pods: 5000, matching: 100, parts: 10, timeout: 10 * time.Minute,
	}
}

// sizedWorkloads are measured on the parents of each size, in this order.
const sizedWorkloads = "create,steady,update,drift,resync,single,restart,inline"

// otherWorkloads have a size of their own.
const otherWorkloads = "slow-hook,decorator,customize,controllers,neighbour,rolling,delete,finalize"

const allWorkloads = sizedWorkloads + "," + otherWorkloads

// selected reports whether a workload is measured. A workload that belongs to another, such as decorator-change, goes with it.
func (p plan) selected(name string) bool {
	if len(p.workloads) == 0 || slices.Contains(p.workloads, name) {
		return true
	}
	for w := range strings.SplitSeq(otherWorkloads, ",") {
		if slices.Contains(p.workloads, w) && strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// step is what is measured in one turn.
type step struct {
	name string
	run  func(*bench, context.Context) error
}

// steps are what is measured, in this order.
func (p plan) steps() []step {
	var sizes, others, removals []step
	if slices.ContainsFunc(strings.Split(sizedWorkloads, ","), p.selected) {
		for _, s := range p.sizes {
			sizes = append(sizes, step{s.String(), func(b *bench, ctx context.Context) error { return b.sized(ctx, s) }})
		}
	}
	for _, s := range []step{
		{"slow-hook", (*bench).slowHook},
		{"decorator", (*bench).decorator},
		{"customize", (*bench).customize},
		{"controllers", (*bench).controllers},
		{"neighbour", (*bench).neighbour},
		{"rolling", (*bench).rolling},
	} {
		if p.selected(s.name) {
			others = append(others, s)
		}
	}
	for _, s := range []step{{"delete", (*bench).remove}, {"finalize", (*bench).finalize}} {
		if p.selected(s.name) {
			removals = append(removals, s)
		}
	}
	if p.quick {
		return slices.Concat(others, sizes, removals)
	}
	return slices.Concat(sizes, others, removals)
}

func parseWorkloads(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if !slices.Contains(strings.Split(allWorkloads, ","), name) {
			return nil, fmt.Errorf("there is no workload %q, only %s", name, allWorkloads)
		}
	}
	return names, nil
}

func parseSizes(text string) ([]size, error) {
	if text == "" {
		return nil, nil
	}
	var sizes []size
	for part := range strings.SplitSeq(text, ",") {
		parents, children, ok := strings.Cut(part, "x")
		p, errParents := strconv.Atoi(parents)
		c, errChildren := strconv.Atoi(children)
		if !ok || errParents != nil || errChildren != nil || p < 1 || c < 1 {
			return nil, fmt.Errorf("size %q is not of the form 300x3", part)
		}
		sizes = append(sizes, size{p, c})
	}
	return sizes, nil
}
