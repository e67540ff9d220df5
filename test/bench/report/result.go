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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
)

// Server is what results call the server, as against its peers.
const Server = "metacontroller-apiserver"

// Times are those of one workload. Those of its objects are in milliseconds.
type Times struct {
	Seconds float64
	// P50 and P99 are from an object's change to its convergence, StartP50 and StartP99 from the start of the workload.
	P50, P99, StartP50, StartP99 float64
}

// TimesOf returns the times of a workload that took some seconds. Took and fromStart are those of each object.
func TimesOf(seconds float64, took, fromStart []float64) Times {
	return Times{
		Seconds: seconds, P50: Percentile(took, 0.5), P99: Percentile(took, 0.99),
		StartP50: Percentile(fromStart, 0.5), StartP99: Percentile(fromStart, 0.99),
	}
}

// Result is one workload of one run.
type Result struct {
	// Measured is Server, also where it is empty, or the name of a peer.
	Measured string `json:"measured,omitempty"`
	Workload string `json:"workload"`
	Parents  int    `json:"parents"`
	Children int    `json:"children"`
	// Seconds is the time to converge, Limit that of the bare writes or the bound, Ratio the one by the other. Where the
	// bare writes were measured several times, Limits are their times, and Limit is the mean.
	Seconds float64   `json:"seconds"`
	Limit   float64   `json:"limit,omitempty"`
	Ratio   float64   `json:"ratio,omitempty"`
	Limits  []float64 `json:"limits,omitempty"`
	// P50 and P99 are milliseconds from an object's change to its convergence; LimitP50 and LimitP99 those of the limit's objects, from
	// the first of its bare writes to the end of the last; WriteP50 and WriteP99 those of bare writes that were made meanwhile.
	P50      float64 `json:"p50ms,omitempty"`
	P99      float64 `json:"p99ms,omitempty"`
	LimitP50 float64 `json:"limitP50ms,omitempty"`
	LimitP99 float64 `json:"limitP99ms,omitempty"`
	WriteP50 float64 `json:"writeP50ms,omitempty"`
	WriteP99 float64 `json:"writeP99ms,omitempty"`
	// StartP50 and StartP99 are milliseconds from the start of the workload until half of the objects, and 99 of 100, have converged,
	// LimitStartP50 and LimitStartP99 until the bare writes are done with them. Where objects are changed one after the other, it is
	// from the start of each change.
	StartP50      float64 `json:"startP50ms,omitempty"`
	StartP99      float64 `json:"startP99ms,omitempty"`
	LimitStartP50 float64 `json:"limitStartP50ms,omitempty"`
	LimitStartP99 float64 `json:"limitStartP99ms,omitempty"`
	// CallsPerParent are hook calls, BytesInPerParent and BytesOutPerParent the bodies that the hook got and sent.
	CallsPerParent    float64 `json:"callsPerParent"`
	BytesInPerParent  float64 `json:"bytesInPerParent"`
	BytesOutPerParent float64 `json:"bytesOutPerParent"`
	// Requests are those that the API server counted for the workload's resources, those of the bench subtracted, by
	// verb and resource; OwnRequests are the subject's own count of all its requests, by HTTP method.
	Requests    map[string]int64 `json:"requests"`
	OwnRequests map[string]int64 `json:"ownRequests"`
	// UnaskedWrites are writes to objects that were settled already; nil where a workload has no such objects.
	UnaskedWrites *int64 `json:"unaskedWrites,omitempty"`
	// CPU is the processor time of the subject's process in seconds, PerThousand that for 1,000 parents.
	CPU         float64 `json:"cpuSeconds"`
	PerThousand float64 `json:"cpuSecondsPer1000"`
	// HookCPU is that of the hook's process. WebhookCPU is what the server and the hook took together for the same workload with a webhook, for
	// a workload with an inline hook.
	HookCPU    float64 `json:"hookCPUSeconds,omitempty"`
	WebhookCPU float64 `json:"webhookCPUSeconds,omitempty"`
	// APIServerCPU is that of the kube-apiserver's process meanwhile.
	APIServerCPU float64 `json:"apiServerCPUSeconds,omitempty"`
	// RSSBefore and RSSAfter are its resident memory in MB; BytesPerObject the growth by cached object, and LiveBytesPerObject that of what a
	// garbage collection leaves.
	RSSBefore          float64 `json:"rssBeforeMB"`
	RSSAfter           float64 `json:"rssAfterMB"`
	BytesPerObject     float64 `json:"bytesPerObject,omitempty"`
	LiveBytesPerObject float64 `json:"liveBytesPerObject,omitempty"`
	// Mallocs and AllocBytes are what it has allocated for each parent, zero where its metrics do not tell.
	Mallocs    float64 `json:"mallocsPerParent"`
	AllocBytes float64 `json:"allocBytesPerParent"`
}

// Against returns the result compared with the bare writes of its limit, which were measured at least once. The means of their times count.
func (r Result) Against(limits ...Times) Result {
	mean := func(f func(Times) float64) float64 {
		var sum float64
		for _, l := range limits {
			sum += f(l)
		}
		return sum / float64(len(limits))
	}
	r.Limits = nil
	for _, l := range limits {
		r.Limits = append(r.Limits, l.Seconds)
	}
	r.Limit = mean(func(t Times) float64 { return t.Seconds })
	r.LimitP50, r.LimitP99 = mean(func(t Times) float64 { return t.P50 }), mean(func(t Times) float64 { return t.P99 })
	r.LimitStartP50, r.LimitStartP99 = mean(func(t Times) float64 { return t.StartP50 }), mean(func(t Times) float64 { return t.StartP99 })
	r.Ratio = r.Seconds / r.Limit
	return r
}

