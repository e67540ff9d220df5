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
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAnswers(t *testing.T) {
	server := httptest.NewServer(handler())
	defer server.Close()
	parent := `"parent":{"metadata":{"name":"p13"},"spec":{"children":2,"revision":"1"}}`
	for _, c := range []struct{ name, path, body, want string }{
		{"SyncCountsCurrentChildren", PathSync, `{` + parent + `,"children":{"ConfigMap.v1":{"a":{"data":{"revision":"1"}},"b":{"data":{"revision":"0"}}}}}`, `"status":{"children":1,"revision":"1"}`},
		{"SyncNamesChildren", PathSync, `{` + parent + `}`, `"name":"p13-1"`},
		{"RelatedRevision", PathRelated, `{` + parent + `,"related":{"ConfigMap.v1":{"r":{"data":{"revision":"9"}}}}}`, `"revision":"9"`},
		{"NotFinalized", PathFinalize, `{"children":{"ConfigMap.v1":{"a":{}}}}`, `"finalized":false`},
		{"Finalized", PathFinalize, `{"children":{"ConfigMap.v1":{}}}`, `"finalized":true`},
		{"RelatedByLabel", PathCustomize + "?related=10", `{` + parent + `}`, `"matchLabels":{"slot":"3"}`},
		{"RelatedByName", PathCustomize + "?related=11", `{` + parent + `}`, `"names":["related-2"]`},
		{"Attachment", PathDecorate, `{"object":{"metadata":{"name":"p1-0","annotations":{"revision":"7"}}}}`, `"revision":"7"`},
		{"NoJSON", PathSync, `{`, `reading the request`},
		{"NoNumber", PathCustomize, `{` + parent + `}`, `reading the number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := do(t, request); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want it to contain %s", got, c.want)
			}
		})
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+PathCounts, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	var counts Counts
	if err := json.Unmarshal([]byte(do(t, request)), &counts); err != nil {
		t.Fatal(err)
	}
	if counts[PathSync].Calls != 2 || counts[PathFinalize].Calls != 2 || counts.Total().Calls != 8 || counts.Total().BytesOut == 0 {
		t.Errorf("got %+v, want all calls counted but those that failed", counts)
	}
}

func do(t *testing.T, request *http.Request) string {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
