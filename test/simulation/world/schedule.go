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

package world

import (
	"errors"
	"fmt"
	"strings"
	"testing/synctest"
	"time"
)

const (
	// epoch is the number of steps after which the weights of classes change.
	epoch = 32
	// maxHold is for how many steps a watch is held back at most.
	maxHold = 100
	// maxDelay is the longest delay of a response, and maxPass the longest time that passes in one step.
	maxDelay = 15 * time.Second
	maxPass  = 5 * time.Second
	// maxBurst is the most events that are delivered at once.
	maxBurst = 8
)

// retryPace is how many requests and hook calls a minute a few parents make whose errors last, and which are resynced with the others: each
// is retried within five minutes, so that the pauses between resyncs are not quiet.
const retryPace = 50

// ErrRestless says that a world does not come to rest.
var ErrRestless = errors.New("it does not come to rest")

// Step releases one of what is pending, or lets some time pass, as the seed decides; with faults, if the options have some. It returns
// false if nothing is pending.
func (w *World) Step() bool {
	w.steps++
	ready := w.ready()
	if len(ready) == 0 {
		return false
	}
	faults := &w.options.Faults
	if faults.Pass > 0 && w.random.Float64() < faults.Pass {
		w.Advance(w.upTo(maxPass))
		return true
	}
	chosen := w.choose(ready)
	fault := w.fault(chosen)
	w.release(chosen, fault)
	return true
}

// upTo returns a duration up to limit, of which short ones are as probable as long ones.
func (w *World) upTo(limit time.Duration) time.Duration {
	limit >>= w.random.IntN(12)
	return time.Duration(w.random.Int64N(int64(limit)))
}

// choose chooses by weights that differ between classes for a while, so that some things are slow in comparison with others.
func (w *World) choose(ready items) *item {
	free := ready[:0:0]
	for _, i := range ready {
		if w.holds[i.class] < w.steps {
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		clear(w.holds)
		free = ready
	}
	total := 0
	for _, i := range free {
		total += w.weight(i)
	}
	at := w.random.IntN(total)
	for _, i := range free {
		if at -= w.weight(i); at < 0 {
			return i
		}
	}
	return free[len(free)-1]
}

// weight is 1, 4 or 16.
func (w *World) weight(i *item) int {
	h := (i.class ^ w.options.Seed ^ uint64(w.steps/epoch)*0x9e3779b97f4a7c15) * fnvPrime
	h ^= h >> 29
	return 1 << (2 * ((h * fnvPrime >> 33) % 3))
}

// fault decides what goes wrong with an item that is released.
func (w *World) fault(i *item) Fault {
	f := &w.options.Faults
	happens := func(probability float64) bool { return probability > 0 && w.random.Float64() < probability }
	switch i.Kind {
	case Event:
		switch {
		case happens(f.Break):
			return Fault{Kind: Break}
		case happens(f.Expire):
			return Fault{Kind: Expire}
		case happens(f.Hold):
			w.holds[i.class] = w.steps + 1 + w.random.IntN(maxHold)
		case happens(f.Burst):
			return Fault{Kind: Burst, Events: 2 + w.random.IntN(maxBurst-1)}
		}
	case Request, Call:
		switch {
		case i.Abandoned:
		case happens(f.Refuse):
			kinds := []FaultKind{TooManyRequests, InternalError, Unavailable, Disconnect}
			if i.Verb == "watch" {
				kinds = append(kinds, Expire)
			}
			return Fault{Kind: kinds[w.random.IntN(len(kinds))]}
		case happens(f.Lose):
			return Fault{Kind: Lose}
		case happens(f.Hang):
			return Fault{Kind: Hang}
		case happens(f.Late):
			return Fault{Kind: Late}
		}
	case Response, CallResponse:
		switch {
		case happens(f.Lose):
			return Fault{Kind: Lose}
		case happens(f.Hang):
			return Fault{Kind: Hang}
		case happens(f.Delay):
			return Fault{Kind: Delay, Duration: w.upTo(maxDelay)}
		}
	}
	return Fault{}
}

// Advance lets a time pass, in which the engines run and nothing is released.
func (w *World) Advance(d time.Duration) {
	w.idle(d, false)
	w.mixNumber(uint64(d))
	if w.options.Trace {
		w.trace = append(w.trace, Entry{w.Now(), "time", d.String() + " have passed"})
	}
}

// Idle lets time pass until something is pending, at most the limit. It returns whether something is.
func (w *World) Idle(limit time.Duration) bool { return w.idle(limit, true) }

// idle lets time pass, until something is pending if it shall stop then.
func (w *World) idle(limit time.Duration, stop bool) bool {
	end := w.Now() + limit
	for {
		ready := len(w.ready()) > 0
		now := w.Now()
		if ready && stop || now >= end {
			return ready
		}
		next := end
		w.mu.Lock()
		for _, i := range w.items {
			if i.due > now {
				next = min(next, i.due)
			}
		}
		w.mu.Unlock()
		select {
		case <-w.activity: // Of before.
		default:
		}
		w.timer.Reset(next - now)
		select {
		case <-w.timer.C:
		case <-w.activity:
			w.timer.Stop()
		}
		synctest.Wait()
	}
}

// Settle releases all that is pending, without faults, collects garbage, and lets time pass, until nothing has become pending for
// [Options.Quiet], or until the limit if no more happens than retries of errors that last. The error, an [ErrRestless], says that this
// took longer, or more than [Options.Requests].
func (w *World) Settle(limit time.Duration) error {
	clear(w.holds)
	end, requests := w.Now()+limit, w.requests
	for {
		collected := w.API.Collect() || w.options.Collect != nil && w.options.Collect()
		ready := w.ready()
		for _, i := range ready {
			w.release(i, Fault{})
		}
		if len(ready) > 0 || collected {
			if w.requests-requests > w.options.Requests {
				return fmt.Errorf("%w: %d requests and hook calls in %s, the last ones:\n%s", ErrRestless, w.requests-requests, w.Now()-end+limit, w.last())
			}
			continue
		}
		if !w.Idle(w.options.Quiet) {
			return nil
		}
		if w.Now() > end {
			if float64(w.requests-requests) < retryPace*limit.Minutes() {
				return nil
			}
			return fmt.Errorf("%w: something is pending after %s still:\n%s", ErrRestless, limit, w.last())
		}
	}
}

// last describes what is pending, and what happened last if that is known.
func (w *World) last() string {
	var b strings.Builder
	for _, p := range w.Pending() {
		fmt.Fprintln(&b, "pending:", p)
	}
	PrintTrace(&b, w.trace[max(0, len(w.trace)-60):])
	return b.String()
}
