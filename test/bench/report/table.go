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
		"allocations per parent | KB"
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
		g.number("%.0f", func(r Result) float64 { return r.AllocBytes / 1024 }),
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
