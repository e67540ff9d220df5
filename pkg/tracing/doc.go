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

// Package tracing makes the spans of the engine, for OpenTelemetry: one for each sync of a parent, and within it one for the time in the
// workqueue, each call of a hook and each write of a child. The hook is told of the trace by the header traceparent (W3C Trace Context).
//
// Package reconciler starts the span of a sync with a [Tracer], which is made of the TracerProvider that the program passes in; without one
// there is no span. Whoever is called with the context of a sync, such as hooks and apply, makes its spans with [Hook] and [Write],
// which do nothing where there is no span or it is not recorded. Requests to API servers get spans by their transport, not here.
//
// Spans name objects, hooks and kinds of errors. They never hold bodies, credentials, or texts of errors, which may quote either.
package tracing
