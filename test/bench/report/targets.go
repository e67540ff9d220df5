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

package report

import (
	"fmt"
	"slices"
	"strings"
)

// target is a figure that the product must reach.
type target struct {
	name, before, want string
	workload           string
	// parents and children are zero where any size counts.
	parents, children int
	limit             float64
	figure            func(Result) float64
}

// created is the workload that most targets are about, updated another one.
const (
	created = "create"
	updated = "update"
)

func ratio(r Result) float64 { return r.Ratio }

// kilobytes returns the growth of memory by cached object.
func kilobytes(r Result) float64 { return r.BytesPerObject / 1024 }

// targets are those of the product, with what Metacontroller needed with everything tuned on the same kind of machine, where that was measured.
func targets() []target {
	sized := func(name, before, workload string, parents int, limit float64, figure func(Result) float64) target {
		return target{name, before, fmt.Sprintf("≤ %g", limit), workload, parents, 3, limit, figure}
	}
	anySize := func(name, workload string, limit float64, figure func(Result) float64) target {
		return target{name, "", fmt.Sprintf("≤ %g", limit), workload, 0, 0, limit, figure}
	}
	const total, update, memory = "create, time to converge ÷ limit", "update in place ÷ limit", "KB of memory growth per cached object"
	return []target{
		sized(total, "1.6", created, 300, 1.4, ratio),
		sized(total, "3.9", created, 3000, 1.35, ratio),
		sized(total, "2.9", created, 10000, 1.3, ratio),
		sized("create, median parent from the start ÷ the limit's", "", created, 3000, 1.6, Result.StartRatio),
		{"status writes per created parent", "", "1", created, 3000, 3, 1, func(r Result) float64 { return float64(r.StatusWrites()) / float64(r.Parents) }},
		sized(update, "1.6", updated, 3000, 1.25, ratio),
		sized(update, "1.6", updated, 10000, 1.25, ratio),
		sized("update in place, median parent from the start ÷ the limit's", "", updated, 3000, 1.4, Result.StartRatio),
		anySize("one parent changed while another controller creates 10,000, p99 ÷ its p99 alone", "neighbour", 3, func(r Result) float64 {
			if r.WriteP99 == 0 {
				return 0
			}
			return r.P99 / r.WriteP99
		}),
		anySize("customize ÷ limit", "customize", 1.6, ratio),
		sized("drift ÷ limit", "", "drift", 3000, 1.6, ratio),
		anySize("rolling ÷ limit", "rolling", 1.6, ratio),
		anySize("50 controllers ÷ limit", "50-controllers", 1.6, ratio),
		sized("CPU seconds per 1,000 parents created", "4.8", created, 3000, 1.7, func(r Result) float64 { return r.PerThousand }),
		sized(memory, "19", created, 3000, 4, kilobytes),
		sized(memory, "19", created, 10000, 4, kilobytes),
		{"GET or LIST of parents and children per parent created", "3", "0", created, 3000, 3, 0, func(r Result) float64 {
			return float64(r.Reads("things", "configmaps")) / float64(r.Parents)
		}},
		sized("hook calls per created parent", "3.0", created, 3000, 3, func(r Result) float64 { return r.CallsPerParent }),
		{"hook calls per parent in 15 s of steady state", "0", "0", "steady", 0, 0, 0, func(r Result) float64 { return r.CallsPerParent }},
		{"requests for parents and children in steady state", "0", "0", "steady", 0, 0, 0, func(r Result) float64 {
			return float64(r.Writes() + r.Reads("things", "configmaps"))
		}},
		{"restart, writes to settled objects", "0", "0", "restart", 10000, 3, 0, func(r Result) float64 {
			if r.UnaskedWrites == nil {
				return 0
			}
			return float64(*r.UnaskedWrites)
		}},
		{"restart, p99 of a fresh change meanwhile, ms", "behind all", "≤ 1,000", "restart", 10000, 3, 1000, func(r Result) float64 { return r.P99 }},
		{"hook of 50 ms, 1,000 parents ÷ (calls × 50 ms ÷ workers)", "", "≤ 1.2", "slow-hook", 1000, 3, 1.2, ratio},
		{"one child among all, change to repaired, p99, ms over a bare write's p99", "not measured", "≤ 50", "single", 10000, 3, 50, func(r Result) float64 {
			return r.P99 - r.WriteP99
		}},
	}
}

// of returns the groups that a target is about.
func (t target) of(all []group) []group {
	return slices.DeleteFunc(slices.Clone(all), func(g group) bool {
		other := g.workload != t.workload || t.parents != 0 && (g.parents != t.parents || g.children != t.children)
		// A figure that may be more than nothing and is nothing was not measured.
		return other || t.limit > 0 && g.median(t.figure) == 0
	})
}

// show returns a figure.
func (t target) show(figure float64) string {
	if t.limit == 0 && figure != 0 {
		// A little more than nothing must not look like nothing.
		return fmt.Sprintf("%.4f", figure)
	}
	return fmt.Sprintf(hundredths, figure)
}

// Targets returns a table of the targets beside the medians of the server, and of its peers where some were measured.
func Targets(results []Result) string {
	all, peers := groups(results), peerNames(results)
	own := ownGroups(results)
	others := peers
	if len(peers) == 0 {
		others = []string{"Metacontroller, tuned"}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| what | size | %s | target | measured | reached |\n|---|---|---|---|---%s|\n", strings.Join(others, " | "), strings.Repeat("|---", len(others)))
	for _, t := range targets() {
		measured := t.of(own)
		for _, g := range measured {
			figure, reached := g.median(t.figure), "yes"
			if figure > t.limit {
				reached = "**no**"
			}
			fmt.Fprintf(&b, "| %s | %d×%d | %s | %s | %s | %s |\n", t.name, g.parents, g.children, t.peers(g, all, peers), t.want, t.show(figure), reached)
		}
		if len(measured) == 0 {
			where := group{workload: t.workload, parents: t.parents, children: t.children}
			fmt.Fprintf(&b, "| %s | %d×%d | %s | %s | not measured | |\n", t.name, t.parents, t.children, t.peers(where, all, peers), t.want)
		}
	}
	return b.String()
}

// peers returns the cells of the peers for the workload and size of a group, or what is known of Metacontroller where none was measured.
func (t target) peers(g group, all []group, peers []string) string {
	if len(peers) == 0 {
		return t.before
	}
	cells := make([]string, len(peers))
	for i, name := range peers {
		for _, o := range t.of(all) {
			if o.measured == name && o.same(g) {
				cells[i] = t.show(o.median(t.figure))
			}
		}
	}
	return strings.Join(cells, " | ")
}
