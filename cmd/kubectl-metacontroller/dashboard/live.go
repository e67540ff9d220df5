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

package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	// leastInterval is between two readings of a page that is open, at least. Patient times as long as a reading takes is, too, so that pages of
	// large clusters ask rarely.
	leastInterval = time.Second
	patience      = 4
)

// update is a part that changed.
type update struct {
	ID     string `json:"id"`
	HTML   string `json:"html"`
	Digest string `json:"digest"`
}

// follow sends the parts of a page that change as Server-Sent Events, until the page is closed.
func (s *server) follow(w http.ResponseWriter, r *http.Request) {
	at, err := url.ParseRequestURI(r.URL.Query().Get("page"))
	if err != nil || s.views[at.Path] == nil {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	shown := map[string]string{}
	for {
		began := time.Now()
		p := s.views[at.Path](r.Context(), at.Query())
		if !p.Live || r.Context().Err() != nil {
			return
		}
		for i := range p.Parts {
			one := &p.Parts[i]
			s.fill(one)
			if shown[one.ID] == one.Digest {
				continue
			}
			shown[one.ID] = one.Digest // The first time the page compares, which may be older than this reading.
			event, err := json.Marshal(update{one.ID, string(one.HTML), one.Digest})
			if err != nil {
				return // Not reached: a text can be encoded.
			}
			if _, err := fmt.Fprintf(w, "event: part\ndata: %s\n\n", event); err != nil {
				return
			}
		}
		// Without it, a browser would not know that it is connected before something changes.
		if _, err := fmt.Fprint(w, ": read\n\n"); err != nil || controller.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(max(leastInterval, patience*time.Since(began))):
		}
	}
}
