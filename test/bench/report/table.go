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
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// group is all runs of one workload of one size.
type group struct {
	measured, workload string
	parents, children  int
	results            []Result
}

func (g group) median(f func(Result) float64) float64 { return Median(g.results, f) }

// same reports whether another group has the same workload and size, of whomever.
func (g group) same(o group) bool {
	return g.workload == o.workload && g.parents == o.parents && g.children == o.children
}

// groups returns the results by who was measured, workload and size, in the order in which each came first.
func groups(results []Result) []group {
	var all []group
	for _, r := range results {
		of := group{measured: cmp.Or(r.Measured, Server), workload: r.Workload, parents: r.Parents, children: r.Children}
		i := slices.IndexFunc(all, func(g group) bool { return g.measured == of.measured && g.same(of) })
		if i < 0 {
			i = len(all)
			all = append(all, of)
		}
		all[i].results = append(all[i].results, r)
	}
	return all
}

// ownGroups returns the groups of the server.
func ownGroups(results []Result) []group {
	return slices.DeleteFunc(groups(results), func(g group) bool { return g.measured != Server })
}

func verbOf(key string) string {
	verb, _, _ := strings.Cut(key, " ")
	return verb
}

// verb returns the median number of requests of the verbs.
func (g group) verb(verbs ...string) string {
	return fmt.Sprintf("%.0f", g.median(func(r Result) float64 {
		var n int64
		for key, count := range r.Requests {
			if slices.Contains(verbs, verbOf(key)) {
				n += count
			}
		}
		return float64(n)
	}))
}

func (g group) number(format string, f func(Result) float64) string {
	if n := g.median(f); n != 0 {
		return fmt.Sprintf(format, n)
	}
	return ""
}

// Table returns the medians of all runs of the server as tables in Markdown: times, requests, and usage.
func Table(results []Result) string {
	all := ownGroups(results)
	return strings.Join([]string{table(all, timeColumns, times), table(all, requestColumns, requests), table(all, usageColumns, usage)}, "\n")
}

const (
	timeColumns = "seconds | limit | ratio | from the start: median, s | limit's | p99, s | limit's | p50 ms | p99 ms | bare writes: p50 ms | p99 ms | " +
		"hook calls per parent"
	requestColumns = "GET, LIST | POST | PUT | PATCH | DELETE | unasked writes | all requests of the server"
	usageColumns   = "hook KB in per parent | out | CPU s | CPU s per 1,000 parents | CPU ÷ the API server's | RSS MB before | after | bytes per cached object | " +
		"allocations per parent | KB | the hook's CPU s | CPU ÷ a webhook's"
)

func times(g group) []string {
	// From the start of what has no limit there is nothing to compare with.
	start := func(r Result, milliseconds float64) float64 {
		if r.LimitStartP50 == 0 {
			return 0
		}
		return milliseconds / 1000
	}
	return []string{
		g.number(hundredths, func(r Result) float64 { return r.Seconds }), g.number(hundredths, func(r Result) float64 { return r.Limit }),
		g.number(hundredths, func(r Result) float64 { return r.Ratio }),
		g.number(hundredths, func(r Result) float64 { return start(r, r.StartP50) }), g.number(hundredths, func(r Result) float64 { return r.LimitStartP50 / 1000 }),
		g.number(hundredths, func(r Result) float64 { return start(r, r.StartP99) }), g.number(hundredths, func(r Result) float64 { return r.LimitStartP99 / 1000 }),
		g.number("%.1f", func(r Result) float64 { return r.P50 }), g.number("%.1f", func(r Result) float64 { return r.P99 }),
		g.number("%.1f", func(r Result) float64 { return cmp.Or(r.LimitP50, r.WriteP50) }),
		g.number("%.1f", func(r Result) float64 { return cmp.Or(r.LimitP99, r.WriteP99) }),
		fmt.Sprintf(hundredths, g.median(func(r Result) float64 { return r.CallsPerParent })),
	}
}

func requests(g group) []string {
	unasked := ""
	if g.results[0].UnaskedWrites != nil {
		unasked = fmt.Sprintf("%.0f", g.median(func(r Result) float64 {
			if r.UnaskedWrites == nil {
				return 0
			}
			return float64(*r.UnaskedWrites)
		}))
	}
	return []string{
		g.verb("GET", "LIST"), g.verb("POST"), g.verb("PUT"), g.verb("PATCH", "APPLY"), g.verb("DELETE", "DELETECOLLECTION"), unasked,
		fmt.Sprintf("%.0f", g.median(func(r Result) float64 {
			var n int64
			for _, count := range r.OwnRequests {
				n += count
			}
			return float64(n)
		})),
	}
}

func usage(g group) []string {
	return []string{
		g.number("%.1f", func(r Result) float64 { return r.BytesInPerParent / 1024 }),
		g.number("%.1f", func(r Result) float64 { return r.BytesOutPerParent / 1024 }),
		g.number(hundredths, func(r Result) float64 { return r.CPU }), g.number(hundredths, func(r Result) float64 { return r.PerThousand }),
		g.number(hundredths, Result.CPURatio), g.number("%.0f", func(r Result) float64 { return r.RSSBefore }), g.number("%.0f", func(r Result) float64 { return r.RSSAfter }),
		g.number("%.0f", func(r Result) float64 { return r.BytesPerObject }), g.number("%.0f", func(r Result) float64 { return r.Mallocs }),
		g.number("%.0f", func(r Result) float64 { return r.AllocBytes / 1024 }), g.number(hundredths, func(r Result) float64 { return r.HookCPU }),
		g.number(hundredths, Result.WebhookRatio),
	}
}

// table returns a table with a line for each group.
func table(all []group, columns string, cells func(group) []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| workload | parents × children | runs | %s |\n|---|---|---%s|\n", columns, strings.Repeat("|---", 1+strings.Count(columns, "|")))
	for _, g := range all {
		fmt.Fprintf(&b, "| %s | %d×%d | %d | %s |\n", g.workload, g.parents, g.children, len(g.results), strings.Join(cells(g), " | "))
	}
	return b.String()
}

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
		sized("inline hook, create ÷ limit", "", "inline-create", 3000, 1.1, ratio),
		sized("inline hook, update in place ÷ limit", "", "inline-update", 3000, 1.1, ratio),
		sized("inline hook, CPU to create ÷ that of a webhook and its server", "", "inline-create", 3000, 0.67, Result.WebhookRatio),
		sized("inline hook, CPU to update ÷ that of a webhook and its server", "", "inline-update", 3000, 0.67, Result.WebhookRatio),
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
