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
	"net/http"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

// Fault is what goes wrong when something is released. The zero value: nothing.
type Fault struct {
	// Kind says what goes wrong.
	Kind FaultKind
	// Duration is that of [Delay].
	Duration time.Duration
	// Events is the number of events of [Burst].
	Events int
}

// FaultKind says what goes wrong.
type FaultKind int

// The faults. Each says of which kinds of [Pending] it can be one; of others it is none.
const (
	// None is no fault.
	None FaultKind = iota
	// TooManyRequests refuses a Request or Call with 429 and a Retry-After of one second.
	TooManyRequests
	// InternalError refuses a Request or Call with 500.
	InternalError
	// Unavailable refuses a Request or Call with 503.
	Unavailable
	// Expire refuses a Request with 410, and ends a watch with the event of an error that says 410; the events that wait are lost.
	Expire
	// Disconnect breaks the connection of a Request or Call before it arrives.
	Disconnect
	// Lose lets a Request or Call arrive and breaks the connection then, as it does to a Response or CallResponse.
	Lose
	// Hang lets nothing happen to a Request, Response, Call or CallResponse any more. Its sender waits until its deadline, or until the
	// connection is given up after 45 s.
	Hang
	// Delay makes anything but an Event pending again, but not before the Duration.
	Delay
	// Break ends a watch; the events that wait are lost.
	Break
	// Burst delivers up to so many Events of a watch at once.
	Burst
	// Forbidden refuses a Request with 403, as while rights are missing.
	Forbidden
	// Conflict refuses a Request with 409, as quotas and webhooks may whatever its version is.
	Conflict
	// Fail lets a Request arrive and responds with 503 and a Retry-After of one second then: clients send it again.
	Fail
	// Panic makes the code of the engine panic that waits for a Request or Call, which does not arrive, or for a Response or CallResponse.
	Panic
)

// String implements fmt.Stringer.
func (f Fault) String() string {
	text := [...]string{
		"", "refused with 429", "refused with 500", "refused with 503", "expired", "connection broken before", "connection broken after", "hangs",
		"delayed", "broken", "delivered at once", "refused with 403", "refused with 409",
		"failed with 503 after", "its sender panics",
	}[f.Kind]
	switch f.Kind {
	case Delay:
		return text + " by " + f.Duration.String()
	case Burst:
		return strconv.Itoa(f.Events) + " " + text
	default:
		return text
	}
}

// hangs is the time after which a connection is given up that has become silent.
const hangs = 45 * time.Second

// Pending returns what can be released now, in an order that does not depend on how goroutines ran.
func (w *World) Pending() []Pending {
	ready := w.ready()
	list := make([]Pending, len(ready))
	for n, i := range ready {
		list[n] = i.Pending
	}
	return list
}

// UnderWay returns the requests and calls of an engine for whose responses it waits, those that cannot be released yet included, in an order that
// does not depend on how goroutines ran.
func (w *World) UnderWay(engine int) []Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Pending
	for _, i := range w.items {
		if i.Engine == engine && !i.Abandoned {
			list = append(list, i.Pending)
		}
	}
	return list
}

// ready returns the items that can be released now, in stable order.
func (w *World) ready() items {
	streams := w.reap()
	now := w.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := make(items, 0, len(w.items)+len(streams))
	for _, i := range w.items {
		if i.due <= now {
			ready = append(ready, i)
		}
	}
	for _, s := range streams {
		ready = append(ready, s.item)
	}
	slices.SortFunc(ready, (*item).compare)
	return ready
}

func (w *World) firstOf(engine int) (Pending, bool) {
	for _, i := range w.ready() {
		if i.Engine == engine {
			return i.Pending, true
		}
	}
	return Pending{}, false
}

// Release lets something happen, with a fault, and returns a millisecond later, when the engines have come to a stand. It returns false
// if it is not pending any more.
func (w *World) Release(p Pending, f Fault) bool {
	return w.release(p.item, f)
}

func (w *World) release(i *item, f Fault) bool {
	if !w.effect(i, f) {
		return false
	}
	synctest.Wait()
	// Nothing takes no time, and what has different times is easier to tell apart.
	time.Sleep(time.Millisecond) //nolint:forbidigo // It is virtual.
	synctest.Wait()
	return true
}

// effect does what happens when i is released.
func (w *World) effect(i *item, f Fault) bool {
	before := i.Pending
	var outcome string
	if i.stream != nil {
		w.mu.Lock()
		ended := i.stream.err != nil || i.stream.ctx.Err() != nil
		w.mu.Unlock()
		if ended {
			return false
		}
		outcome = w.releaseEvent(i.stream, f)
	} else {
		w.mu.Lock()
		ok := w.items.remove(i)
		w.mu.Unlock()
		if !ok {
			return false
		}
		if i.Kind == Request || i.Kind == Call {
			outcome = w.releaseRequest(i, f)
		} else {
			w.releaseResponse(i, f)
		}
	}
	w.released(before, f, outcome)
	return true
}

