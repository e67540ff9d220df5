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

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

const (
	jsonType   = "application/json"
	mergeType  = "application/merge-patch+json"
	configMaps = "/api/v1/namespaces/default/configmaps"
)

// lines takes all events that wait.
func lines(w *apiserver.Watch) []string {
	var all []string
	for w.Pending() > 0 {
		line, _ := w.Next()
		all = append(all, string(line))
	}
	return all
}

func code(s *apiserver.Server, method, path, contentType, body string) int {
	return s.Do(apiserver.Request{User: "admin", Method: method, Path: path, ContentType: contentType, Body: []byte(body)}).Code
}

func TestAdmissionChangesAndRefuses(t *testing.T) {
	t.Parallel()
	var asked []string
	s := apiserver.New(apiserver.Options{Now: time.Now, Admit: func(a apiserver.Admission) apiserver.AdmissionResult {
		asked = append(asked, fmt.Sprintf("%s %s %t %t", a.Operation, a.Name, a.Object != nil, a.Old != nil))
		switch {
		case strings.Contains(string(value.Encode(a.Object)), "forbidden") || a.Operation == "DELETE":
			return apiserver.AdmissionResult{Denied: "not here"}
		case strings.Contains(string(value.Encode(a.Object)), "change-me"):
			return apiserver.AdmissionResult{Object: []byte(strings.ReplaceAll(string(value.Encode(a.Object)), "change-me", "changed"))}
		}
		return apiserver.AdmissionResult{}
	}})
	r := send(t, s, 201, "POST", configMaps, jsonType, `{"metadata":{"name":"a"},"data":{"k":"change-me"}}`)
	if !strings.Contains(string(r.Body), `"k":"changed"`) {
		t.Errorf("the object is %s", r.Body)
	}
	refused := send(t, s, 403, "PATCH", configMaps+"/a", mergeType, `{"data":{"k":"forbidden"}}`)
	if !strings.Contains(string(refused.Body), "is forbidden: not here") {
		t.Errorf("the refusal is %s", refused.Body)
	}
	send(t, s, 403, "DELETE", configMaps+"/a", "", "")
	if got, want := strings.Join(asked, ","), "CREATE a true false,UPDATE a true true,DELETE a false true"; got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

func TestAForgottenHistoryIsGone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for i := range 3 {
		send(t, s, 201, "POST", configMaps, jsonType, fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, i))
	}
	var page struct {
		Metadata struct {
			Continue        string `json:"continue"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []any `json:"items"`
	}
	decode := func(body []byte) {
		t.Helper()
		if err := json.Unmarshal(body, &page); err != nil {
			t.Fatal(err)
		}
	}
	decode(send(t, s, 200, "GET", configMaps+"?limit=1", "", "").Body)
	version, token := page.Metadata.ResourceVersion, page.Metadata.Continue
	send(t, s, 201, "POST", configMaps, jsonType, `{"metadata":{"name":"a3"}}`)
	s.Compact()
	decode(send(t, s, 410, "GET", configMaps+"?limit=1&continue="+token, "", "").Body)
	decode(send(t, s, 200, "GET", configMaps+"?continue="+page.Metadata.Continue, "", "").Body)
	if len(page.Items) != 3 {
		t.Errorf("the rest has %d objects", len(page.Items))
	}
	w := send(t, s, 200, "GET", configMaps+"?watch=true&resourceVersion="+version, "", "").Watch
	if got := lines(w); len(got) != 1 || !strings.Contains(got[0], `"type":"ERROR"`) || !strings.Contains(got[0], `"code":410`) || !w.Ended() {
		t.Errorf("got %q", got)
	}
}

func TestAServerEndsWatches(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	mine := send(t, s, 200, "GET", configMaps+"?watch=true&allowWatchBookmarks=true", "", "").Watch
	other := send(t, s, 200, "GET", "/api/v1/namespaces/default/secrets?watch=true", "", "").Watch
	send(t, s, 201, "POST", configMaps, jsonType, `{"metadata":{"name":"a"}}`)
	s.Bookmark()
	s.EndWatches("", "configmaps")
	send(t, s, 201, "POST", configMaps, jsonType, `{"metadata":{"name":"b"}}`)
	if got := lines(mine); len(got) != 2 || !strings.Contains(got[0], "ADDED") || !strings.Contains(got[1], "BOOKMARK") || !mine.Ended() {
		t.Errorf("got %q", got)
	}
	if other.Ended() || other.Pending() != 0 || len(s.Watches()) != 1 {
		t.Errorf("the other watch has ended or got something")
	}
	other.Expire()
	if got := lines(other); len(got) != 1 || !strings.Contains(got[0], "Expired") || !other.Ended() {
		t.Errorf("got %q", got)
	}
}

func TestTheJournalHasAllWrites(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	before := len(s.Journal())
	send(t, s, 201, "POST", configMaps+"?dryRun=All", jsonType, `{"metadata":{"name":"a"}}`)
	send(t, s, 201, "POST", configMaps, jsonType, `{"metadata":{"name":"a"}}`)
	send(t, s, 200, "PATCH", configMaps+"/a", mergeType, `{"data":{"k":"v"}}`)
	send(t, s, 200, "PATCH", configMaps+"/a", mergeType, `{"data":{"k":"v"}}`)
	send(t, s, 200, "DELETE", configMaps+"/a", "", "")
	var got []string
	for _, w := range s.Journal()[before:] {
		got = append(got, fmt.Sprintf("%s %s %s %t %t", w.Verb, w.Resource, w.Manager, w.Before != nil, w.After != nil))
	}
	want := "create configmaps test false true,patch configmaps test true true,delete configmaps test true false"
	if strings.Join(got, ",") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTheSameRequestsHaveTheSameResponses compares two servers byte for byte.
func TestTheSameRequestsHaveTheSameResponses(t *testing.T) {
	t.Parallel()
	history := func() string {
		s := newServer(t)
		var b strings.Builder
		for i := range 20 {
			r := s.Do(apiserver.Request{User: "admin", UserAgent: "test/1", Method: "POST", Path: benchThings, Body: []byte(benchObject(fmt.Sprintf("a%d", i%7), i))})
			b.Write(r.Body)
		}
		for s.Collect() {
		}
		return b.String()
	}
	if first, second := history(), history(); first != second {
		t.Errorf("got\n%s\nand\n%s", first, second)
	}
}

func TestInjectedErrorsAreThoseOfAPIServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		response apiserver.Response
		code     int
		after    string
		text     string
	}{
		"too many requests":   {apiserver.TooManyRequests(3), 429, "3", "Too many requests"},
		"internal error":      {apiserver.InternalError("boom"), 500, "", `"reason":"InternalError"`},
		"service unavailable": {apiserver.ServiceUnavailable(), 503, "", `"reason":"ServiceUnavailable"`},
		"forbidden":           {apiserver.Forbidden("", "configmaps", "a", "no"), 403, "", `configmaps \"a\" is forbidden: no`},
		"conflict":            {apiserver.Conflict("", "configmaps", "a", "no"), 409, "", `"reason":"Conflict"`},
		"expired":             {apiserver.Expired("too old"), 410, "", `"reason":"Expired"`},
		"timeout":             {apiserver.GatewayTimeout(), 504, "", `"reason":"Timeout"`},
	} {
		if r := test.response; r.Code != test.code || r.RetryAfter != test.after || !strings.Contains(string(r.Body), test.text) {
			t.Errorf("%s: got %d, Retry-After %q, %s", name, r.Code, r.RetryAfter, r.Body)
		}
	}
	if got := code(newServer(t), "GET", "/nothing", "", ""); got != 404 {
		t.Errorf("an unknown path has %d", got)
	}
}
