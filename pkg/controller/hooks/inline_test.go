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

package hooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

// schemas is a cluster with things, whose replicas have a type, and with no widgets.
type schemas struct {
	replicas atomic.Pointer[string]
	// fails says that no schema can be read, and widgets that there are widgets.
	fails, widgets atomic.Bool
}

func (s *schemas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis/example.com/v1":
		widgets := ""
		if s.widgets.Load() {
			widgets = `,{"name":"widgets","kind":"Widget","namespaced":true}`
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"things","kind":"Thing","namespaced":true}%s]}`, widgets)
	case r.URL.Path == "/openapi/v3/apis/example.com/v1" && !s.fails.Load():
		fmt.Fprintf(w, `{"components":{"schemas":{"com.example.v1.Thing":{"type":"object",
			"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Thing"}],
			"properties":{"metadata":{"type":"object"},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
			"spec":{"type":"object","properties":{"replicas":{"type":%q}}}}}}}}`, *s.replicas.Load())
	case s.fails.Load():
		w.WriteHeader(http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// observedThing is an object of a request.
type observedThing string

func (o observedThing) JSON() []byte    { return []byte(o) }
func (observedThing) Namespace() string { return "ns" }
func (observedThing) Name() string      { return "a" }

// about is a request about a thing.
func about(thing string) hooks.Request {
	return hooks.Request{
		Request: wire.Request{Controller: []byte("{}"), Parent: observedThing(thing)},
		Encode:  func(wire.Request) []byte { panic("an inline hook needs no body") },
	}
}

// inlined returns the hooks of a composite whose sync hook is inline, in a cluster.
func inlined(t *testing.T, s *schemas, inline *v1alpha1.InlineHook, children ...v1alpha1.ResourceRule) *hooks.Set {
	t.Helper()
	return configured(t, s, webhook.Config{ControllerName: "c"}, inline, children...)
}

func configured(t *testing.T, s *schemas, config webhook.Config, inline *v1alpha1.InlineHook, children ...v1alpha1.ResourceRule) *hooks.Set {
	t.Helper()
	if s.replicas.Load() == nil {
		s.replicas.Store(new("integer"))
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	found, err := discovery.New(&rest.Config{Host: server.URL, Transport: server.Client().Transport}, nil)
	if err != nil {
		t.Fatal(err)
	}
	things := v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "things"}
	config.ControllerKind = v1alpha1.KindComposite
	set, err := hooks.New(config, hooks.Kinds{Discovery: found, Parents: []v1alpha1.ResourceRule{things}, Children: children}, &v1alpha1.Hook{Inline: inline}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return set
}

func status(text string) *v1alpha1.InlineHook {
	return &v1alpha1.InlineHook{Status: &runtime.RawExtension{Raw: []byte(text)}}
}

func TestInlineHooks(t *testing.T) {
	for name, tc := range map[string]struct {
		inline *v1alpha1.InlineHook
		thing  string
		// status and err are what the call returns.
		status, err string
	}{
		"Evaluated":   {status(`{"twice": "${parent.spec.replicas * 2}"}`), `{"spec":{"replicas":2}}`, `{"twice":4}`, ""},
		"AtRunTime":   {status(`{"part": "${1 / parent.spec.replicas}"}`), `{"spec":{"replicas":0}}`, "", "sync hook failed (version=v2): spec.hooks.sync.inline.status.part: "},
		"WhenWritten": {status(`{"twice": "${parent.spec.replicas + 'a'}"}`), `{}`, "", "sync hook failed (version=v2): spec.hooks.sync.inline.status.twice: Invalid value: "},
		"Field":       {status(`{"twice": "${parent.spec.replica}"}`), `{}`, "", "did you mean replicas?"},
	} {
		t.Run(name, func(t *testing.T) {
			set := inlined(t, &schemas{}, tc.inline)
			response, err := set.Sync.Call(t.Context(), parent, about(tc.thing), wire.DecodeComposite)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer response.Release()
			got, err := json.Marshal(response.Status)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.status, string(got)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// An inline hook has no address and no log.
func TestWhatIsSaidOfAnInlineHook(t *testing.T) {
	set := inlined(t, &schemas{}, status(`{}`))
	_ = set.Sync.Reject(parent, errors.New("more than 1 byte"))
	if list := set.Statuses(); len(list) != 1 || list[0].LastFailure != "more than 1 byte; correct the expression, or the objects that it reads" {
		t.Errorf("got %+v", list)
	}
}

// TestInlineHooksWhileSchemasCannotBeReadAtFirst shows that nothing runs that is not checked.
func TestInlineHooksWhileSchemasCannotBeReadAtFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		inline *v1alpha1.InlineHook
		// wrong is what the hook fails with once the schemas can be read, empty if it is right.
		wrong string
	}{
		"Right": {status(`{"twice": "${parent.spec.replicas * 2}"}`), ""},
		"Wrong": {status(`{"twice": "${parent.spec.replica * 2}"}`), "spec.hooks.sync.inline.status.twice: Invalid value: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := &schemas{}
			s.fails.Store(true)
			set := inlined(t, s, tc.inline)
			for _, failing := range []string{"reading the schemas of example.com/v1", tc.wrong} {
				response, err := set.Sync.Call(t.Context(), parent, about(`{"spec":{"replicas":2}}`), wire.DecodeComposite)
				if err == nil {
					response.Release()
				}
				if usable := set.Check(t.Context()); usable != (failing == "") {
					t.Errorf("%q: the hook counts as usable: %t", failing, usable)
				}
				if failing != "" && (err == nil || !strings.Contains(err.Error(), failing)) {
					t.Errorf("the call returned %v, want %q", err, failing)
				}
				awaitFailing(t, set, failing)
				s.fails.Store(false)
				set.Check(t.Context())
			}
		})
	}
}

// awaitFailing waits until the sync hook is said to fail with a text, or not to fail if it is empty.
func awaitFailing(t *testing.T, set *hooks.Set, text string) {
	t.Helper()
	failing := func(context.Context) (bool, error) {
		list := set.Failing()
		if text == "" {
			return len(list) == 0, nil
		}
		return len(list) == 1 && list[0].Hook == hook.Sync && !list[0].Credentials && strings.Contains(list[0].Cause, text), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, failing); err != nil {
		t.Errorf("failing are %+v, want %q", set.Failing(), text)
	}
}

// TestInlineHooksWhileKindsChange has a child kind that is not served, so that each check reads the kinds. It compiles where they are others.
func TestInlineHooksWhileKindsChange(t *testing.T) {
	s := &schemas{}
	set := inlined(t, s, status(`{"twice": "${parent.spec.replicas * 2}"}`), v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "widgets"})
	call := func() error {
		response, err := set.Sync.Call(t.Context(), parent, about(`{"spec":{"replicas":2}}`), wire.DecodeComposite)
		if err == nil {
			response.Release()
		}
		return err
	}
	for _, step := range []struct {
		name   string
		change func()
		// failing is what the hook is said to fail with, empty if all is well. It is called all the same.
		failing string
		// compiled says that the hook is compiled again.
		compiled bool
	}{
		{"a kind that fits", func() {}, "", true},
		{"a kind that is as it was", func() {}, "", false},
		{
			"a kind that does not fit any more", func() { s.replicas.Store(new("string")) },
			"spec.hooks.sync.inline.status.twice: Invalid value: \"parent.spec.replicas * 2\": ", true,
		},
		{"the same kind", func() {}, "the hook goes on as it was compiled before", false},
		{"schemas that cannot be read", func() { s.fails.Store(true) }, "reading the schemas of example.com/v1", true},
		{"the kind as it was", func() { s.fails.Store(false); s.replicas.Store(new("integer")) }, "", true},
		{"a kind that appears", func() { s.widgets.Store(true) }, "", true},
	} {
		step.change()
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
		usable := set.Check(klog.NewContext(t.Context(), logger))
		if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); strings.Contains(log, "Compiled the inline hooks") != step.compiled {
			t.Errorf("%s: whether the hook was compiled should be %t; the log is %q", step.name, step.compiled, log)
		}
		if usable != (step.failing == "") {
			t.Errorf("%s: the hook counts as usable: %t", step.name, usable)
		}
		if err := call(); err != nil {
			t.Errorf("%s: the call failed: %v", step.name, err)
		}
		awaitFailing(t, set, step.failing)
	}
}

// TestCallsThatWaitToCompileEnd has another controller compile all the time.
func TestCallsThatWaitToCompileEnd(t *testing.T) {
	things := v1alpha1.ResourceRule{APIVersion: "example.com/v1", Resource: "things"}
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	found, err := discovery.New(&rest.Config{Host: "http://127.0.0.1:1"}, nil) // It is not asked.
	if err != nil {
		t.Fatal(err)
	}
	set, err := hooks.New(webhook.Config{ControllerKind: "CompositeController", ControllerName: "c"},
		hooks.Kinds{Discovery: found, Parents: []v1alpha1.ResourceRule{things}, Compiling: turns}, &v1alpha1.Hook{Inline: status(`{"twice": "${1 + 1}"}`)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range cap(ended) {
		go func() {
			_, err := set.Sync.Call(ctx, parent, about(`{}`), wire.DecodeComposite)
			ended <- err
		}()
	}
	cancel()
	for range cap(ended) {
		if err := <-ended; err == nil {
			t.Error("a call that cannot compile has succeeded")
		}
	}
}
