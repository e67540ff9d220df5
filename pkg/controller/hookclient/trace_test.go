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

package hookclient_test

import (
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hookclient"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/webhook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// panicking is a transport that panics.
type panicking struct{}

// RoundTrip implements http.RoundTripper.
func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a hole in the transport") }

func TestASpanOfACallThatPanicsHasAnError(t *testing.T) {
	set, err := hookclient.New(webhook.Config{Transport: panicking{}}, at("http://hook.example.com/sync"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ended := tracetest.NewSpanRecorder()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)))
	for name, h := range map[string]*hookclient.Hook{"a call": set.Sync, "one of which nothing is remembered": set.Quiet().Sync} {
		t.Run(name, func(t *testing.T) {
			ended.Reset()
			ctx, span := tracer.Sync(t.Context(), tracing.Sync{})
			panicked := func() (panicked bool) {
				defer func() { panicked = recover() != nil }()
				_, _ = h.Call(ctx, parent, []byte("{}"), wire.DecodeComposite)
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
