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

// Package tracing has the real server send its spans to a collector that speaks OpenTelemetry's protocol (OTLP over gRPC).
package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	span "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/hooktest"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
	"github.com/metacontroller/metacontroller-apiserver/test/server"
)

const (
	limit = cluster.Limit
	// password is what hook and children know, and no span may show.
	password = "not-for-collectors"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// receiver keeps the spans that it is sent.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*span.Span
}

// Export implements collector.TraceServiceServer.
func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// trace returns the spans of the trace of a span that matches.
func (r *receiver) trace(is func(*span.Span) bool) []*span.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.spans, is)
	if i < 0 {
		return nil
	}
	id := string(r.spans[i].GetTraceId())
	return slices.DeleteFunc(slices.Clone(r.spans), func(s *span.Span) bool { return string(s.GetTraceId()) != id })
}

// serve returns a receiver and its address. It stops with the test.
func serve(t *testing.T) (*receiver, string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, s := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(listener); err != nil {
			t.Errorf("receiving spans: %v", err)
		}
	})
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	return r, listener.Addr().String()
}

// hooks is a hook that returns a Secret for each parent, and notes which traces it is told of.
type hooks struct {
	mu   sync.Mutex
	told []string
}

func (h *hooks) handler() http.Handler {
	respond := hooktest.Composite(func(q *hook.CompositeRequest) (*hook.CompositeResponse, error) {
		return &hook.CompositeResponse{Children: []*hook.Object{{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": q.Parent.GetName()}, "stringData": map[string]any{"p": password},
		}}}}, nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.told = append(h.told, r.Header.Get("Traceparent"))
		h.mu.Unlock()
		respond.ServeHTTP(w, r)
	})
}

func (h *hooks) knows(traceparent string) (bool, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.told, traceparent), fmt.Sprintf("the hook was told %q, not %q", h.told, traceparent)
}

func TestASyncIsATraceFromTheEventToTheChildren(t *testing.T) {
	received, address := serve(t)
	config := filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + address + "\nsamplingRatePerMillion: 1000000\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := fixture.SetUp(t, fixture.Options{Server: server.Options{Args: []string{"--tracing-config-file", config}}})
	s := e.NewTest(t)
	var called hooks
	s.Handle("/sync", called.handler())
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}, StringData: map[string]string{"username": "u", "password": password}}
	if _, err := s.Kube.CoreV1().Secrets(s.Namespace).Create(t.Context(), login, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sync := s.At("/sync")
	sync.Webhook.URL = new(*sync.Webhook.URL + "?key=" + password)
	sync.Webhook.WebhookSecurity = v1alpha1.WebhookSecurity{BasicAuth: &v1alpha1.WebhookBasicAuth{
		SecretRef: v1alpha1.SecretReference{Namespace: s.Namespace, Name: "login"},
	}}
	s.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: sync,
		Children: []fixture.Child{{Resource: fixture.Secrets, Method: v1alpha1.ChildUpdateInPlace}},
	})
	s.Parent("shop", nil)
	s.Await(fixture.Secrets, "shop", "to be created", cluster.Exists)

	cluster.Eventually(t, limit, "the sync that created the child to be one trace", func(context.Context) (bool, string) {
		spans := received.trace(func(s *span.Span) bool {
			return s.GetName() == tracing.SpanWrite && attribute(s, string(tracing.Child)) == "shop"
		})
		whole, call, write := find(spans, tracing.SpanSync), find(spans, tracing.SpanHook), find(spans, tracing.SpanWrite)
		queue := find(spans, tracing.SpanQueue)
		if whole == nil || call == nil || write == nil || queue == nil {
			return false, describe(spans)
		}
		for _, part := range []*span.Span{queue, call, write} {
			if !bytes.Equal(part.GetParentSpanId(), whole.GetSpanId()) {
				return false, part.GetName() + " is not within the sync:\n" + describe(spans)
			}
		}
		// The transport's span of the request that creates the child.
		if !slices.ContainsFunc(spans, func(s *span.Span) bool { return bytes.Equal(s.GetParentSpanId(), write.GetSpanId()) }) {
			return false, "the write has no request:\n" + describe(spans)
		}
		if cause := attribute(whole, string(tracing.Cause)); !strings.Contains(cause, string(v1alpha1.SyncParentCreated)) || attribute(whole, string(tracing.Parent)) != "shop" {
			return false, "the sync is not that of the parent's event:\n" + describe(spans)
		}
		return called.knows(fmt.Sprintf("00-%s-%s-01", hex.EncodeToString(call.GetTraceId()), hex.EncodeToString(call.GetSpanId())))
	})
	received.mu.Lock()
	defer received.mu.Unlock()
	for _, s := range received.spans {
		if strings.Contains(s.String(), password) {
			t.Errorf("a span shows a credential: %s", s)
		}
	}
}

func find(spans []*span.Span, name string) *span.Span {
	i := slices.IndexFunc(spans, func(s *span.Span) bool { return s.GetName() == name })
	if i < 0 {
		return nil
	}
	return spans[i]
}

func attribute(s *span.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if a.GetValue().GetArrayValue() != nil {
				return a.GetValue().GetArrayValue().String()
			}
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func describe(spans []*span.Span) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%x in %x: %s %v\n", s.GetSpanId(), s.GetParentSpanId(), s.GetName(), s.GetAttributes())
	}
	return b.String()
}

func TestWithoutConfigurationHooksAreToldOfNoTrace(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	s := e.NewTest(t)
	var called hooks
	s.Handle("/sync", called.handler())
	s.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: s.At("/sync"),
		Children: []fixture.Child{{Resource: fixture.Secrets, Method: v1alpha1.ChildUpdateInPlace}},
	})
	s.Parent("shop", nil)
	s.Await(fixture.Secrets, "shop", "to be created", cluster.Exists)
	if none, all := called.knows(""); !none || strings.Contains(all, "00-") {
		t.Error(all)
	}
}
