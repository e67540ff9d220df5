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
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

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
