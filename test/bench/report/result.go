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
)

// Result is one workload of one run.
type Result struct {
	Workload string `json:"workload"`
	Parents  int    `json:"parents"`
	Children int    `json:"children"`
	// Seconds is the time to converge, Limit that of the bare writes or the bound, Ratio the one by the other. Where the
	// bare writes were measured several times, Limits are their times, and Limit is the mean.
	Seconds float64   `json:"seconds"`
	Limit   float64   `json:"limit,omitempty"`
	Ratio   float64   `json:"ratio,omitempty"`
	Limits  []float64 `json:"limits,omitempty"`
	// P50 and P99 are milliseconds from a change to its convergence; WriteP50 and WriteP99 those of bare writes that
	// were made meanwhile.
	P50      float64 `json:"p50ms,omitempty"`
	P99      float64 `json:"p99ms,omitempty"`
	WriteP50 float64 `json:"writeP50ms,omitempty"`
	WriteP99 float64 `json:"writeP99ms,omitempty"`
	// StartP50 is milliseconds from the start of the workload until half of the parents have converged, LimitStartP50 until the bare
	// writes are done with half of them.
	StartP50      float64 `json:"startP50ms,omitempty"`
	LimitStartP50 float64 `json:"limitStartP50ms,omitempty"`
	// CallsPerParent are hook calls, BytesInPerParent and BytesOutPerParent the bodies that the hook got and sent.
	CallsPerParent    float64 `json:"callsPerParent"`
	BytesInPerParent  float64 `json:"bytesInPerParent"`
	BytesOutPerParent float64 `json:"bytesOutPerParent"`
	// Requests are those that the API server counted for the workload's resources, those of the bench subtracted, by
	// verb and resource; OwnRequests are the server's own count of all its requests, by HTTP method.
	Requests    map[string]int64 `json:"requests"`
	OwnRequests map[string]int64 `json:"ownRequests"`
	// UnaskedWrites are writes to objects that were settled already; nil where a workload has no such objects.
	UnaskedWrites *int64 `json:"unaskedWrites,omitempty"`
	// CPU is the processor time of the server's process in seconds, PerThousand that for 1,000 parents.
	CPU         float64 `json:"cpuSeconds"`
	PerThousand float64 `json:"cpuSecondsPer1000"`
	// RSSBefore and RSSAfter are the server's resident memory in MB; BytesPerObject the growth by cached object.
	RSSBefore      float64 `json:"rssBeforeMB"`
	RSSAfter       float64 `json:"rssAfterMB"`
	BytesPerObject float64 `json:"bytesPerObject,omitempty"`
	// Mallocs and AllocBytes are what the server has allocated for each parent.
	Mallocs    float64 `json:"mallocsPerParent"`
	AllocBytes float64 `json:"allocBytesPerParent"`
}

// Against returns the result compared with the times of the bare writes, at least one.
func (r Result) Against(limits ...float64) Result {
	var sum float64
	for _, l := range limits {
		sum += l
	}
	r.Limits, r.Limit = limits, sum/float64(len(limits))
	r.Ratio = r.Seconds / r.Limit
	return r
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
