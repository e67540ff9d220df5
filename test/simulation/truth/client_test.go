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

package truth_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/overhttp"
)

const (
	limit = 2 * time.Minute
	crds  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

	jsonType      = "application/json"
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	applyType     = "application/apply-patch+yaml"
)

// object is decoded JSON.
type object = map[string]any

// client sends the requests of one row to one server.
type client struct {
	t         *testing.T
	server    string
	host      string
	http      *http.Client
	namespace string
	// simulation is nil for the real server.
	simulation *overhttp.Handler
	// user is impersonated, unless it is empty.
	user   string
	accept string
	agent  string

	silent     int
	transcript []string
	// names are what stands in the transcript for UIDs and resourceVersions.
	names map[string]string
}

func newClient(t *testing.T, server, host string, h *http.Client, namespace string) *client {
	t.Helper()
	return &client{t: t, server: server, host: host, http: h, namespace: namespace, names: map[string]string{}, agent: "truth/1"}
}

// begin makes the namespace of the row, which goes with the control plane: a deletion has the controller manager list the objects of each kind.
func (c *client) begin() {
	c.silently(func() {
		c.want(201, c.send("POST", "/api/v1/namespaces", jsonType, fmt.Sprintf(`{"metadata":{"name":%q}}`, c.namespace)))
	})
}

// silently keeps the requests of a function out of the transcript.
func (c *client) silently(f func()) {
	c.silent++
	defer func() { c.silent-- }()
	f()
}

// response is a decoded response.
type response struct {
	code int
	body object
	raw  []byte
}

// send sends a request and adds the response to the transcript. $ns in path and body stands for the namespace.
func (c *client) send(method, path, contentType, body string) response {
	c.t.Helper()
	request := c.request(c.t.Context(), method, path, contentType, body)
	got, err := c.http.Do(request)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer got.Body.Close() //nolint:errcheck // Nothing depends on it.
	r := response{code: got.StatusCode}
	if r.raw, err = io.ReadAll(got.Body); err != nil {
		c.t.Fatalf("reading the response to %s %s: %v", method, path, err)
	}
	decoded := json.NewDecoder(bytes.NewReader(r.raw))
	decoded.UseNumber()
	if err := decoded.Decode(&r.body); err != nil {
		r.body = nil
	}
	warnings := slices.DeleteFunc(got.Header["Warning"], aboutTheCluster.MatchString)
	c.note(fmt.Sprintf("%s %s: %d %s%s", method, path, r.code, strings.Join(warnings, " "), retryAfter(got.Header)), r)
	return r
}

// aboutTheCluster are warnings of the product's server that the simulation does not give: they know what the cluster serves.
var aboutTheCluster = regexp.MustCompile(`the cluster does not serve|have no status subresource|handles \S+ too, and`)

func retryAfter(h http.Header) string {
	if after := h.Get("Retry-After"); after != "" {
		return " Retry-After " + after
	}
	return ""
}

func (c *client) request(ctx context.Context, method, path, contentType, body string) *http.Request {
	c.t.Helper()
	path, body = c.expand(path), c.expand(body)
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("User-Agent", c.agent)
	request.Header.Set("Accept", "application/json")
	if c.accept != "" {
		request.Header.Set("Accept", c.accept)
	}
	if c.user != "" {
		request.Header.Set("Impersonate-User", c.user)
	}
	return request
}

// expand replaces $ns, and the short paths of rows: things and plains are custom resources, everything else without a slash in front
// is in the core group.
func (c *client) expand(text string) string { return strings.ReplaceAll(text, "$ns", c.namespace) }

// in returns the path of a namespaced resource of a group-version such as v1 or truth.example.com/v1.
func in(groupVersion, resource string) string {
	root := "/apis/"
	if !strings.Contains(groupVersion, "/") {
		root = "/api/"
	}
	return root + groupVersion + "/namespaces/$ns/" + resource
}

// want asserts the code of a response.
func (c *client) want(code int, r response) response {
	c.t.Helper()
	if r.code != code {
		c.t.Fatalf("got %d, want %d: %s", r.code, code, r.raw)
	}
	return r
}

func (c *client) get(code int, path string) response {
	c.t.Helper()
	return c.want(code, c.send("GET", path, "", ""))
}

func (c *client) post(code int, path, body string) response {
	c.t.Helper()
	return c.want(code, c.send("POST", path, jsonType, body))
}

func (c *client) put(code int, path, body string) response {
	c.t.Helper()
	return c.want(code, c.send("PUT", path, jsonType, body))
}

func (c *client) patch(code int, contentType, path, body string) response {
	c.t.Helper()
	return c.want(code, c.send("PATCH", path, contentType, body))
}

func (c *client) apply(code int, manager, path, body string) response {
	c.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return c.want(code, c.send("PATCH", path+separator+"fieldManager="+manager, applyType, body))
}

func (c *client) delete(code int, path, options string) response {
	c.t.Helper()
	return c.want(code, c.send("DELETE", path, jsonType, options))
}

// settle waits until the controllers of the cluster have done their part: until a request has the code.
func (c *client) settle(code int, path string) {
	c.t.Helper()
	c.silently(func() {
		if c.simulation != nil {
			c.simulation.Use(func(s *apiserver.Server) {
				for s.Collect() {
				}
			})
			c.get(code, path)
			return
		}
		cluster.Eventually(c.t, limit, fmt.Sprintf("%d from %s", code, path), func(context.Context) (bool, string) {
			r := c.send("GET", path, "", "")
			return r.code == code, string(r.raw)
		})
	})
}

