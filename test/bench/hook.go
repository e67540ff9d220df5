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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// hookCounts is what the hook counts itself.
type hookCounts struct {
	Calls    int64 `json:"calls"`
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
}

// payload makes a child about 0.9 KB of JSON.
var payload = strings.Repeat("x", 560)

// hookRequest is the part of a request that the hook looks at.
type hookRequest struct {
	Parent struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Children int    `json:"children"`
			Revision string `json:"revision"`
		} `json:"spec"`
	} `json:"parent"`
	Children map[string]map[string]struct {
		Data map[string]string `json:"data"`
	} `json:"children"`
}

// runHook serves a hook until ctx ends. It writes its address on a line.
func runHook(ctx context.Context, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	var calls, received, sent atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/sync", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := answerTo(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		calls.Add(1)
		received.Add(int64(len(body)))
		sent.Add(int64(len(answer)))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
	mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(hookCounts{calls.Load(), received.Load(), sent.Load()})
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(out, listener.Addr())
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answerTo wants as many ConfigMaps as the parent says, and reports how many are there in the parent's revision.
func answerTo(body []byte) ([]byte, error) {
	var q hookRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	current := 0
	for _, child := range q.Children["ConfigMap.v1"] {
		if child.Data["revision"] == q.Parent.Spec.Revision {
			current++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"status":{"children":%d,"revision":%q},"children":[`, current, q.Parent.Spec.Revision)
	for i := range q.Parent.Spec.Children {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d"},"data":{"revision":%q,"payload":%q}}`,
			q.Parent.Metadata.Name, i, q.Parent.Spec.Revision, payload)
	}
	b.WriteString(`]}`)
	return []byte(b.String()), nil
}
