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

package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	basetracing "k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// TestMain fails when a goroutine is left over after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	deployments = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	sync        = tracing.Sync{
		Controller: "CompositeController-web", Resource: "sites.example.com", Namespace: "team", Name: "shop",
		Causes: []string{"ParentChanged"}, Waited: time.Minute,
	}
)

const secret = "s3cr3t"

func recorded(t testing.TB, sampler sdktrace.Sampler) (*tracing.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	return tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sampler))), recorder
}

// run is one sync: a hook call and two writes, of which the second fails with err. It returns the header of the hook call.
func run(ctx context.Context, tracer *tracing.Tracer, err error) http.Header {
	header := http.Header{}
	ctx, whole := tracer.Sync(ctx, sync)
	calling, call := tracing.Hook(ctx, "sync", "http://hook/sync")
	tracing.Inject(calling, header)
	call.End(nil)
	for _, write := range []error{nil, err} {
		_, span := tracing.Write(ctx, "Create", deployments, "team", "shop")
		span.End(write)
	}
	whole.End(err)
	return header
}

func TestASyncIsOneTrace(t *testing.T) {
	t.Parallel()
	tracer, recorder := recorded(t, sdktrace.AlwaysSample())
	header := run(t.Context(), tracer, nil)
	spans := recorder.Ended()
	var names []string
	for _, s := range spans {
		names = append(names, s.Name())
	}
	if want := []string{tracing.SpanQueue, tracing.SpanHook, tracing.SpanWrite, tracing.SpanWrite, tracing.SpanSync}; !slices.Equal(names, want) {
		t.Fatalf("the spans are %q, not %q", names, want)
	}
	whole, queue, call := spans[4], spans[0], spans[1]
	for _, s := range spans[:4] {
		if s.Parent().SpanID() != whole.SpanContext().SpanID() || s.SpanContext().TraceID() != whole.SpanContext().TraceID() {
			t.Errorf("%s is not within the sync", s.Name())
		}
	}
	if !queue.StartTime().Equal(whole.StartTime()) || queue.EndTime().Sub(queue.StartTime()) != time.Minute {
		t.Errorf("the time in the queue is from %s to %s, the sync from %s on", queue.StartTime(), queue.EndTime(), whole.StartTime())
	}
	want := fmt.Sprintf("00-%s-%s-01", call.SpanContext().TraceID(), call.SpanContext().SpanID())
	if got := header.Get("Traceparent"); got != want {
		t.Errorf("the hook is told %q, not %q", got, want)
	}
	if cause := value(whole.Attributes(), tracing.Cause); !slices.Equal(cause.AsStringSlice(), sync.Causes) {
		t.Errorf("the cause is %v", cause)
	}
	if parent := value(whole.Attributes(), tracing.Parent); parent.AsString() != "shop" {
		t.Errorf("the parent is %v", parent)
	}
}

func value(attributes []attribute.KeyValue, key attribute.Key) attribute.Value {
	set := attribute.NewSet(attributes...)
	found, _ := set.Value(key)
	return found
}

func TestErrorsAreKinds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"of the API server": {apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, secret, errors.New(secret)), "Forbidden"},
		"wrapped":           {fmt.Errorf("%s: %w", secret, apierrors.NewNotFound(schema.GroupResource{}, secret)), "NotFound"},
		"a timeout":         {fmt.Errorf("%s: %w", secret, context.DeadlineExceeded), "Timeout"},
		"an end":            {fmt.Errorf("%s: %w", secret, context.Canceled), "Canceled"},
		"any other":         {errors.New(secret), "_OTHER"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, recorder := recorded(t, sdktrace.AlwaysSample())
			run(t.Context(), tracer, test.err)
			for _, s := range tracetest.SpanStubsFromReadOnlySpans(recorder.Ended()[3:]) {
				if s.Status.Code != codes.Error || s.Status.Description != "" {
					t.Errorf("%s has the status %v", s.Name, s.Status)
				}
				if kind := value(s.Attributes, tracing.ErrorType); kind.AsString() != test.want {
					t.Errorf("%s has the kind %v, not %s", s.Name, kind, test.want)
				}
				if text := fmt.Sprintf("%+v", s); strings.Contains(text, secret) {
					t.Errorf("%s quotes the error: %s", s.Name, text)
				}
			}
		})
	}
}

func TestWhatIsNotSampledIsToldOn(t *testing.T) {
	t.Parallel()
	tracer, recorder := recorded(t, sdktrace.NeverSample())
	header := run(t.Context(), tracer, nil)
	if n := len(recorder.Ended()); n > 0 {
		t.Errorf("%d spans were recorded", n)
	}
	if got := header.Get("Traceparent"); !strings.HasSuffix(got, "-00") {
		t.Errorf("the hook is told %q, and might begin a trace of its own", got)
	}
}

func TestWithoutProviderThereIsNothing(t *testing.T) {
	t.Parallel()
	if header := run(t.Context(), tracing.New(nil), errors.New("failed")); len(header) > 0 {
		t.Errorf("the hook is sent %v", header)
	}
	ctx, span := tracing.Write(t.Context(), "Create", deployments, "team", "shop")
	span.End(nil)
	if ctx != t.Context() || trace.SpanFromContext(ctx).IsRecording() {
		t.Error("a write outside of a sync has a span")
	}
}

// BenchmarkSync is what spans cost a sync with one hook call and two writes: without traces, with ones that are not sampled, with all.
func BenchmarkSync(b *testing.B) {
	unsampled, _ := recorded(b, sdktrace.NeverSample())
	sampled := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())))
	for _, c := range []struct {
		name   string
		tracer *tracing.Tracer
	}{{"off", nil}, {"unsampled", unsampled}, {"sampled", sampled}} {
		b.Run(c.name, func(b *testing.B) {
			// The context of a sync has values above each other.
			ctx := deep(b.Context(), 6)
			header := http.Header{}
			b.ReportAllocs()
			for b.Loop() {
				ctx, whole := c.tracer.Sync(ctx, sync)
				calling, call := tracing.Hook(ctx, "sync", "http://hook/sync")
				tracing.Inject(calling, header)
				call.End(nil)
				for range 2 {
					_, span := tracing.Write(ctx, "Create", deployments, "team", "shop")
					span.End(nil)
				}
				whole.End(nil)
			}
		})
	}
}

type level int

// deep returns a context with n values above each other.
func deep(ctx context.Context, n level) context.Context {
	if n == 0 {
		return ctx
	}
	return context.WithValue(deep(ctx, n-1), n, n)
}

// TestACollectorThatDoesNotAnswerHoldsNobodyUp has one that accepts connections and says nothing. Without the limit the test would take
// as long as an export may take, and end without an error.
func TestACollectorThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := basetracing.NewProvider(t.Context(), &tracingapi.TracingConfiguration{
		Endpoint: new(listener.Addr().String()), SamplingRatePerMillion: new(int32(1_000_000)),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	limited := tracing.LimitFlush(provider, 10*time.Millisecond)
	run(t.Context(), tracing.New(limited), nil)
	if err := limited.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	refuse(t, listener)
}

// refuse answers the export that waits for the collector, which ends it.
func refuse(t *testing.T, listener net.Listener) {
	t.Helper()
	asked, ended := make(chan struct{}), make(chan error)
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		close(asked)
		return status.Error(grpccodes.Unimplemented, "it takes no spans")
	}))
	go func() { ended <- collector.Serve(listener) }()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Error("no export waits any more")
	}
	collector.GracefulStop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
