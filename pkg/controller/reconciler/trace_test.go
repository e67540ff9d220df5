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

package reconciler_test

import (
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/tracing"
)

// TestTracesHaveTheCausesOfSyncsThatAreNotRemembered changes the parent and a child.
func TestTracesHaveTheCausesOfSyncsThatAreNotRemembered(t *testing.T) {
	s := newScene(t)
	ended := tracetest.NewSpanRecorder()
	s.shared.Options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))
	s.exist(thing(t, "a", 1, "", `,"spec":{"a":1}`))
	s.start(&kind{}, nil)
	awaitCause := func(want v1alpha1.SyncReason) {
		t.Helper()
		s.eventually("a span with the cause "+string(want), func() bool {
			return slices.ContainsFunc(ended.Ended(), func(span sdktrace.ReadOnlySpan) bool {
				for _, attribute := range span.Attributes() {
					if attribute.Key == tracing.Cause && slices.Contains(attribute.Value.AsStringSlice(), string(want)) {
						return true
					}
				}
				return false
			})
		})
	}
	awaitCause(v1alpha1.SyncStarted)
	s.update(s.things, thing(t, "a", 2, `,"generation":2`, `,"spec":{"a":2}`))
	awaitCause(v1alpha1.SyncSpecChanged)
	s.update(s.widgets, widget(t, "w", 3, "a", ""))
	s.update(s.widgets, widget(t, "w", 4, "a", `,"labels":{"a":"b"}`))
	awaitCause(v1alpha1.SyncChildChanged)
}
