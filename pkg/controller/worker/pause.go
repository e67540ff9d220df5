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

package worker

import (
	"context"
	"errors"
	"sync"
)

// errPaused is the cause of the context of a sync that a pause cuts short.
var errPaused = errors.New("the controller is paused")

// Pause has no key synced until Resume, and cuts short the syncs that are under way: their contexts end, and their keys wait like all
// others. Nothing that waits is forgotten. It returns at once; UnderWay tells when nothing is under way any more. It may be called before
// Run.
func (p *Pool) Pause() {
	p.queue.Pause()
	p.brake.pause()
}

// Resume ends a pause. The keys that wait are synced.
func (p *Pool) Resume() {
	p.brake.resume()
	p.queue.Resume()
}

// UnderWay returns the number of keys that are being synced. After Pause, no sync begins when it is zero.
func (p *Pool) UnderWay() int { return p.queue.Processing() }

// brake ends the contexts of syncs when their controller is paused. The zero value is one that is not.
type brake struct {
	mu     sync.Mutex
	paused bool
	// ends end the contexts of the syncs that are under way.
	ends map[*context.CancelCauseFunc]struct{}
}

func (b *brake) pause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = true
	for end := range b.ends {
		(*end)(errPaused)
	}
}

func (b *brake) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = false
}

// bind returns a context that ends with ctx, and when the controller is paused. The caller releases it.
func (b *brake) bind(ctx context.Context) (bound context.Context, release func()) {
	bound, end := context.WithCancelCause(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused {
		end(errPaused)
		return bound, func() {}
	}
	if b.ends == nil {
		b.ends = map[*context.CancelCauseFunc]struct{}{}
	}
	b.ends[&end] = struct{}{}
	return bound, func() {
		b.mu.Lock()
		delete(b.ends, &end)
		b.mu.Unlock()
		end(nil)
	}
}

// cut reports whether a pause ended a context that bind returned.
func (*brake) cut(bound context.Context) bool { return errors.Is(context.Cause(bound), errPaused) }
