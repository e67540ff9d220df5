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

// whole is the format of measures of which no fraction counts.
const whole = "%.0f"

// compared are the measures that versions are compared by. Smaller is better for all of them.
var compared = []struct {
	name, format string
	value        func(Result) float64
}{
	{"time ÷ limit", "%.2f", func(r Result) float64 { return r.Ratio }},
	{"seconds", "%.2f", func(r Result) float64 { return r.Seconds }},
	{"p50 ms", whole, func(r Result) float64 { return r.P50 }},
	{"p99 ms", whole, func(r Result) float64 { return r.P99 }},
	{"hook calls per parent", "%.2f", func(r Result) float64 { return r.CallsPerParent }},
	{"writes", whole, func(r Result) float64 { return float64(r.Writes()) }},
	{"CPU s per 1,000 parents", "%.2f", func(r Result) float64 { return r.PerThousand }},
	{"allocations per parent", whole, func(r Result) float64 { return r.Mallocs }},
	{"KB allocated per parent", whole, func(r Result) float64 { return r.AllocBytes / 1024 }},
	{"RSS MB after", whole, func(r Result) float64 { return r.RSSAfter }},
	{"bytes per cached object", whole, func(r Result) float64 { return r.BytesPerObject }},
}

// Comparison returns the medians of two versions as a table in Markdown, each with the least and the greatest value, for the workloads and
// sizes that both have. The difference is that of the medians; one within the spread of either version says nothing.
func Comparison(base, changed []Result) string {
	var b strings.Builder
	b.WriteString("| workload | parents × children | measure | base | changed | difference |\n|---|---|---|---|---|---|\n")
	others := groups(changed)
	for _, g := range groups(base) {
		i := slices.IndexFunc(others, func(o group) bool {
			return o.workload == g.workload && o.parents == g.parents && o.children == g.children
		})
		if i < 0 {
			continue
		}
		for _, m := range compared {
			before, after := g.median(m.value), others[i].median(m.value)
			if before == 0 && after == 0 {
				continue
			}
			difference := ""
			if before != 0 {
				difference = fmt.Sprintf("%+.0f %%", 100*(after/before-1))
			}
			fmt.Fprintf(&b, "| %s | %d×%d | %s | %s | %s | %s |\n", g.workload, g.parents, g.children, m.name,
				g.spread(m.format, m.value), others[i].spread(m.format, m.value), difference)
		}
	}
	return b.String()
}

// spread returns the median of a measure, and between which values it is the median.
func (g group) spread(format string, f func(Result) float64) string {
	values := make([]float64, len(g.results))
	for i, r := range g.results {
		values[i] = f(r)
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+", %d runs)", g.median(f), slices.Min(values), slices.Max(values), len(values))
}
