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

// created is the workload that most targets are about.
const created = "create"

func ratio(r Result) float64 { return r.Ratio }

// targets are those of the product, with what Metacontroller needs on the same kind of machine with everything tuned.
func targets() []target {
	createdIn := func(parents int, before string) target {
		return target{"create, time to converge ÷ limit", before, "≤ 1.4", created, parents, 3, 1.4, ratio}
	}
	unasked := func(r Result) float64 {
		if r.UnaskedWrites == nil {
			return 0
		}
		return float64(*r.UnaskedWrites)
	}
	reads := func(r Result) float64 { return float64(r.Reads("things", "configmaps")) / float64(r.Parents) }
	return []target{
		createdIn(300, "1.6"), createdIn(3000, "3.9"), createdIn(10000, "2.9"),
		{"update in place ÷ limit", "1.6", "≤ 1.25", "update", 3000, 3, 1.25, ratio},
		{"update in place ÷ limit", "1.6", "≤ 1.25", "update", 10000, 3, 1.25, ratio},
		{"CPU seconds per 1,000 parents created", "4.8", "≤ 2.6", created, 3000, 3, 2.6, func(r Result) float64 { return r.PerThousand }},
		{"KB of memory growth per cached object", "19", "≤ 5", created, 3000, 3, 5, func(r Result) float64 { return r.BytesPerObject / 1024 }},
		{"KB of memory growth per cached object", "19", "≤ 5", created, 10000, 3, 5, func(r Result) float64 { return r.BytesPerObject / 1024 }},
		{"GET or LIST of parents and children per parent created", "3", "0", created, 3000, 3, 0, reads},
		{"hook calls per created parent", "3.0", "≤ 3", created, 3000, 3, 3, func(r Result) float64 { return r.CallsPerParent }},
		{"hook calls per parent in 15 s of steady state", "0", "0", "steady", 0, 0, 0, func(r Result) float64 { return r.CallsPerParent }},
		{"requests for parents and children in steady state", "0", "0", "steady", 0, 0, 0, func(r Result) float64 {
			return float64(r.Writes() + r.Reads("things", "configmaps"))
		}},
		{"restart, writes to settled objects", "0", "0", "restart", 10000, 3, 0, unasked},
		{"restart, p99 of a fresh change meanwhile, ms", "behind all", "≤ 1,000", "restart", 10000, 3, 1000, func(r Result) float64 { return r.P99 }},
		{"hook of 50 ms, 1,000 parents ÷ (calls × 50 ms ÷ workers)", "", "≤ 1.2", "slow-hook", 1000, 3, 1.2, ratio},
		{"one child among all, change to repaired, p99, ms over a bare write's p99", "not measured", "≤ 50", "single", 10000, 3, 50, func(r Result) float64 {
			return r.P99 - r.WriteP99
		}},
	}
}

// Targets returns a table of the targets beside the medians.
func Targets(results []Result) string {
	all := groups(results)
	var b strings.Builder
	b.WriteString("| what | size | Metacontroller, tuned | target | measured | reached |\n|---|---|---|---|---|---|\n")
	for _, t := range targets() {
		measured := false
		for _, g := range all {
			if g.workload != t.workload || t.parents != 0 && (g.parents != t.parents || g.children != t.children) {
				continue
			}
			figure, reached := g.median(t.figure), "yes"
			if figure > t.limit {
				reached = "**no**"
			}
			shown := fmt.Sprintf("%.2f", figure)
			if t.limit == 0 && figure != 0 {
				// A little more than nothing must not look like nothing.
				shown = fmt.Sprintf("%.4f", figure)
			}
			fmt.Fprintf(&b, "| %s | %d×%d | %s | %s | %s | %s |\n", t.name, g.parents, g.children, t.before, t.want, shown, reached)
			measured = true
		}
		if !measured {
			fmt.Fprintf(&b, "| %s | %d×%d | %s | %s | not measured | |\n", t.name, t.parents, t.children, t.before, t.want)
		}
	}
	return b.String()
}
