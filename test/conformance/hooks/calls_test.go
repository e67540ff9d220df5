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

package hooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testRetryAfter is about docs/reference/contract.md#s18.2 and docs/reference/compatibility.md#d18.1.
func testRetryAfter(t *testing.T, s *shared, kind fixture.Kind) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for form, header := range map[string]func() string{
			"Seconds": func() string { return "2" },
			// A date has no fractions of a second, so this is two seconds at least.
			"Date": func() string { return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat) },
		} {
			for _, at := range []string{"/sync", "/customize"} {
				t.Run(fmt.Sprintf("%d%s%s", code, form, strings.ToUpper(at[1:2])+at[2:]), func(t *testing.T) {
					t.Parallel()
					st := newStage(t, s, kind)
					st.Handle("/sync", fine())
					st.Handle("/customize", answering(func(question) any { return rules() }))
					st.Handle(at, hooktest.Sequence(
						http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							hooktest.RetryLater(code, header()).ServeHTTP(w, r)
						}),
						map[string]http.Handler{"/sync": fine(), "/customize": answering(func(question) any { return rules() })}[at],
					))
					st.run(definition{sync: st.at("/sync", v2), customize: st.at("/customize", v2)})
					st.Parent("p", nil)
					st.awaitStatus("p", "done", "yes")
					requests := st.Requests(at)
					if waited := requests[1].Time.Sub(requests[0].Time); waited < 1900*time.Millisecond {
						t.Errorf("the hook was called again after %v, it asked for two seconds at least", waited)
					}
					st.calm("p")
				})
			}
		}
	}
}

// testBackoff is about a hook that asks for patience without a time (docs/reference/contract.md#s18.2).
func testBackoff(t *testing.T, s *shared, kind fixture.Kind) {
	for name, header := range map[string]string{"None": "", "Zero": "0", "Past": "Thu, 01 Jan 1970 00:00:00 GMT", "Nonsense": "soon"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			st.Handle("/sync", hooktest.RetryLater(http.StatusTooManyRequests, header))
			st.run(definition{sync: st.at("/sync", v1)})
			st.Parent("p", nil)
			st.awaitCalls("/sync", "p", 9)
			requests := st.Requests("/sync")
			// Eight pauses, from 5 ms to 640 ms, less a fifth of jitter. One of them may be missing: other tests change what the API server
			// serves, for which a parent whose hook is being called is synced at once.
			if took := requests[8].Time.Sub(requests[0].Time); took < 500*time.Millisecond {
				t.Errorf("there were nine calls in %v: there is no backoff", took)
			}
			st.calm("p")
		})
	}
}

// testTags is about docs/reference/contract.md#s2.6.
func testTags(t *testing.T, s *shared, kind fixture.Kind) {
	const tag = `"one"`
	tagged := func(st *stage) *v1alpha1.Hook {
		hook := st.at("/sync", v1)
		hook.Webhook.Etag = &v1alpha1.WebhookEtagConfig{Enabled: new(true)}
		return hook
	}
	sent := func(r hooktest.Request) string { return r.Header.Get("If-None-Match") }
	for _, code := range []int{http.StatusNotModified, http.StatusPreconditionFailed} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			st.Handle("/sync", hooktest.Tagged(tag, code, map[string]any{"status": map[string]any{"done": "yes"}}))
			st.run(definition{sync: tagged(st)})
			st.Parent("p", nil)
			st.awaitStatus("p", "done", "yes")
			// The tag stands for the former response, so the status is put back.
			st.Patch(fixture.Things, "p", `{"status":{"done":"no"}}`, "status")
			st.awaitStatus("p", "done", "yes")
			st.Parent("q", nil)
			st.awaitStatus("q", "done", "yes")
			requests := st.Requests("/sync")
			if first, last := sent(requests[0]), sent(requests[1]); first != "" || last != tag {
				t.Errorf("the first request has the tag %q, the second %q; want none and %s", first, last, tag)
			}
			// A parent of the same name is another one.
			st.Delete(fixture.Things, "p")
			other := st.Parent("p", nil)
			st.awaitStatus("p", "done", "yes")
			first := slices.IndexFunc(st.calls("/sync", ""), func(q question) bool { return q.parent().GetUID() == other.GetUID() })
			if got := sent(st.Requests("/sync")[first]); got != "" {
				t.Errorf("the tag %s of a parent that is gone was sent for another one of its name", got)
			}
			st.calm("p")
		})
	}
	t.Run("ARefusedResponseIsNotKept", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", tag)
			hooktest.HTML().ServeHTTP(w, r)
		})
		st.Handle("/sync", hooktest.Sequence(page, hooktest.Tagged(tag, http.StatusNotModified, map[string]any{
			"status": map[string]any{"done": "yes"},
		})))
		st.run(definition{sync: tagged(st)})
		st.Parent("p", nil)
		st.awaitStatus("p", "done", "yes")
	})
	t.Run("WithoutEtagEnabled", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", hooktest.Status(http.StatusNotModified, ""))
		st.run(definition{sync: st.at("/sync", v1)})
		st.Parent("p", nil)
		st.syncError("p", "sync hook failed (version=v1): unsupported status code: 304 body: ")
	})
}

