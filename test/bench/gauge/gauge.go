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

package gauge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Sum adds up the samples of one metric on a page in Prometheus' text format, by the key that key returns for the labels
// of a sample. A sample whose key is empty is left out. A metric without labels has a nil map.
func Sum(page []byte, metric string, key func(labels map[string]string) string) (map[string]float64, error) {
	sums := map[string]float64{}
	for line := range strings.SplitSeq(string(page), "\n") {
		rest, ok := strings.CutPrefix(line, metric)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		labels, rest, err := labelsOf(rest)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		if k := key(labels); k != "" {
			sums[k] += n
		}
	}
	return sums, nil
}

// labelsOf reads the labels before a sample's value, and returns what follows them.
func labelsOf(text string) (map[string]string, string, error) {
	text, ok := strings.CutPrefix(text, "{")
	if !ok {
		return nil, text, nil
	}
	labels := map[string]string{}
	for {
		text = strings.TrimLeft(text, ", ")
		if rest, ended := strings.CutPrefix(text, "}"); ended {
			return labels, rest, nil
		}
		name, rest, ok := strings.Cut(text, "=")
		if !ok {
			return nil, "", fmt.Errorf("the labels do not end")
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, "", fmt.Errorf("label %s: %w", name, err)
		}
		if labels[name], err = strconv.Unquote(quoted); err != nil {
			return nil, "", fmt.Errorf("label %s: %w", name, err)
		}
		text = rest[len(quoted):]
	}
}

// Value returns a metric without labels, zero where it is not on the page.
func Value(page []byte, metric string) (float64, error) {
	sums, err := Sum(page, metric, func(map[string]string) string { return "value" })
	return sums["value"], err
}

// Requests returns how many requests an API server has counted for the given resources, watches left out. The keys are
// those of [Key].
func Requests(page []byte, resources ...string) (map[string]int64, error) {
	sums, err := Sum(page, "apiserver_request_total", func(labels map[string]string) string {
		if labels["verb"] == "WATCH" || !slices.Contains(resources, labels["resource"]) {
			return ""
		}
		return Key(labels["verb"], labels["resource"], labels["subresource"])
	})
	return rounded(sums), err
}

// Methods returns how many requests a client-go client has counted to a host, by HTTP method.
func Methods(page []byte, host string) (map[string]int64, error) {
	sums, err := Sum(page, "rest_client_requests_total", func(labels map[string]string) string {
		if labels["host"] != host {
			return ""
		}
		return labels["method"]
	})
	return rounded(sums), err
}

func rounded(sums map[string]float64) map[string]int64 {
	counts := make(map[string]int64, len(sums))
	for key, n := range sums {
		counts[key] = int64(n)
	}
	return counts
}

// Key returns the key under which requests are counted, for example "PATCH things/status".
func Key(verb, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return verb + " " + resource
}

// Fetch reads a page. It is an error when the answer's code is not 200.
func Fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", url, response.Status, body)
	}
	return body, nil
}

// clockTick is the unit of times in /proc, 1/100 s on every Linux.
const clockTick = 100

// CPU returns the processor time of a process, in seconds.
func CPU(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %d: %w", pid, err)
	}
	return cpuOf(content)
}

func cpuOf(stat []byte) (float64, error) {
	// The second field is the program's name in parentheses, and may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading the processor time: %d fields after the name, 13 are needed", len(fields))
	}
	user, errUser := strconv.ParseFloat(fields[11], 64)
	system, errSystem := strconv.ParseFloat(fields[12], 64)
	if errUser != nil || errSystem != nil {
		return 0, fmt.Errorf("reading the processor time: %q and %q are not numbers", fields[11], fields[12])
	}
	return (user + system) / clockTick, nil
}

// RSS returns the resident memory of a process, in MB.
func RSS(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %d: %w", pid, err)
	}
	return rssOf(string(content))
}

func rssOf(status string) (float64, error) {
	_, rest, _ := strings.Cut(status, "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("reading the memory: no VmRSS")
	}
	kilobytes, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0, fmt.Errorf("reading the memory: %w", err)
	}
	return kilobytes / 1024, nil
}

// Tally counts the requests that pass through it, by the keys of [Key]. The zero value is ready. It is safe for
// concurrent use.
type Tally struct {
	mu     sync.Mutex
	counts map[string]int64
}

// Wrap returns a transport that counts what it hands to next.
func (t *Tally) Wrap(next http.RoundTripper) http.RoundTripper {
	return counting{t, next}
}

// Counts returns what has been counted so far.
func (t *Tally) Counts() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]int64, len(t.counts))
	maps.Copy(counts, t.counts)
	return counts
}

type counting struct {
	tally *Tally
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	if key := keyOf(request.Method, request.URL); key != "" {
		c.tally.mu.Lock()
		if c.tally.counts == nil {
			c.tally.counts = map[string]int64{}
		}
		c.tally.counts[key]++
		c.tally.mu.Unlock()
	}
	return c.next.RoundTrip(request)
}

// keyOf returns the key under which an API server counts a request, empty for watches and what concerns no resource.
func keyOf(method string, u *url.URL) string {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	named := len(parts) > 1
	verb := method
	switch {
	case method == http.MethodGet && u.Query().Get("watch") != "":
		return ""
	case method == http.MethodGet && !named:
		verb = "LIST"
	case method == http.MethodDelete && !named:
		verb = "DELETECOLLECTION"
	}
	subresource := ""
	if len(parts) > 2 {
		subresource = strings.Join(parts[2:], "/")
	}
	return Key(verb, parts[0], subresource)
}
