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
