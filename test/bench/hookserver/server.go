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

package hookserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Paths that are served. All take POST.
const (
	// PathSync wants as many children as the parent says. The parameter delay, a duration, is waited for first.
	PathSync = "/sync"
	// PathFinalize wants no children, and is done when there are none.
	PathFinalize = "/finalize"
	// PathCustomize relates each parent to one of as many objects as the parameter related says.
	PathCustomize = "/customize"
	// PathRelated is PathSync with the revision of the related object.
	PathRelated = "/related"
	// PathDecorate wants one attachment for each object.
	PathDecorate = "/decorate"
	// PathCounts takes GET and returns Counts.
	PathCounts = "/counts"
)

// Count is what was counted of the calls of one path.
type Count struct {
	Calls    int64 `json:"calls"`
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
}

// Counts are the counters by path.
type Counts map[string]Count

// Total adds up all paths.
func (c Counts) Total() Count {
	var total Count
	for _, n := range c {
		total.Calls += n.Calls
		total.BytesIn += n.BytesIn
		total.BytesOut += n.BytesOut
	}
	return total
}

type counter struct {
	mu     sync.Mutex
	counts Counts
}

func (c *counter) add(path string, in, out int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[path]
	n.Calls++
	n.BytesIn += int64(in)
	n.BytesOut += int64(out)
	c.counts[path] = n
}

// Run serves the hook on a free port of the loopback interface until ctx ends. It writes its address on a line first.
func Run(ctx context.Context, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(out, listener.Addr())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the hook: %w", err)
	}
	return nil
}

func handler() http.Handler {
	c := &counter{counts: Counts{}}
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*http.Request, []byte) ([]byte, error){
		PathSync: syncParent, PathFinalize: finalize, PathCustomize: customize, PathRelated: related, PathDecorate: decorate,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			reply, err := answer(r, body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			c.add(path, len(body), len(reply))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(reply)
		})
	}
	mux.HandleFunc("GET "+PathCounts, func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(c.counts)
	})
	return mux
}

// Payload fills a ConfigMap so that it is about 0.9 KB of JSON.
var Payload = strings.Repeat("x", 560)

// configMap is the part of a ConfigMap that the hook looks at.
type configMap struct {
	Data map[string]string `json:"data"`
}

// parent is the part of a parent that the hook looks at.
type parent struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Children int    `json:"children"`
		Revision string `json:"revision"`
	} `json:"spec"`
}

// request is the part of a request that the hook looks at.
type request struct {
	Parent   parent                          `json:"parent"`
	Object   parent                          `json:"object"`
	Children map[string]map[string]configMap `json:"children"`
	Related  map[string]map[string]configMap `json:"related"`
}

func read(body []byte) (request, error) {
	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		return q, fmt.Errorf("reading the request: %w", err)
	}
	return q, nil
}

// syncParent wants as many ConfigMaps as the parent says, and reports how many are there in the parent's revision.
func syncParent(r *http.Request, body []byte) ([]byte, error) {
	q, err := read(body)
	if err != nil {
		return nil, err
	}
	if delay := r.URL.Query().Get("delay"); delay != "" {
		d, err := time.ParseDuration(delay)
		if err != nil {
			return nil, fmt.Errorf("reading the delay: %w", err)
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return answer(q, q.Parent.Spec.Revision), nil
}

// related wants the children in the revision of the related ConfigMap.
func related(_ *http.Request, body []byte) ([]byte, error) {
	q, err := read(body)
	if err != nil {
		return nil, err
	}
	revision := ""
	for _, c := range q.Related["ConfigMap.v1"] {
		revision = c.Data["revision"]
	}
	return answer(q, revision), nil
}

func answer(q request, revision string) []byte {
	current := 0
	for _, child := range q.Children["ConfigMap.v1"] {
		if child.Data["revision"] == revision {
			current++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"status":{"children":%d,"revision":%q},"children":[`, current, revision)
	for i := range q.Parent.Spec.Children {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d"},"data":{"revision":%q,"payload":%q}}`,
			q.Parent.Metadata.Name, i, revision, Payload)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func finalize(_ *http.Request, body []byte) ([]byte, error) {
	q, err := read(body)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"children":[],"finalized":%t}`, len(q.Children["ConfigMap.v1"]) == 0), nil
}

// Slot returns the number of the related object of a parent such as p17, of as many as there are.
func Slot(parent string, objects int) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(parent, "p"))
	if err != nil || objects < 1 {
		return 0, fmt.Errorf("parent %q of %d related objects has no number", parent, objects)
	}
	return n % objects, nil
}

// customize relates half of the parents to their object by name, and half by label.
func customize(r *http.Request, body []byte) ([]byte, error) {
	q, err := read(body)
	if err != nil {
		return nil, err
	}
	objects, err := strconv.Atoi(r.URL.Query().Get("related"))
	if err != nil {
		return nil, fmt.Errorf("reading the number of related objects: %w", err)
	}
	slot, err := Slot(q.Parent.Metadata.Name, objects)
	if err != nil {
		return nil, err
	}
	which := fmt.Sprintf(`"names":["related-%d"]`, slot)
	if slot%2 == 1 {
		which = fmt.Sprintf(`"labelSelector":{"matchLabels":{"slot":"%d"}}`, slot)
	}
	return fmt.Appendf(nil, `{"relatedResources":[{"apiVersion":"v1","resource":"configmaps",%s}]}`, which), nil
}

// decorate wants one ConfigMap in the revision that an annotation of the object says.
func decorate(_ *http.Request, body []byte) ([]byte, error) {
	q, err := read(body)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"attachments":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"bench":"attachment"}},`+
		`"data":{"revision":%q,"payload":%q}}]}`, q.Object.Metadata.Name, q.Object.Metadata.Annotations["revision"], Payload), nil
}
