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
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"
)

// retryPace is how many requests and hook calls a minute a few parents make whose errors last, and which are resynced with the others: each
// is retried within five minutes, so that the pauses between resyncs are not quiet.
const retryPace = 50

// quiet is how long nothing may become pending until the world is at rest, see [World.Settle]: longer than every period of an engine but those of
// resyncs.
const quiet = 90 * time.Second

// ErrRestless says that a world does not come to rest.
var ErrRestless = errors.New("it does not come to rest")

// Advance lets a time pass, in which the engines run and nothing is released.
func (w *World) Advance(d time.Duration) {
	w.idle(d, false)
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
// 90 s, or until the limit if no more happens than retries of errors that last. The error, an [ErrRestless], says that this
// took longer, or is [Options.Endless].
func (w *World) Settle(limit time.Duration) error {
	end, requests := w.Now()+limit, w.requests
	for {
		collected := w.API.Collect() || w.options.Collect != nil && w.options.Collect()
		ready := w.ready()
		for _, i := range ready {
			w.release(i, Fault{})
		}
		if len(ready) > 0 || collected {
			if w.options.Endless(w.requests - requests) {
				return fmt.Errorf("%w: %d requests and hook calls in %s, the last ones:\n%s", ErrRestless, w.requests-requests, w.Now()-end+limit, w.last())
			}
			continue
		}
		if !w.Idle(quiet) {
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

// Kind says what is pending.
type Kind int

const (
	// Request is a request of an engine that has not arrived at the API server.
	Request Kind = iota
	// Response is the response to a request that the API server has served.
	Response
	// Event is the next event of a watch, or its end.
	Event
	// Call is a call that has not arrived at its hook.
	Call
	// CallResponse is the response of a hook.
	CallResponse
)

// String implements fmt.Stringer.
func (k Kind) String() string {
	return [...]string{"request", "response", "event", "hook call", "hook response"}[k]
}

// Pending is something that could happen next: [World.Release] lets it.
type Pending struct {
	// Kind says what it is.
	Kind Kind
	// Engine is the number of the engine that it comes from or goes to.
	Engine int
	// Abandoned says of a request that its sender does not wait for it any more, see [World.KillLate].
	Abandoned bool
	// Verb is that of RBAC, such as list and patch, apply for a server-side apply, and get for what is not a resource. Empty for hooks.
	Verb string
	// Group, Version, Resource, Subresource, Namespace and Name are parts of the path of a request. A path that names no resource is the
	// Name alone.
	Group, Version, Resource, Subresource, Namespace, Name string
	// Controller and Hook are those of [HookCall].
	Controller, Hook string
	// Inline says of a call that its hook is inline.
	Inline bool
	// DryRun says of a request that it changes nothing.
	DryRun bool
	// Events is how many events of a watch wait. None wait when it is to end.
	Events int

	item *item
}

// ID is the number of a request or a call, which it keeps until its response is delivered. It is the ID of the [HookCall].
func (p Pending) ID() uint64 { return p.item.order }

// Body is what was sent with a request or a call. It must not be modified.
func (p Pending) Body() []byte {
	x := p.item.exchange
	if p.Kind == Call || p.Kind == CallResponse {
		return x.call.Request
	}
	return x.request.Body
}

// String describes it in a line.
func (p Pending) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s ", p.Kind)
	if p.Kind == Call || p.Kind == CallResponse {
		fmt.Fprintf(&b, "%s of %s", p.Hook, p.Controller)
		return b.String()
	}
	b.WriteString(p.Verb)
	if p.Resource != "" {
		b.WriteByte(' ')
		b.WriteString(p.Resource)
		if p.Group != "" {
			b.WriteString("." + p.Group)
		}
		if p.Subresource != "" {
			b.WriteString("/" + p.Subresource)
		}
	}
	if p.Namespace != "" || p.Name != "" {
		b.WriteString(" " + strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	}
	if p.Abandoned {
		b.WriteString(" (abandoned)")
	}
	return b.String()
}

// item is what is pending. An exchange is one from its request to its response, a stream from its first event to its end.
type item struct {
	Pending

	// key identifies it whatever the order is in which goroutines ran.
	key string
	// order is that of the arrival in the world, which decides between equal keys.
	order uint64
	// due is when it can be released, from the start of the world.
	due time.Duration

	exchange *exchange
	stream   *stream
	// wrote is the number of writes in the journal of the API server once it had served the request, zero if it wrote nothing.
	wrote int
}

func (i *item) compare(j *item) int {
	return cmp.Or(strings.Compare(i.key, j.key), cmp.Compare(i.order, j.order))
}

// items are what is pending, in stable order.
type items []*item

func (s *items) insert(i *item) {
	at, _ := slices.BinarySearchFunc(*s, i, (*item).compare)
	*s = slices.Insert(*s, at, i)
}

// remove reports whether i was there.
func (s *items) remove(i *item) bool {
	at, found := slices.BinarySearchFunc(*s, i, (*item).compare)
	if found {
		*s = slices.Delete(*s, at, at+1)
	}
	return found
}

// identify sets the key of an item that waits for its next release.
func (i *item) identify(detail string) {
	i.key = strconv.Itoa(i.Engine) + "|" + strconv.Itoa(int(i.Kind)) + "|" + i.Resource + "." + i.Group + "|" + i.Controller + "|" + i.Hook +
		"|" + i.Verb + "|" + i.Namespace + "/" + i.Name + "/" + i.Subresource + "|" + i.Version + "|" + detail
}

// describe takes the identity of a request from its method and path.
func describe(p *Pending, method, path string, query url.Values, contentType string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		p.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		p.Group, p.Version, parts = parts[1], parts[2], parts[3:]
	default:
		p.Verb, p.Name = "get", path
		return
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		p.Namespace, parts = parts[1], parts[2:]
	}
	p.Resource = parts[0]
	if len(parts) > 1 {
		p.Name = parts[1]
	}
	if len(parts) > 2 {
		p.Subresource = parts[2]
	}
	p.Verb, p.DryRun = verb(method, p.Name != "", query, contentType), query.Get("dryRun") != ""
}

func verb(method string, named bool, query url.Values, contentType string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	case http.MethodPatch:
		if strings.HasPrefix(contentType, "application/apply-patch") {
			return "apply"
		}
		return "patch"
	}
	switch {
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		return "watch"
	case named:
		return "get"
	}
	return "list"
}
