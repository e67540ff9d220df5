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

package client

import (
	"context"
	"sync"
)

// Warnings are what the API server said about the writes of one context that it accepted, for example that it does not know a field, or
// that a version is deprecated. It is safe for concurrent use; the zero value is ready.
type Warnings struct {
	mu   sync.Mutex
	list []string
}

type warningsKey struct{}

// Collect returns a context for writes whose warnings are collected.
func (w *Warnings) Collect(ctx context.Context) context.Context {
	return context.WithValue(ctx, warningsKey{}, w)
}

// All returns the texts of the warnings so far, nil if there are none.
func (w *Warnings) All() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list
}

// collect adds a warning to those of a context that collects them.
func collect(ctx context.Context, code int, text string) {
	w, ok := ctx.Value(warningsKey{}).(*Warnings)
	if !ok || code != warningCode || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}
