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
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// testRetryAfter is about docs/reference/contract.md#s18.2 and docs/reference/compatibility.md#d18.1. Package webhook tests the forms of the header.
func testRetryAfter(t *testing.T, s *shared, kind fixture.Kind) {
	handlers := map[string]http.Handler{"/sync": fine(), "/customize": answering(func(question) any { return rules() })}
	for at, code := range map[string]int{"/sync": http.StatusTooManyRequests, "/customize": http.StatusServiceUnavailable} {
		t.Run(at[1:], func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			for path, handler := range handlers {
				st.Handle(path, handler)
			}
			st.Handle(at, hooktest.Sequence(hooktest.RetryLater(code, "2"), handlers[at]))
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

// testBackoff is about a hook that asks for patience without a time (docs/reference/contract.md#s18.2).
func testBackoff(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", hooktest.RetryLater(http.StatusTooManyRequests, ""))
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
				children := map[fixture.Kind]string{fixture.Composite: "children", fixture.Decorator: "attachments"}[kind]
				responses := map[string]any{
					"/sync":      map[string]any{"status": map[string]any{"done": "yes"}, children: []any{}},
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

// testMisbehaving is about what users read when a hook misbehaves: one Warning event that says what to do, in the words that package webhook
// has for each fault. That such hooks
// harm nobody else is tested in package hostile.
func testMisbehaving(t *testing.T, s *shared, kind fixture.Kind) {
	for name, tc := range map[string]struct {
		handler http.Handler
		text    string
	}{
		"Hang": {hooktest.Hang(), "http error: calling ENDPOINT: connected, but no response within 6s; make the hook faster, or raise its timeout"},
		"HTML": {
			hooktest.HTML(), `the response must be a JSON object, is not JSON (Content-Type "text/html; charset=utf-8"): it begins with ` +
				`"<!DOCTYPE html> <html><head><title>Sign in</title></head><bo"`,
		},
		"Crash": {hooktest.Status(http.StatusInternalServerError, "KeyError: 'spec'"), "unsupported status code: 500 body: KeyError: 'spec'"},
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
			if name == "Hang" {
				// Time enough for a connection on a busy machine: without one the text is another.
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

// testResync is about docs/reference/contract.md#s5.3, docs/reference/contract.md#s6 step 6.
func testResync(t *testing.T, s *shared, kind fixture.Kind) {
	t.Run("ResyncAfterSecondsMayBeAFraction", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", answering(func(question) any { return map[string]any{"resyncAfterSeconds": 0.3} }))
		st.run(definition{sync: st.at("/sync", v2)})
		st.Parent("p", nil)
		st.awaitCalls("/sync", "p", 6)
		requests := st.Requests("/sync")
		if waited := requests[5].Time.Sub(requests[4].Time); waited < 290*time.Millisecond {
			t.Errorf("the hook was called again after %v, it asked for 300 ms", waited)
		}
	})
	t.Run("ResyncAfterSecondsOfARefusedResponse", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		// The response is refused, but the time in it is not. The back-off alone would take longer than the test may.
		children := map[fixture.Kind]string{fixture.Composite: "children", fixture.Decorator: "attachments"}[kind]
		st.Handle("/sync", answering(func(question) any {
			return map[string]any{"resyncAfterSeconds": 0.2, children: []any{map[string]any{"kind": "ConfigMap"}}}
		}))
		st.run(definition{sync: st.at("/sync", v2), children: true})
		st.Parent("p", nil)
		st.awaitCalls("/sync", "p", 20)
		st.syncError("p", "")
	})
	t.Run("ResyncAfterSecondsOfZero", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", answering(func(question) any { return map[string]any{"resyncAfterSeconds": 0} }))
		st.run(definition{sync: st.at("/sync", v2)})
		st.Parent("p", nil)
		st.awaitCalls("/sync", "p", 1)
		calls := st.settled("/sync")
		if calls > 3 {
			t.Errorf("the hook was called %d times, zero asks for no further call", calls)
		}
	})
	t.Run("ResyncPeriodSeconds", func(t *testing.T) {
		t.Parallel()
		st := newStage(t, s, kind)
		st.Handle("/sync", fine())
		// Less than one means one (docs/reference/contract.md#s5.3).
		st.run(definition{sync: st.at("/sync", v1), resyncPeriod: new(int32)})
		st.Parent("p", nil)
		st.Parent("q", nil)
		st.awaitCalls("/sync", "p", 6)
		st.awaitCalls("/sync", "q", 6)
		requests := st.Requests("/sync")
		if took := requests[len(requests)-1].Time.Sub(requests[0].Time); took < 2*time.Second {
			t.Errorf("six calls took %v; the period is a second", took)
		}
	})
}

// testIgnoreStatus is about docs/reference/contract.md#s5.2.
func testIgnoreStatus(t *testing.T, s *shared, kind fixture.Kind) {
	for _, ignore := range []bool{false, true} {
		t.Run(strconv.FormatBool(ignore), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			st.Handle("/sync", fine())
			st.run(definition{sync: st.at("/sync", v1), ignoreStatus: &ignore})
			st.Parent("p", nil)
			st.awaitStatus("p", "done", "yes")
			st.settled("/sync")
			for _, step := range []struct {
				patch        string
				subresources []string
				status       bool
			}{
				{patch: `{"status":{"foreign":"1"}}`, subresources: []string{"status"}, status: true},
				{patch: `{"metadata":{"finalizers":["fixture.example.com/x"]}}`, status: true},
				{patch: `{"spec":{"a":"1"}}`},
				{patch: `{"metadata":{"labels":{"a":"1"}}}`},
				{patch: `{"metadata":{"annotations":{"a":"1"}}}`},
			} {
				before := len(st.Requests("/sync"))
				st.Patch(fixture.Things, "p", step.patch, step.subresources...)
				if !step.status || !ignore {
					st.awaitCalls("/sync", "p", before+1)
					st.settled("/sync")
				} else if after := st.settled("/sync"); after > before {
					t.Errorf("%d calls after %s", after-before, step.patch)
				}
			}
			// A parent that is being deleted is always looked at.
			before := len(st.Requests("/sync"))
			st.Delete(fixture.Things, "p")
			st.awaitCalls("/sync", "p", before+1)
			st.Patch(fixture.Things, "p", `{"metadata":{"finalizers":null}}`)
		})
	}
}

// testServerSideSelection is about the wish that parents which are not selected cost nothing: the API server leaves them out.
func testServerSideSelection(t *testing.T, s *shared, kind fixture.Kind) {
	st := newStage(t, s, kind)
	st.Handle("/sync", fine())
	st.Handle("/finalize", answering(func(question) any { return map[string]any{"finalized": true} }))
	st.selectedByTheServer(s, "selected", st.at("/sync", v1), st.at("/finalize", v1))
}

// testInlineServerSideSelection does the same with inline hooks.
func testInlineServerSideSelection(t *testing.T, s *shared, kind fixture.Kind) {
	newStage(t, s, kind).selectedByTheServer(
		s, "inlineselected", fixture.Inline(t, kind, `status: {done: "yes"}`), fixture.Inline(t, kind, `finalized: "true"`))
}

func (s *stage) selectedByTheServer(all *shared, prefix string, sync, finalize *v1alpha1.Hook) {
	s.T.Helper()
	resource := fixture.Things
	resource.Resource = prefix + map[fixture.Kind]string{fixture.Composite: "ones", fixture.Decorator: "twos"}[s.kind]
	all.Define(s.T, cluster.CustomResource{Resource: resource, Kind: "K" + resource.Resource})
	path := fmt.Sprintf("/apis/%s/%s/%s", resource.Group, resource.Version, resource.Resource)
	s.run(definition{resource: resource, sync: sync})
	seen := all.proxy.selectors(path)
	if want := fixture.Label + "=" + s.Name; !seen[want] || len(seen) != 1 {
		s.T.Errorf("the parents were watched with the label selectors %v, want only %q", seen, want)
	}
	// With a finalize hook, parents that were selected once must be seen too (docs/reference/contract.md#s15).
	s.running.Delete()
	s.running.AwaitGone()
	s.run(definition{resource: resource, sync: sync, finalize: finalize})
	if seen := all.proxy.selectors(path); !seen[""] {
		s.T.Errorf("the parents were watched with the label selectors %v only; with a finalize hook all must be seen", seen)
	}
	list, err := s.Dynamic.Resource(resource).List(s.T.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		s.T.Errorf("there are %v, %v", list, err)
	}
}

// testRequests is about docs/reference/contract.md#s9: what is on the wire. That every body is right to the byte is tested with the golden
// bodies of package wire.
func testRequests(t *testing.T, s *shared, kind fixture.Kind) {
	for _, version := range []v1alpha1.HookVersion{v1, v2} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			st := newStage(t, s, kind)
			parentKey := map[fixture.Kind]string{fixture.Composite: "parent", fixture.Decorator: "object"}[kind]
			childrenKey := map[fixture.Kind]string{fixture.Composite: "children", fixture.Decorator: "attachments"}[kind]
			child := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "child"}}
			st.Handle("/sync", answering(func(question) any { return map[string]any{childrenKey: []any{child}} }))
			st.Handle("/finalize", answering(func(q question) any {
				children, _, _ := unstructured.NestedMap(q, childrenKey, "ConfigMap.v1")
				return map[string]any{"finalized": len(children) == 0}
			}))
			st.Handle("/customize", answering(func(question) any {
				return rules(map[string]any{"apiVersion": "v1", "resource": "secrets", "names": []any{"login"}, "namespace": st.Namespace})
			}))
			st.secret("login", nil)
			st.run(definition{
				sync: st.at("/sync", version), finalize: st.at("/finalize", version), customize: st.at("/customize", version),
				children: true,
			})
			st.Parent("p", nil)
			inner := map[v1alpha1.HookVersion]string{v1: "%.0s%s", v2: "%s/%s"}[version]
			name := func(n string) string { return fmt.Sprintf(inner, st.Namespace, n) }
			shows := func(q question) bool {
				_, ok, _ := unstructured.NestedMap(q, childrenKey, "ConfigMap.v1", name("child"))
				return ok
			}
			synced := st.awaitRequest("/sync", shows)
			st.Delete(fixture.Things, "p")
			finalized := st.awaitRequest("/finalize", shows)
			st.awaitRequest("/finalize", func(q question) bool { return !shows(q) })
			customized := st.awaitRequest("/customize", func(question) bool { return true })

			st.checkEnvelope(synced, false, parentKey, childrenKey, "controller", "related", "finalizing")
			st.checkEnvelope(finalized, true, parentKey, childrenKey, "controller", "related", "finalizing")
			// The key is parent for decorators too.
			st.checkEnvelope(customized, false, "parent", "controller")
			for _, q := range []question{synced, finalized} {
				if got := q.related("Secret.v1"); got != name("login") {
					t.Errorf("the related Secret is shown as %q, want %q", got, name("login"))
				}
				if empty, ok, _ := unstructured.NestedMap(q, childrenKey, "Deployment.apps/v1"); !ok || len(empty) > 0 {
					t.Errorf("a declared kind without objects is shown as %v, want {}", q[childrenKey])
				}
			}
		})
	}
}