// until waits until an object is as a function wants it.
func (c *client) until(path string, good func(object) bool) {
	c.t.Helper()
	c.silently(func() {
		if c.simulation != nil {
			c.simulation.Use(func(s *apiserver.Server) {
				for s.Collect() {
				}
			})
		}
		cluster.Eventually(c.t, limit, path, func(context.Context) (bool, string) {
			r := c.send("GET", path, "", "")
			return r.code == 200 && good(r.body), string(r.raw)
		})
	})
}

// metadata returns the metadata of an object.
func (r response) metadata(field string) string {
	meta, _ := r.body["metadata"].(object)
	text, _ := meta[field].(string)
	return text
}

// with returns the JSON of an object that was received with changes to it.
func (r response) with(change func(object)) string {
	var o object
	if err := json.Unmarshal(r.raw, &o); err != nil {
		panic(err)
	}
	change(o)
	encoded, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

// note adds a response to the transcript.
func (c *client) note(what string, r response) {
	if c.silent > 0 {
		return
	}
	text := string(r.raw)
	if r.body != nil {
		normal := c.normalize("", r.body)
		encoded, err := json.MarshalIndent(normal, "", " ")
		if err != nil {
			c.t.Fatal(err)
		}
		text = string(encoded)
	}
	c.transcript = append(c.transcript, c.neutral(what)+"\n"+c.neutral(text))
}

// neutral replaces in a text what differs between servers.
func (c *client) neutral(text string) string {
	for _, value := range slices.SortedFunc(maps.Keys(c.names), func(a, b string) int { return len(b) - len(a) }) {
		if len(value) > 8 {
			text = strings.ReplaceAll(text, value, c.names[value])
		}
	}
	text = uuids.ReplaceAllString(text, "<some uid>")
	text = quotedRevisions.ReplaceAllString(text, "(<version>)")
	text = revisions.ReplaceAllString(text, "${1}<version>")
	return times.ReplaceAllString(text, "<time>")
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[1-9][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// quotedRevisions are resourceVersions in messages.
	quotedRevisions = regexp.MustCompile(`\(\d+\)`)
)

// revisions are resourceVersions in objects that messages quote.
var revisions = regexp.MustCompile(`(resourceVersion\\*":\\*")\d+`)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// normalize replaces UIDs, times and resourceVersions.
func (c *client) normalize(field string, v any) any {
	switch v := v.(type) {
	case object:
		o := object{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if inner := c.normalize(k, v[k]); k != "creationTimestamp" || inner != nil {
				o[c.neutral(k)] = inner
			}
		}
		if m, ok := o["metadata"].(object); ok && v["items"] != nil {
			m["resourceVersion"] = "<list>" // Other rows write at the same time.
		}
		return o
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = c.normalize(field, v[i])
		}
		if field == "managedFields" {
			// Their order depends on whether two writes happened in the same second.
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return list
	case string:
		switch field {
		case "uid":
			return c.named("uid", v)
		case "resourceVersion":
			return c.named("version", v)
		}
	}
	return v
}

func (c *client) named(kind, v string) string {
	if v == "" {
		return v
	}
	if _, ok := c.names[v]; !ok {
		c.names[v] = fmt.Sprintf("<%s %d>", kind, len(c.names))
	}
	return c.names[v]
}

// stream is a watch.
type stream struct {
	client *client
	body   io.Closer
	lines  chan string
}

// watch begins a watch.
func (c *client) watch(path string, query url.Values) *stream {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	query.Set("watch", "true")
	got, err := c.http.Do(c.request(ctx, "GET", path+"?"+query.Encode(), "", ""))
	if err != nil {
		c.t.Fatalf("watching %s: %v", path, err)
	}
	if got.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(got.Body)
		c.t.Fatalf("watching %s: %d %s", path, got.StatusCode, body)
	}
	s := &stream{client: c, body: got.Body, lines: make(chan string, 100)}
	c.t.Cleanup(func() { cancel(); _ = got.Body.Close() })
	go func() {
		defer close(s.lines)
		scanner := bufio.NewScanner(got.Body)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			select {
			case s.lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

// next waits for an event, adds it to the transcript and asserts its type. Bookmarks that are not wanted are left out.
func (s *stream) next(kind string) object {
	s.client.t.Helper()
	for line := range s.lines {
		r := response{raw: []byte(line)}
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&r.body); err != nil {
			s.client.t.Fatalf("decoding %q: %v", line, err)
		}
		if r.body["type"] == "BOOKMARK" && kind != "BOOKMARK" {
			continue
		}
		if r.body["type"] != kind {
			s.client.t.Fatalf("got the event %s, want %s", line, kind)
		}
		s.client.note("event", r)
		o, _ := r.body["object"].(object)
		return o
	}
	s.client.t.Fatalf("the watch ended, want %s", kind)
	return nil
}

// bookmark waits for the bookmark that follows the objects that existed, and adds it to the transcript without its version, since
// other rows write at the same time.
func (s *stream) bookmark() {
	s.client.t.Helper()
	s.client.silent++
	o := s.next("BOOKMARK")
	s.client.silent--
	m := object{}
	for k, v := range meta(o) {
		if k != "resourceVersion" {
			m[k] = v
		}
	}
	if meta(o)["resourceVersion"] == "" {
		s.client.t.Errorf("the bookmark has no version: %v", o)
	}
	s.client.note("bookmark", response{body: object{"apiVersion": o["apiVersion"], "kind": o["kind"], "metadata": m}})
}

// ended waits for the end of the watch.
func (s *stream) ended() {
	s.client.t.Helper()
	for line := range s.lines {
		if !strings.Contains(line, `"BOOKMARK"`) {
			s.client.t.Fatalf("got the event %s, want the end", line)
		}
	}
}
