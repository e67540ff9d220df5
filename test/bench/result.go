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
	"fmt"
	"os"
	"slices"
	"strings"
)

// result is one line of the output.
type result struct {
	Workload string `json:"workload"`
	Parents  int    `json:"parents"`
	Children int    `json:"children"`
	// Seconds is the time to converge, Limit that of the bare writes, Ratio the one by the other.
	Seconds float64 `json:"seconds"`
	Limit   float64 `json:"limit,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	// P50 and P99 are milliseconds from the change of a parent to its convergence.
	P50 float64 `json:"p50ms,omitempty"`
	P99 float64 `json:"p99ms,omitempty"`
	// CallsPerParent are hook calls.
	CallsPerParent float64 `json:"callsPerParent"`
	// Requests are those of the server to the cluster, by method.
	Requests map[string]int64 `json:"requests"`
	// CPU is the processor time of the server's process in seconds, PerThousand that for 1,000 parents.
	CPU         float64 `json:"cpuSeconds"`
	PerThousand float64 `json:"cpuSecondsPer1000"`
	// RSSBefore and RSSAfter are the server's resident memory in MB; BytesPerObject the growth by cached object.
	RSSBefore      float64 `json:"rssBeforeMB"`
	RSSAfter       float64 `json:"rssAfterMB"`
	BytesPerObject float64 `json:"bytesPerObject,omitempty"`
}

const (
	tableBegin = "<!-- begin: written by make bench -->"
	tableEnd   = "<!-- end: written by make bench -->"
)

// tableOf returns the medians of all results as a table.
func tableOf(results []result) string {
	groups := map[string][]result{}
	var order []string
	for _, r := range results {
		key := fmt.Sprintf("%s %d×%d", r.Workload, r.Parents, r.Children)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], r)
	}
	var b strings.Builder
	b.WriteString("| workload | size | runs | seconds | limit | ratio | p50 ms | p99 ms | hook calls per parent | GET | POST | PUT | PATCH | DELETE | CPU s per 1,000 parents | RSS MB before → after | bytes per cached object |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, key := range order {
		g := groups[key]
		median := func(f func(result) float64) float64 {
			values := make([]float64, len(g))
			for i, r := range g {
				values[i] = f(r)
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		method := func(name string) float64 { return median(func(r result) float64 { return float64(r.Requests[name]) }) }
		fmt.Fprintf(&b, "| %s | %d × %d | %d | %.2f | %.2f | %.2f | %.0f | %.0f | %.2f | %.0f | %.0f | %.0f | %.0f | %.0f | %.2f | %.0f → %.0f | %.0f |\n",
			g[0].Workload, g[0].Parents, g[0].Children, len(g),
			median(func(r result) float64 { return r.Seconds }), median(func(r result) float64 { return r.Limit }),
			median(func(r result) float64 { return r.Ratio }), median(func(r result) float64 { return r.P50 }),
			median(func(r result) float64 { return r.P99 }), median(func(r result) float64 { return r.CallsPerParent }),
			method("GET"), method("POST"), method("PUT"), method("PATCH"), method("DELETE"),
			median(func(r result) float64 { return r.PerThousand }),
			median(func(r result) float64 { return r.RSSBefore }), median(func(r result) float64 { return r.RSSAfter }),
			median(func(r result) float64 { return r.BytesPerObject }))
	}
	return b.String()
}

// replaceTable puts the table between the markers of a document.
func replaceTable(file, table string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	before, rest, ok := strings.Cut(string(content), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no markers for the table", file)
	}
	text := before + tableBegin + "\n\n" + table + "\n" + tableEnd + after
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	return nil
}