func (w *World) releaseEvent(s *stream, f Fault) (outcome string) {
	switch f.Kind {
	case Break:
		s.fail("")
	case Expire:
		s.fail(expired)
	case Burst:
		for n := 0; n == 0 || n < f.Events && s.watch.Pending() > 0; n++ {
			outcome += summary(s.deliver()) + " "
		}
	default:
		outcome = summary(s.deliver())
	}
	return outcome
}

// refusal is the response to a Request or Call that a fault refuses, false if it refuses none.
func refusal(p Pending, f FaultKind) (apiserver.Response, bool) {
	const why = "refused by the simulation"
	switch f {
	case TooManyRequests:
		return apiserver.TooManyRequests(1), true
	case InternalError:
		return apiserver.InternalError(why), true
	case Unavailable:
		return apiserver.ServiceUnavailable(), true
	case Expire:
		return apiserver.Expired(why), true
	case Forbidden:
		return apiserver.Forbidden(p.Group, p.Resource, p.Name, why), true
	case Conflict:
		return apiserver.Conflict(p.Group, p.Resource, p.Name, why), true
	default:
		return apiserver.Response{}, false
	}
}

func (w *World) releaseRequest(i *item, f Fault) string {
	x := i.exchange
	if r, ok := refusal(i.Pending, f.Kind); ok {
		x.respond(r)
		return ""
	}
	switch f.Kind {
	case Disconnect:
		x.fail(errDisconnected)
		return ""
	case Panic:
		x.panic()
		return ""
	case Hang:
		x.failure = errDisconnected
		w.again(i, i.Kind+1, hangs)
		return ""
	case Delay:
		w.again(i, i.Kind, f.Duration)
		return ""
	default:
	}
	before := len(w.API.Journal())
	x.arrive(w)
	if w.options.Arrived != nil && i.Kind == Request {
		w.options.Arrived(i.Pending)
	}
	if after := len(w.API.Journal()); after > before {
		i.wrote = after
	}
	outcome := x.outcome()
	if f.Kind == Lose || f.Kind == Fail {
		w.mu.Lock()
		w.unhear(i)
		w.mu.Unlock()
	}
	switch {
	case i.Abandoned || f.Kind == Lose:
		x.drop()
		return outcome
	case f.Kind == Fail:
		r := apiserver.ServiceUnavailable()
		r.RetryAfter = "1"
		x.respond(r)
		return outcome
	}
	w.again(i, i.Kind+1, 0)
	return outcome
}

// outcome is the status code with which the API server or the hook responds, or why it does not.
func (x *exchange) outcome() string {
	if x.failure != nil {
		return x.failure.Error()
	}
	return strconv.Itoa(x.response.StatusCode)
}

func (w *World) releaseResponse(i *item, f Fault) {
	x := i.exchange
	switch {
	case f.Kind == Delay:
		w.again(i, i.Kind, f.Duration)
	case f.Kind == Hang:
		x.failure = errDisconnected
		w.again(i, i.Kind, hangs)
	case f.Kind == Lose:
		x.drop()
	case f.Kind == Panic:
		if x.watch != nil {
			x.watch.Close()
		}
		x.panic()
	case x.failure != nil:
		x.fail(x.failure)
	default:
		if x.watch != nil {
			w.open(i)
		}
		x.done <- outcome{response: x.response}
	}
}

// again makes an item pending again as what it is now, after a time.
func (w *World) again(i *item, kind Kind, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	detail := i.key
	if i.Kind != kind {
		i.Kind = kind
		i.identify(detail)
	}
	i.due = w.Now() + after
	w.items.insert(i)
}

// panic has the sender of a request panic.
func (x *exchange) panic() { x.done <- outcome{panics: true} }

// drop lets the sender of a request see a broken connection.
func (x *exchange) drop() {
	if x.watch != nil {
		x.watch.Close()
	}
	x.fail(errDisconnected)
}

// respond responds in place of the API server or the hook.
func (x *exchange) respond(r apiserver.Response) {
	header := http.Header{"Content-Type": {r.ContentType}}
	if r.RetryAfter != "" {
		header.Set("Retry-After", r.RetryAfter)
	}
	x.done <- outcome{response: httpResponse(x.http, r.Code, header, r.Body)} //nolint:bodyclose // The engine closes it.
}
