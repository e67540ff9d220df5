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

const (
	// whole is the format of measures of which no fraction counts, hundredths and thousandths that of others.
	whole       = "%.0f"
	hundredths  = "%.2f"
	thousandths = "%.3f"
)

// measure is one of a result's figures, of which a smaller one is better.
type measure struct {
	name, format string
	value        func(Result) float64
	// told says that only a program's own metrics tell it, so that zero is what was not told.
	told bool
}

// compared are the measures that versions, and the server and its peers, are compared by.
var compared = []measure{
	{"time ÷ limit", hundredths, ratio, false},
	{"median from the start ÷ limit's", hundredths, Result.StartRatio, false},
	{"seconds", hundredths, func(r Result) float64 { return r.Seconds }, false},
	{"p50 ms", whole, func(r Result) float64 { return r.P50 }, false},
	{"p99 ms", whole, func(r Result) float64 { return r.P99 }, false},
	{"hook calls per parent", hundredths, func(r Result) float64 { return r.CallsPerParent }, false},
	{"reads", whole, func(r Result) float64 { return float64(r.Reads("things", "configmaps", "pods")) }, false},
	{"writes", whole, func(r Result) float64 { return float64(r.Writes()) }, false},
	{"CPU s per 1,000 parents", hundredths, func(r Result) float64 { return r.PerThousand }, false},
	{"the API server's CPU s", whole, func(r Result) float64 { return r.APIServerCPU }, false},
	{"allocations per parent", whole, func(r Result) float64 { return r.Mallocs }, true},
	{"KB allocated per parent", whole, func(r Result) float64 { return r.AllocBytes / 1024 }, true},
	{"RSS MB after", whole, func(r Result) float64 { return r.RSSAfter }, false},
	{"bytes per cached object", whole, func(r Result) float64 { return r.BytesPerObject }, false},
	{"live bytes per cached object", whole, func(r Result) float64 { return r.LiveBytesPerObject }, true},
}

// share is the processor time as a part of the API server's. It compares versions that ask as much of the API server as each other: for a
// program that asks more of it, it is less.
var share = measure{"CPU ÷ the API server's", thousandths, Result.CPURatio, false}

// Comparison returns the medians of two versions of the server as a table in Markdown, each with the least and the greatest value, for the
// workloads and sizes that both have. The difference is that of the medians; one within the spread of either version says nothing.
func Comparison(base, changed []Result) string {
	var b strings.Builder
	b.WriteString("| workload | parents × children | measure | base | changed | difference |\n|---|---|---|---|---|---|\n")
	others := ownGroups(changed)
	for _, g := range ownGroups(base) {
		i := slices.IndexFunc(others, g.same)
		if i < 0 {
			continue
		}
		for _, m := range append(slices.Clone(compared), share) {
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

// Peers returns the medians of the server's peers beside its own as a table in Markdown, with each peer's divided by the server's, for
// the workloads and sizes that a peer has. It is empty where no peer was measured. What only one of them tells is left empty of the other.
func Peers(results []Result) string {
	names := peerNames(results)
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| workload | parents × children | measure | " + Server)
	for _, name := range names {
		b.WriteString(" | " + name + " | ÷ the server's")
	}
	b.WriteString(" |\n|---|---|---|---" + strings.Repeat("|---|---", len(names)) + "|\n")
	all := groups(results)
	for _, g := range ownGroups(results) {
		peers := make([]*group, len(names))
		for i, name := range names {
			if n := slices.IndexFunc(all, func(o group) bool { return o.measured == name && o.same(g) }); n >= 0 {
				peers[i] = &all[n]
			}
		}
		if slices.ContainsFunc(peers, func(p *group) bool { return p != nil }) {
			b.WriteString(g.besidePeers(peers))
		}
	}
	return b.String()
}

// besidePeers returns a line for each measure. A peer that was not measured is nil.
func (g group) besidePeers(peers []*group) string {
	var b strings.Builder
	for _, m := range compared {
		own := g.median(m.value)
		shown := own != 0
		var cells strings.Builder
		for _, p := range peers {
			figure, quotient := "", ""
			if p != nil && (!m.told || p.median(m.value) != 0) {
				figure = fmt.Sprintf(m.format, p.median(m.value))
				shown = shown || p.median(m.value) != 0
			}
			if own != 0 && figure != "" {
				quotient = fmt.Sprintf(hundredths, p.median(m.value)/own)
			}
			fmt.Fprintf(&cells, " | %s | %s", figure, quotient)
		}
		if shown {
			fmt.Fprintf(&b, "| %s | %d×%d | %s | %s%s |\n", g.workload, g.parents, g.children, m.name, fmt.Sprintf(m.format, own), cells.String())
		}
	}
	return b.String()
}

// peerNames returns who was measured but for the server, in the order in which each came first.
func peerNames(results []Result) []string {
	var names []string
	for _, g := range groups(results) {
		if g.measured != Server && !slices.Contains(names, g.measured) {
			names = append(names, g.measured)
		}
	}
	return names
}

// spread returns the median of a measure, and between which values it is the median.
func (g group) spread(format string, f func(Result) float64) string {
	values := make([]float64, len(g.results))
	for i, r := range g.results {
		values[i] = f(r)
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+", %d runs)", g.median(f), slices.Min(values), slices.Max(values), len(values))
}
