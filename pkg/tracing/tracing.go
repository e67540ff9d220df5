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

package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	basetracing "k8s.io/component-base/tracing"
)

// Scope is the instrumentation scope of the spans.
const Scope = "github.com/metacontroller/metacontroller-apiserver"

// Names of spans.
const (
	// SpanSync is the sync of one parent, from the first event that led to it to its end.
	SpanSync = "sync"
	// SpanQueue is the part of a sync before a worker took the parent.
	SpanQueue = "queue"
	// SpanHook is one call of a hook; its time for a free worker does not count.
	SpanHook = "call hook"
	// SpanWrite is one step of a plan: what is done with one child.
	SpanWrite = "write child"
)

// Attributes of spans.
const (
	// Controller is the kind and name of a controller, as in the labels of metrics.
	Controller = attribute.Key("metacontroller.controller")
	// Resource is the resource and API group of a parent, such as deployments.apps.
	Resource = attribute.Key("metacontroller.parent.resource")
	// Parent is the name of a parent.
	Parent = attribute.Key("metacontroller.parent.name")
	// Namespace is the namespace of a parent or child; absent for cluster-scoped ones.
	Namespace = attribute.Key("k8s.namespace.name")
	// Cause has the reasons of a sync, such as ParentChanged.
	Cause = attribute.Key("metacontroller.sync.cause")
	// HookName is sync, finalize or customize, and HookURL is its address without user and query.
	HookName = attribute.Key("metacontroller.hook")
	HookURL  = attribute.Key("url.full")
	// Action is what is done with a child, ChildKind its kind and API group, and Child its name.
	Action    = attribute.Key("metacontroller.child.action")
	ChildKind = attribute.Key("metacontroller.child.kind")
	Child     = attribute.Key("metacontroller.child.name")
	// ErrorType is the kind of an error: a reason of the API server, Timeout, Canceled, or _OTHER.
	ErrorType = attribute.Key("error.type")
)

// Tracer starts the spans of syncs. It is safe for concurrent use. Nil starts none.
type Tracer struct{ tracer trace.Tracer }

// New returns a tracer whose spans go to a provider, nil for none.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{tracer: provider.Tracer(Scope)}
}

// A Sync is what a span says of a sync.
type Sync struct {
	// Controller is what syncs, for example CompositeController-web.
	Controller string
	// Resource, Namespace and Name are those of the parent.
	Resource, Namespace, Name string
	// Causes are the reasons; none: they are not known.
	Causes []string
	// Waited is the time since the first of them.
	Waited time.Duration
}

// Sync starts a trace with the span of a sync that begins now, and adds the span of its time in the workqueue. The caller ends the span.
func (t *Tracer) Sync(ctx context.Context, s Sync) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	now := time.Now()
	caused := trace.WithTimestamp(now.Add(-s.Waited))
	attributes := append(make([]attribute.KeyValue, 0, 5), Controller.String(s.Controller), Resource.String(s.Resource), Parent.String(s.Name))
	attributes = withNamespace(attributes, s.Namespace)
	if len(s.Causes) > 0 {
		attributes = append(attributes, Cause.StringSlice(s.Causes))
	}
	ctx, span := t.tracer.Start(ctx, SpanSync, trace.WithNewRoot(), caused, trace.WithAttributes(attributes...))
	if span.IsRecording() {
		_, queued := t.tracer.Start(ctx, SpanQueue, caused)
		queued.End(trace.WithTimestamp(now))
	}
	return ctx, Span{span}
}

// Hook starts the span of a call of a hook within the span of ctx. The URL must have no user and no query.
func Hook(ctx context.Context, name, url string) (context.Context, Span) {
	tracer := within(ctx)
	if tracer == nil {
		return ctx, Span{}
	}
	ctx, span := tracer.Start(ctx, SpanHook, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(HookName.String(name), HookURL.String(url)))
	return ctx, Span{span}
}

// Write starts the span of what is done with a child within the span of ctx.
func Write(ctx context.Context, action string, kind schema.GroupKind, namespace, name string) (context.Context, Span) {
	tracer := within(ctx)
	if tracer == nil {
		return ctx, Span{}
	}
	attributes := withNamespace([]attribute.KeyValue{Action.String(action), ChildKind.String(kind.String()), Child.String(name)}, namespace)
	ctx, span := tracer.Start(ctx, SpanWrite, trace.WithAttributes(attributes...))
	return ctx, Span{span}
}

// within returns the tracer of the spans within that of ctx, nil if that is not recorded.
func within(ctx context.Context) trace.Tracer {
	outer := trace.SpanFromContext(ctx)
	if !outer.IsRecording() {
		return nil
	}
	return outer.TracerProvider().Tracer(Scope)
}

func withNamespace(attributes []attribute.KeyValue, namespace string) []attribute.KeyValue {
	if namespace == "" {
		return attributes
	}
	return append(attributes, Namespace.String(namespace))
}

// Inject adds the header traceparent to a request, if ctx belongs to a trace, recorded or not.
func Inject(ctx context.Context, header http.Header) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// Span is a span that was started. The zero value is none.
type Span struct{ span trace.Span }

// End ends the span. Of an error it keeps the kind.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, "")
		s.span.SetAttributes(ErrorType.String(typeOf(err)))
	}
	s.span.End()
}

// typeOf returns the kind of an error; _OTHER is OpenTelemetry's name for those without one.
func typeOf(err error) string {
	switch reason := apierrors.ReasonForError(err); {
	case reason != metav1.StatusReasonUnknown:
		return string(reason)
	case errors.Is(err, context.DeadlineExceeded):
		return "Timeout"
	case errors.Is(err, context.Canceled):
		return "Canceled"
	}
	return "_OTHER"
}

// FlushLimit is how long a server that ends waits for its collector to take the last spans.
const FlushLimit = 3 * time.Second

// LimitFlush returns a provider whose Shutdown waits for a time at most. Spans that the collector has not taken by then are lost: traces
// are no reason for a server to end late.
func LimitFlush(provider basetracing.TracerProvider, limit time.Duration) basetracing.TracerProvider {
	return &limitedProvider{TracerProvider: provider, limit: limit}
}

type limitedProvider struct {
	basetracing.TracerProvider

	limit time.Duration
}

// Shutdown implements basetracing.TracerProvider.
func (p *limitedProvider) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	if err := p.TracerProvider.Shutdown(ctx); err != nil {
		return fmt.Errorf("sending the last spans within %s: %w", p.limit, err)
	}
	return nil
}