// Whole returns the result of a workload that was measured in parts, at least one, each on as many parents of its own. What was counted is added
// up, and the times of objects are the medians of those of the parts.
func Whole(parts []Result) Result {
	sum := func(f func(Result) float64) float64 {
		var total float64
		for _, p := range parts {
			total += f(p)
		}
		return total
	}
	mean := func(f func(Result) float64) float64 { return sum(f) / float64(len(parts)) }
	first, last := parts[0], parts[len(parts)-1]
	r := Result{
		Measured: first.Measured, Workload: first.Workload, Parents: first.Parents * len(parts), Children: first.Children,
		Seconds: sum(func(p Result) float64 { return p.Seconds }), Limit: sum(func(p Result) float64 { return p.Limit }),
		P50: Median(parts, func(p Result) float64 { return p.P50 }), P99: Median(parts, func(p Result) float64 { return p.P99 }),
		LimitP50: Median(parts, func(p Result) float64 { return p.LimitP50 }), LimitP99: Median(parts, func(p Result) float64 { return p.LimitP99 }),
		StartP50: Median(parts, func(p Result) float64 { return p.StartP50 }), StartP99: Median(parts, func(p Result) float64 { return p.StartP99 }),
		LimitStartP50: Median(parts, func(p Result) float64 { return p.LimitStartP50 }), LimitStartP99: Median(parts, func(p Result) float64 { return p.LimitStartP99 }),
		CallsPerParent: mean(func(p Result) float64 { return p.CallsPerParent }), BytesInPerParent: mean(func(p Result) float64 { return p.BytesInPerParent }),
		BytesOutPerParent: mean(func(p Result) float64 { return p.BytesOutPerParent }),
		Requests:          map[string]int64{}, OwnRequests: map[string]int64{},
		CPU: sum(func(p Result) float64 { return p.CPU }), PerThousand: mean(func(p Result) float64 { return p.PerThousand }),
		HookCPU: sum(func(p Result) float64 { return p.HookCPU }), APIServerCPU: sum(func(p Result) float64 { return p.APIServerCPU }),
		RSSBefore: first.RSSBefore, RSSAfter: last.RSSAfter,
		Mallocs: mean(func(p Result) float64 { return p.Mallocs }), AllocBytes: mean(func(p Result) float64 { return p.AllocBytes }),
	}
	for _, p := range parts {
		r.Limits = append(r.Limits, p.Limits...)
		for key, n := range p.Requests {
			r.Requests[key] += n
		}
		for key, n := range p.OwnRequests {
			r.OwnRequests[key] += n
		}
	}
	if r.Limit > 0 {
		r.Ratio = r.Seconds / r.Limit
	}
	return r
}

// StartRatio returns how much later than the limit's half of the objects have converged, both from the start of the workload, zero where
// there is no limit.
func (r Result) StartRatio() float64 {
	if r.LimitStartP50 == 0 {
		return 0
	}
	return r.StartP50 / r.LimitStartP50
}

// CPURatio returns the processor time as a part of the kube-apiserver's, zero where that was not measured. On a machine that gets slower and
// faster it says more than seconds.
func (r Result) CPURatio() float64 {
	if r.APIServerCPU == 0 {
		return 0
	}
	return r.CPU / r.APIServerCPU
}

// WebhookRatio returns the processor time as a part of what a webhook takes, whose own time counts, zero where that was not measured.
func (r Result) WebhookRatio() float64 {
	if r.WebhookCPU == 0 {
		return 0
	}
	return (r.CPU + r.HookCPU) / r.WebhookCPU
}

// StatusWrites returns the number of writes to the statuses of the workload's resources.
func (r Result) StatusWrites() int64 {
	var n int64
	for key, count := range r.Requests {
		if verbOf(key) != "GET" && strings.HasSuffix(key, "/status") {
			n += count
		}
	}
	return n
}

// Reads returns the number of GETs and LISTs of the workload's resources.
func (r Result) Reads(resources ...string) int64 {
	var n int64
	for _, resource := range resources {
		n += r.Requests["GET "+resource] + r.Requests["LIST "+resource]
	}
	return n
}

// Writes returns the number of writes to the workload's resources.
func (r Result) Writes() int64 {
	var n int64
	for key, count := range r.Requests {
		switch verbOf(key) {
		case "GET", "LIST":
		default:
			n += count
		}
	}
	return n
}

// Percentile returns the smallest value that the share p of all values does not exceed, zero where there are none.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// Median returns the median of f over results, zero where there are none.
func Median(results []Result, f func(Result) float64) float64 {
	if len(results) == 0 {
		return 0
	}
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = f(r)
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// Read reads results from a file of JSON lines. A file that does not exist has none.
func Read(file string) ([]Result, error) {
	content, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	defer func() { _ = content.Close() }()
	var results []Result
	for decoder := json.NewDecoder(content); ; {
		var r Result
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil:
			return nil, fmt.Errorf("reading results from %s: %w", file, err)
		}
		results = append(results, r)
	}
}

// Append adds a result to a file of JSON lines.
func Append(file string, r Result) error {
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keeping a result: %w", err)
	}
	if err := errors.Join(json.NewEncoder(out).Encode(r), out.Close()); err != nil {
		return fmt.Errorf("keeping a result: %w", err)
	}
	return nil
}
