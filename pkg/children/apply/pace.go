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

package apply

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// paceInterval is the time that a trial is given on average for which nobody waits: about 17 in a second.
const paceInterval = 60 * time.Millisecond

// pace spreads trials for which nobody waits over time, those of all controllers together: each goes through the webhooks of the cluster. It is
// safe for concurrent use.
type pace struct {
	random func() float64

	mu sync.Mutex
	// next is when the next trial may begin.
	next time.Time
}

func newPace(random func() float64) *pace {
	if random == nil {
		random = rand.Float64
	}
	return &pace{random: random}
}

// await waits for the turn of a trial. The error is that of ctx.
func (p *pace) await(ctx context.Context) error {
	timer := time.NewTimer(p.take(time.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // The caller only wants to know that it is over.
	case <-timer.C:
		return nil
	}
}

// take returns after what time the turn of a trial is: half of the interval to one and a half after the one before.
func (p *pace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(paceInterval/2 + time.Duration(p.random()*float64(paceInterval)))
	return p.next.Sub(now)
}

// AwaitTurn waits until a child may be tried once more for which nobody waits. The error is that of ctx.
func (a *Applier) AwaitTurn(ctx context.Context) error { return a.pace.await(ctx) }
