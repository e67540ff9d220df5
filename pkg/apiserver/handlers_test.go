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

package apiserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// warned collects warnings.
type warned []string

func (w *warned) AddWarning(_, text string) { *w = append(*w, text) }

func TestReadersAreWarnedOfAnOldStatus(t *testing.T) {
	reading := request.RequestInfo{IsResourceRequest: true, APIGroup: "metacontroller.k8s.io", Resource: "compositecontrollers", Verb: "get"}
	edit := func(change func(*request.RequestInfo)) request.RequestInfo {
		info := reading
		change(&info)
		return info
	}
	for name, test := range map[string]struct {
		info     request.RequestInfo
		anywhere bool
		want     []string
	}{
		"a controller":         {reading, false, []string{"the status of controllers may be from before: it was switched off"}},
		"a list":               {edit(func(i *request.RequestInfo) { i.Verb, i.Resource = "list", "decoratorcontrollers" }), false, []string{"the status of controllers may be from before: it was switched off"}},
		"one runs elsewhere":   {reading, true, nil},
		"a watch":              {edit(func(i *request.RequestInfo) { i.Verb = "watch" }), false, nil},
		"a write":              {edit(func(i *request.RequestInfo) { i.Verb = "patch" }), false, nil},
		"a subresource":        {edit(func(i *request.RequestInfo) { i.Subresource = "parents" }), false, nil},
		"revisions":            {edit(func(i *request.RequestInfo) { i.Resource = "controllerrevisions" }), false, nil},
		"no object":            {edit(func(i *request.RequestInfo) { i.IsResourceRequest = false }), false, nil},
		"another API's object": {edit(func(i *request.RequestInfo) { i.APIGroup = "example.com" }), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			link, served := &inspection.Link{}, false
			link.Explain(func() (string, bool) { return "it was switched off", test.anywhere })
			handler := warnOfOldStatus(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), link)
			var got warned
			ctx := warning.WithWarningRecorder(request.WithRequestInfo(t.Context(), &test.info), &got)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			if !served || !slices.Equal(got, test.want) {
				t.Errorf("served: %t, warnings: %q", served, got)
			}
		})
	}
}

func TestDurationsAreNamedInControllersAlone(t *testing.T) {
	for name, test := range map[string]struct {
		manifest, want string
	}{
		"of a controller": {
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"a"},` +
				`"spec":{"hooks":{"sync":{"webhook":{"url":"http://a","timeout":"1d"}}}}}`,
			"spec.hooks.sync.webhook.timeout: Invalid value",
		},
		"a revision, which has another mistake": {
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"ControllerRevision","metadata":{"name":"a","namespace":"b"},` +
				`"parentPatch":{"spec":{"webhook":{"timeout":30}}},"children":"none"}`,
			"children",
		},
	} {
		t.Run(name, func(t *testing.T) {
			decoder := durationNaming{Codecs.UniversalDecoder(v1alpha1.SchemeGroupVersion)}
			_, err := runtime.Decode(decoder, []byte(test.manifest))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "parentPatch") {
				t.Errorf("got %v, want an error about %s", err, test.want)
			}
		})
	}
}

// TestWhoAsksAReplicaThatDoesNotRunControllersCanAskAnother has one client, which keeps its connections as the kube-apiserver does, ask twice.
func TestWhoAsksAReplicaThatDoesNotRunControllersCanAskAnother(t *testing.T) {
	asking := request.RequestInfo{IsResourceRequest: true, APIGroup: "metacontroller.k8s.io", Resource: "compositecontrollers", Subresource: "parents", Verb: "get"}
	edit := func(change func(*request.RequestInfo)) request.RequestInfo {
		info := asking
		change(&info)
		return info
	}
	for name, test := range map[string]struct {
		info     request.RequestInfo
		here     bool
		anywhere bool
		code     int
		// retry is when the client is to ask again, and connections is how many it makes.
		retry       string
		connections int
	}{
		"another one runs them":     {asking, false, true, 503, "2", 2},
		"of a decorator":            {edit(func(i *request.RequestInfo) { i.Resource, i.Subresource = "decoratorcontrollers", "plan" }), false, true, 503, "2", 2},
		"none runs them":            {asking, false, false, 503, "", 1},
		"this one runs them":        {asking, true, true, 503, "", 1},
		"refused for another cause": {asking, false, true, 403, "", 1},
		"the object":                {edit(func(i *request.RequestInfo) { i.Subresource = "" }), false, true, 503, "", 1},
		"its status":                {edit(func(i *request.RequestInfo) { i.Subresource = "status" }), false, true, 503, "", 1},
		"another API's object":      {edit(func(i *request.RequestInfo) { i.APIGroup = "example.com" }), false, true, 503, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			link := &inspection.Link{}
			link.Explain(func() (string, bool) { return "another one leads", test.anywhere })
			if test.here {
				var engine inspection.Engine
				defer link.Connect(engine)()
			}
			var connections sync.Map
			made := func() (n int) {
				connections.Range(func(any, any) bool { n++; return true })
				return n
			}
			handler := leadElsewhere(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				connections.Store(r.RemoteAddr, true)
				w.WriteHeader(test.code)
			}), link)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				handler.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), &test.info)))
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			// GOAWAY may come after the next request was sent.
			for n := 0; n < 2 || made() < test.connections && n < 1000; n++ {
				asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(asked)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Error(err)
				}
				if err := response.Body.Close(); err != nil {
					t.Error(err)
				}
				if response.StatusCode != test.code || response.ProtoMajor != 2 || response.Header.Get("Retry-After") != test.retry {
					t.Errorf("%s %s, Retry-After %q", response.Proto, response.Status, response.Header.Get("Retry-After"))
				}
			}
			if n := made(); n < test.connections || test.connections == 1 && n > 1 {
				t.Errorf("%d connections, want %d", n, test.connections)
			}
		})
	}
}

// TestConnectionsAreNotEndedForEachOfManyRequests has one client repeat its request as it is asked to, and others ask more often.
func TestConnectionsAreNotEndedForEachOfManyRequests(t *testing.T) {
	for name, test := range map[string]struct {
		every    time.Duration
		anywhere bool
		// ended is how many connections end in 20 seconds.
		ended int
	}{
		"who repeats as asked may get another one each time": {retryElsewhere * time.Second, true, 10},
		"many requests":   {10 * time.Millisecond, true, 11},
		"none can answer": {retryElsewhere * time.Second, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := &inspection.Link{}
				link.Explain(func() (string, bool) { return "", test.anywhere })
				handler := leadElsewhere(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusServiceUnavailable)
				}), link)
				asking := request.WithRequestInfo(t.Context(), &request.RequestInfo{
					IsResourceRequest: true, APIGroup: "metacontroller.k8s.io", Resource: "compositecontrollers", Subresource: "parents", Verb: "get",
				})
				ended := 0
				for range 20 * time.Second / test.every {
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, httptest.NewRequestWithContext(asking, http.MethodGet, "/", http.NoBody))
					if asked := w.Header().Get("Retry-After") != ""; asked != test.anywhere {
						t.Fatalf("the client is asked to repeat: %t", asked)
					}
					if w.Header().Get("Connection") == "close" {
						ended++
					}
					<-time.After(test.every)
				}
				if ended != test.ended {
					t.Errorf("%d connections were ended, want %d", ended, test.ended)
				}
			})
		})
	}
}
