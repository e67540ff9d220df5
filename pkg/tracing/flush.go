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
	"fmt"
	"time"

	basetracing "k8s.io/component-base/tracing"
)

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
