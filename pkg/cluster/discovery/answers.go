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

package discovery

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// answers are the API server's answers to one question about group-versions.
type answers[T any] struct {
	ask   func(context.Context, schema.GroupVersion) (T, error)
	known map[schema.GroupVersion]*entry[T]
	// trusted is for how long an answer counts while nothing would tell of a change.
	trusted time.Duration
}

// entry is what is known of one group-version. Its fields are guarded by the lock of the Discovery.
type entry[T any] struct {
	// turn is held by the one who asks, so that many who want to know at once ask once: an answer can be megabytes.
	turn   chan struct{}
	answer T
	// good says that there is an answer.
	good bool
	// at is how often the group had changed when the answer was asked for; negative if nothing would have told of a change.
	at int
	// asked is when the answer was asked for.
	asked time.Time
	// answered counts the questions that were answered, and err is what the last one failed with.
	answered int
	err      error
}

func newAnswers[T any](trusted time.Duration, ask func(context.Context, schema.GroupVersion) (T, error)) *answers[T] {
	return &answers[T]{ask: ask, known: map[schema.GroupVersion]*entry[T]{}, trusted: trusted}
}

// answerFor returns what is known of a group-version, and asks if that is nothing or may be outdated. If asking fails, the
// last answer stays.
func answerFor[T any](ctx context.Context, d *Discovery, a *answers[T], version schema.GroupVersion) (T, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := a.known[version]
	if e == nil {
		e = &entry[T]{turn: make(chan struct{}, 1)}
		a.known[version] = e
	}
	if e.isCurrent(d.now(version.Group), d.clock.Now().Add(-a.trusted)) {
		return e.answer, nil
	}
	arrived := e.answered
	d.mu.Unlock()
	err := e.take(ctx)
	d.mu.Lock()
	if err != nil {
		return *new(T), err
	}
	defer func() { <-e.turn }()
	// What changes while the API server answers makes the answer outdated, so the count is of before.
	now, asked := d.now(version.Group), d.clock.Now()
	// What was answered while one waited is as good as an answer to one's own question.
	if e.answered == arrived {
		d.mu.Unlock()
		answer, err := a.ask(ctx, version)
		d.mu.Lock()
		if err != nil && ctx.Err() != nil {
			return *new(T), err
		}
		e.answered++
		if e.err = err; err == nil {
			e.answer, e.good, e.at, e.asked = answer, true, now, asked
		}
	}
	if e.err != nil && e.good {
		klog.FromContext(ctx).V(2).Info("Discovery failed; the last answer stays", "apiVersion", version, "err", e.err)
		return e.answer, nil
	}
	return e.answer, e.err
}

// take waits for the turn to ask.
func (e *entry[T]) take(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isCurrent reports whether the answer is that of now, or, while nothing would tell of a change, was asked for after oldest.
func (e *entry[T]) isCurrent(now int, oldest time.Time) bool {
	if !e.good || e.err != nil {
		return false
	}
	return now >= 0 && e.at == now || now < 0 && e.asked.After(oldest)
}
