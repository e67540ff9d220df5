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
	"slices"
	"strconv"
	"strings"
	"time"
)

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
		pods: 5000, matching: 100, timeout: 10 * time.Minute,
	}
}

// sizedWorkloads are measured on the parents of each size, in this order.
const sizedWorkloads = "create,steady,update,drift,resync,single,restart"

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
