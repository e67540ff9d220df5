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
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/fairqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var parent = webhook.RootKey{Group: "example.com", Kind: "Thing", Namespace: "ns", Name: "a"}

// request is one that says nothing.
var request = hooks.Request{Encode: func(wire.Request) []byte { return []byte("{}") }}

// at declares a hook at a URL.
func at(url string) *v1alpha1.Hook {
	return &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{URL: &url}}
}

func TestDeclarations(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		sync   *v1alpha1.Hook
		// want is the error; empty: there is a hook or none.
		want  string
		there bool
	}{
		"Absent":         {"Every hook is optional here; the controller says which it needs.", nil, "", false},
		"WithoutWebhook": {"It is as if it were not declared (docs/reference/contract.md#s1.4).", &v1alpha1.Hook{}, "", false},
		"Complete":       {"No hook is called yet.", at("http://hook.example.com/sync"), "", true},
		"NoAddress": {
			"The error says which hook it is about.", &v1alpha1.Hook{Webhook: &v1alpha1.Webhook{}},
			"sync hook: ", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := hooks.New(webhook.Config{ControllerKind: "CompositeController", ControllerName: "c"}, hooks.Kinds{}, tc.sync, at("http://hook.example.com/finalize"), nil)
			if tc.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
					t.Errorf("got %v, want %q…: %s", err, tc.want, tc.reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			if (set.Sync != nil) != tc.there || set.Finalize == nil || set.Customize != nil {
				t.Errorf("got sync=%t finalize=%t customize=%t: %s", set.Sync != nil, set.Finalize != nil, set.Customize != nil, tc.reason)
			}
		})
	}
}

func TestVersionDefaultsToV1(t *testing.T) {
	empty := at("http://hook.example.com/finalize")
	empty.Version = new(v1alpha1.HookVersion)
	second := at("http://hook.example.com/customize")
	second.Version = new(v1alpha1.HookVersionV2)
	set, err := hooks.New(webhook.Config{}, hooks.Kinds{}, at("http://hook.example.com/sync"), empty, second)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for _, tc := range []struct {
		hook *hooks.Hook
		want v1alpha1.HookVersion
	}{{set.Sync, v1alpha1.HookVersionV1}, {set.Finalize, v1alpha1.HookVersionV1}, {set.Customize, v1alpha1.HookVersionV2}} {
		if tc.hook.Version != tc.want {
			t.Errorf("the %s hook has version %q, want %q", tc.hook.Name, tc.hook.Version, tc.want)
		}
	}
}

func TestReadsNamesTheSourcesOfAllHooks(t *testing.T) {
	sync, customize := at("http://a.example.com/sync"), at("http://b.example.com/customize")
	customize.Webhook.Authorization = &v1alpha1.WebhookAuthorization{
		SecretRef: v1alpha1.SecretKeyReference{Namespace: "ns", Name: "token", Key: "k"},
	}
	set, err := hooks.New(webhook.Config{EndpointConfigs: []v1alpha1.EndpointConfig{{
		Host: "a.example.com", WebhookSecurity: v1alpha1.WebhookSecurity{
			CABundle: &v1alpha1.CABundle{ConfigMapRef: &v1alpha1.CABundleReference{Namespace: "ns", Name: "authority"}},
		},
	}}}, hooks.Kinds{}, sync, nil, customize)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for r, want := range map[webhook.Reference]bool{
		{Kind: "Secret", Namespace: "ns", Name: "token"}:        true,
		{Kind: "ConfigMap", Namespace: "ns", Name: "authority"}: true,
		{Kind: "ConfigMap", Namespace: "ns", Name: "token"}:     false,
		{Kind: "Secret", Namespace: "other", Name: "token"}:     false,
	} {
		if got := set.Reads(r); got != want {
			t.Errorf("Reads(%s) = %t, want %t", r, got, want)
		}
	}
}

func TestErrorsNameHookAndVersion(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.HTML())
	server.Handle("/finalize", hooktest.RetryLater(http.StatusTooManyRequests, "7"))
	server.Handle("/customize", hooktest.Status(http.StatusTeapot, "tea"))
	set, err := hooks.New(webhook.Config{}, hooks.Kinds{}, at(server.URL("/sync")), at(server.URL("/finalize")), at(server.URL("/customize")))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	_, err = set.Sync.Call(t.Context(), parent, request, wire.DecodeComposite)
	if err == nil || !strings.HasPrefix(err.Error(), "sync hook failed (version=v1): the response must be a JSON object") || !hook.IsRejected(err) {
		t.Errorf("sync: %v", err)
	}
	_, err = set.Finalize.Call(t.Context(), parent, request, wire.DecodeDecorator)
	if later, ok := errors.AsType[*webhook.RetryLaterError](err); !ok || later.After.Seconds() != 7 {
		t.Errorf("finalize: %v", err)
	}
	_, err = set.Customize.Related(t.Context(), parent, request)
	if err == nil || err.Error() != "customize hook failed (version=v1): unsupported status code: 418 body: tea" {
		t.Errorf("customize: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = set.Customize.Related(ctx, parent, request); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was stopped: %v", err)
	}
}