// awaitRequest waits for a request as wanted, and returns it.
func (s *stage) awaitRequest(path string, want func(question) bool) question {
	s.T.Helper()
	for n := 1; ; n++ {
		q := s.awaitCalls(path, "", n)
		if at := slices.IndexFunc(q, want); at >= 0 {
			return q[at]
		}
		n = len(q)
	}
}

// checkEnvelope checks the keys of a request, and what all requests have in common.
func (s *stage) checkEnvelope(q question, finalizing bool, keys ...string) {
	s.T.Helper()
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(q)); !slices.Equal(got, keys) {
		s.T.Errorf("the request has the keys %v, want %v", got, keys)
	}
	if got, ok := q["finalizing"]; ok && got != finalizing {
		s.T.Errorf("finalizing is %v, want %v", got, finalizing)
	}
	parent := q.parent()
	if parent.GetName() != "p" || parent.GetKind() != "Thing" || parent.GetUID() == "" {
		s.T.Errorf("the parent is shown as %v", parent.Object)
	}
	if _, there, _ := unstructured.NestedFieldNoCopy(parent.Object, "metadata", "managedFields"); there {
		s.T.Error("the parent is shown with managedFields (docs/reference/compatibility.md#d9)")
	}
	encoded, err := json.Marshal(q["controller"])
	if err != nil {
		s.T.Fatal(err)
	}
	var controller struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Status            map[string]any `json:"status"`
	}
	if err := json.Unmarshal(encoded, &controller); err != nil {
		s.T.Fatal(err)
	}
	if controller.Kind != string(s.kind) || controller.APIVersion != v1alpha1.SchemeGroupVersion.String() || controller.Name != s.Name ||
		controller.UID == "" || controller.Status == nil || len(controller.Status) > 0 {
		s.T.Errorf("the controller is shown as %s", encoded)
	}
}
