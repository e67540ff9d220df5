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
	"fmt"
	"slices"
	"strconv"
	"strings"
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