func TestARejectedResponseLeavesNoTag(t *testing.T) {
	for name, tc := range map[string]struct {
		response http.Handler
		want     string
	}{
		"Envelope": {hooktest.HTML(), "sync hook failed (version=v1): the response must be a JSON object"},
		"Child":    {hooktest.Body("", `{"children":[{}]}`), "sync hook failed (version=v1): children[0]: has no kind"},
	} {
		t.Run(name, func(t *testing.T) {
			server := hooktest.NewServer(t)
			server.Handle("/sync", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"one"`)
				tc.response.ServeHTTP(w, r)
			}))
			declared := at(server.URL("/sync"))
			declared.Webhook.Etag = &v1alpha1.WebhookEtagConfig{Enabled: new(true)}
			set, err := hooks.New(webhook.Config{}, hooks.Kinds{}, declared, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			for range 2 {
				response, err := set.Sync.Call(t.Context(), parent, request, wire.DecodeComposite)
				if err == nil {
					_, err = response.Children()
				}
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) || !hook.IsRejected(err) {
					t.Fatalf("got %v, want %s…", err, tc.want)
				}
			}
			for _, r := range server.Requests("/sync") {
				if tag := r.Header.Get("If-None-Match"); tag != "" {
					t.Errorf("the tag %s of a rejected response was sent: the hook would confirm it for ever", tag)
				}
			}
		})
	}
}

// TestBothKindsOfControllersGetTheSameResponse holds that children and attachments differ in nothing but their names.
func TestBothKindsOfControllersGetTheSameResponse(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Body("", `{"status":{"a":1},"children":[{"kind":"Pod"}],"finalized":true}`))
	server.Handle("/finalize", hooktest.Body("", `{"status":{"a":1},"attachments":[{"kind":"Pod"}],"finalized":true,"delete":true}`))
	set, err := hooks.New(webhook.Config{}, hooks.Kinds{}, at(server.URL("/sync")), at(server.URL("/finalize")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for name, call := range map[string]func() (*hooks.Response, error){
		"composite": func() (*hooks.Response, error) {
			return set.Sync.Call(t.Context(), parent, request, wire.DecodeComposite)
		},
		"decorator": func() (*hooks.Response, error) {
			return set.Finalize.Call(t.Context(), parent, request, wire.DecodeDecorator)
		},
	} {
		response, err := call()
		if err != nil {
			t.Fatal(err)
		}
		if string(response.RawChildren) != `[{"kind":"Pod"}]` || !response.Finalized || response.Delete != (name == "decorator") {
			t.Errorf("%s: got %+v", name, response)
		}
		children, err := response.Children()
		response.Release()
		response.Release()
		if err != nil || len(children) != 1 || children[0]["kind"] != "Pod" || response.Status["a"] != int64(1) || response.RawChildren != nil {
			t.Errorf("%s: children %v, error %v, status %v after the release", name, children, err, response.Status)
		}
	}
}

// TestResponsesThatAreNotHandedOutHoldNoRoom holds that what a caller cannot release is released.
func TestResponsesThatAreNotHandedOutHoldNoRoom(t *testing.T) {
	space := strings.Repeat(" ", 100<<10)
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(hooktest.Body("", "["+space+"]"), hooktest.Body("", "{"+space+"}")))
	server.Handle("/customize", hooktest.Body("", "{"+space+"}"))
	set, err := hooks.New(webhook.Config{ResponseBudget: fairqueue.Bytes(150 << 10)}, hooks.Kinds{},
		at(server.URL("/sync")), nil, at(server.URL("/customize")))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if _, err := set.Sync.Call(t.Context(), parent, request, wire.DecodeComposite); !hook.IsRejected(err) {
		t.Errorf("got %v, want a rejected response", err)
	}
	if _, err := set.Customize.Related(t.Context(), parent, request); err != nil {
		t.Error(err)
	}
	response, err := set.Sync.Call(t.Context(), parent, request, wire.DecodeComposite)
	if err != nil {
		t.Fatalf("no room is left: %v", err)
	}
	response.Release()
}

func TestAShownResponseHasNoCredentials(t *testing.T) {
	server := hooktest.NewServer(t)
	server.Handle("/sync", hooktest.Sequence(
		hooktest.Body("", `{"status":{"sent":"s3cr3t-of-the-hook","more":1}}`), hooktest.Body("", `{"status":"s3cr3t-of-the-hook"}`)))
	set, err := hooks.New(webhook.Config{}, hooks.Kinds{}, at(strings.Replace(server.URL("/sync"), "http://", "http://me:s3cr3t-of-the-hook@", 1)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	read := func(body []byte, o wire.ResponseOptions) ([]byte, error) {
		if _, err := wire.DecodeComposite(body, o); err != nil {
			return nil, fmt.Errorf("%w in %s", err, body)
		}
		return body, nil
	}
	shown, err := set.Quiet().Sync.Shown(t.Context(), request, read)
	if err != nil || string(shown) != `{"status":{"more":1,"sent":"(hidden)"}}` {
		t.Errorf("shown is %s, error %v", shown, err)
	}
	_, err = set.Quiet().Sync.Shown(t.Context(), request, read)
	if err == nil || !strings.HasPrefix(err.Error(), "sync hook failed (version=v1): ") || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("a response that is rejected: %v", err)
	}
}

func TestCallsOfAllHooksShareTheWorkers(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	held := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-release
		hooktest.JSON(map[string]any{}).ServeHTTP(w, r)
	})
	server := hooktest.NewServer(t)
	server.Handle("/sync", held)
	server.Handle("/finalize", held)
	set, err := hooks.New(webhook.Config{Workers: 2}, hooks.Kinds{}, at(server.URL("/sync")), at(server.URL("/finalize")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var calling sync.WaitGroup
	call := func(h *hooks.Hook) {
		calling.Go(func() {
			if _, err := h.Call(t.Context(), parent, request, wire.DecodeComposite); err != nil {
				t.Error(err)
			}
		})
	}
	call(set.Sync)
	call(set.Finalize)
	<-entered
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = set.Sync.Call(ctx, parent, request, wire.DecodeComposite)
	if want := "sync hook failed (version=v1): waiting for other calls to end: context canceled"; err == nil || err.Error() != want {
		t.Errorf("a third call: got %v, want %s", err, want)
	}
	call(set.Sync)
	release <- struct{}{}
	<-entered
	close(release)
	calling.Wait()
}

func TestMoreParentsAreSyncedThanHooksAreCalled(t *testing.T) {
	for workers, want := range map[int]int{1: 1, 2: 3, 20: 39} {
		if got := hooks.Syncs(workers); got != want {
			t.Errorf("%d workers: %d parents are synced at the same time, want %d", workers, got, want)
		}
	}
}

func TestASyncHookIsNotBlamedForAParentThatIsFinalized(t *testing.T) {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer failing.Close()
	synced := at(failing.URL)
	set, err := hooks.New(webhook.Config{}, hooks.Kinds{}, synced, at("http://hook.example.com/finalize"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for len(set.Failing()) == 0 {
		if _, err := set.Sync.Call(t.Context(), parent, request, wire.DecodeComposite); err == nil {
			t.Fatal("there is no error")
		}
	}
	if set.Finalizes(parent); len(set.Failing()) > 0 {
		t.Error("the sync hook fails still, which nobody calls")
	}
}

// panicking is a transport that panics.
type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a hole in the transport") }

func TestASpanOfACallThatPanicsHasAnError(t *testing.T) {
	set, err := hooks.New(webhook.Config{Transport: panicking{}}, hooks.Kinds{}, at("http://hook.example.com/sync"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ended := tracetest.NewSpanRecorder()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)))
	for name, h := range map[string]*hooks.Hook{"a call": set.Sync, "one of which nothing is remembered": set.Quiet().Sync} {
		t.Run(name, func(t *testing.T) {
			ended.Reset()
			ctx, span := tracer.Sync(t.Context(), tracing.Sync{})
			panicked := func() (panicked bool) {
				defer func() { panicked = recover() != nil }()
				_, _ = h.Call(ctx, parent, request, wire.DecodeComposite)
				return false
			}()
			span.End(nil)
			if !panicked {
				t.Fatal("the call did not panic")
			}
			for _, span := range ended.Ended() {
				if span.Name() == tracing.SpanHook && span.Status().Code == codes.Error {
					return
				}
			}
			t.Errorf("no span of the call has an error: %v", tracetest.SpanStubsFromReadOnlySpans(ended.Ended()))
		})
	}
}