// testModes is about responseUnMarshallMode (docs/reference/contract.md#s1.5, docs/reference/contract.md#s2.5).
func testModes(t *testing.T, s *shared, kind fixture.Kind) {
	for name, tc := range map[string]struct {
		version v1alpha1.HookVersion
		mode    v1alpha1.ResponseUnmarshallMode
		strict  bool
	}{
		"V1":       {v1, "", false},
		"V2":       {v2, "", true},
		"V1Strict": {v1, v1alpha1.ResponseUnmarshallModeStrict, true},
		"V2Loose":  {v2, v1alpha1.ResponseUnmarshallModeLoose, false},
	} {
		for _, at := range []string{"/sync", "/customize"} {
			t.Run(name+"/"+at[1:], func(t *testing.T) {
				t.Parallel()
				st := newStage(t, s, kind)
				responses := map[string]any{
					"/sync":      map[string]any{"status": map[string]any{"done": "yes"}},
					"/customize": map[string]any{"relatedResources": []any{}},
				}
				if surprised, ok := responses[at].(map[string]any); ok {
					surprised["surprise"] = 1
				}
				st.Handle("/sync", hooktest.JSON(responses["/sync"]))
				st.Handle("/customize", hooktest.JSON(responses["/customize"]))
				d := definition{sync: st.at("/sync", tc.version), customize: st.at("/customize", tc.version)}
				if tc.mode != "" {
					d.sync.Webhook.ResponseUnMarshallMode, d.customize.Webhook.ResponseUnMarshallMode = &tc.mode, &tc.mode
				}
				st.run(d)
				st.Parent("p", nil)
				if !tc.strict {
					st.awaitStatus("p", "done", "yes")
					st.calm("p")
					return
				}
				st.syncError("p", at[1:]+" hook failed (version="+string(tc.version)+`): the response is read strictly and has unknown field "surprise"; `+
					"correct the hook, or set responseUnMarshallMode: loose")
			})
		}
	}
}

// testMisbehaving is about what users read when a hook misbehaves: one Warning event that says what to do. That such hooks
// harm nobody else is tested in package composite.
func testMisbehaving(t *testing.T, s *shared, kind fixture.Kind) {
	for name, tc := range map[string]struct {
		handler http.Handler
		text    string
	}{
		"Hang":         {hooktest.Hang(), "http error: calling ENDPOINT: connected, but no response within 6s; make the hook faster, or raise its timeout"},
		"SlowDrip":     {hooktest.SlowDrip(10 * time.Millisecond), "http error: calling ENDPOINT: the response was not complete within 6s; make the hook faster or its response smaller, or raise its timeout"},
		"RedirectLoop": {hooktest.RedirectLoop(), "http error: calling ENDPOINT: stopped after 10 redirects; correct the hook's redirects, or use the final address"},
		"Huge":         {hooktest.Huge(100 << 20), "the response is larger than the limit of 33554432 bytes; let the hook return less, or raise --hook-response-limit of the server"},
		"HTML": {
			hooktest.HTML(), `the response must be a JSON object, is not JSON (Content-Type "text/html; charset=utf-8"): it begins with ` +
				`"<!DOCTYPE html> <html><head><title>Sign in</title></head><bo"`,
		},
		"Closed": {hooktest.Closed(), "http error: calling ENDPOINT: the hook closed the connection before its response was complete; see the log of the hook for a crash"},
		"Crash":  {hooktest.Status(http.StatusInternalServerError, "KeyError: 'spec'"), "unsupported status code: 500 body: KeyError: 'spec'"},
		"Unavailable": {
			hooktest.RetryLater(http.StatusServiceUnavailable, ""), "unsupported status code: 503 body: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			st.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// A redirected request has its body again.
				if body, err := io.ReadAll(r.Body); err == nil && about(body, "healthy") {
					r.Body = io.NopCloser(bytes.NewReader(body))
					fine().ServeHTTP(w, r)
					return
				}
				tc.handler.ServeHTTP(w, r)
			}))
			hook := st.at("/sync", v2)
			if name == "Hang" || name == "SlowDrip" {
				// Time enough for a connection and a first byte on a busy machine: without them the text is another.
				hook.Webhook.Timeout = &metav1.Duration{Duration: 6 * time.Second}
			}
			st.run(definition{sync: hook})
			st.Parent("p", nil)
			st.syncError("p", "sync hook failed (version=v2): "+strings.ReplaceAll(tc.text, "ENDPOINT", st.Hook.URL("/sync")))
			// Another parent of the same controller goes on as usual.
			st.Parent("healthy", nil)
			st.awaitStatus("healthy", "done", "yes")
			st.calm("healthy")
			st.onlyOneWarning("p")
		})
	}
}

// about tells whether a request is about a parent of that name.
func about(body []byte, name string) bool {
	var q question
	return json.Unmarshal(body, &q) == nil && q.parent().GetName() == name
}
