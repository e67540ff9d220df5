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
	"context"
	"errors"
	"fmt"
	v1 "math/rand" //nolint:depguard // It is the source of client-go's jitter.
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/manager"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

const (
	// ClusterUser is the user of an engine's requests to the cluster.
	ClusterUser = "system:serviceaccount:metacontroller:metacontroller"
	// LoopbackUser is the user of an engine's requests about controller objects and revisions.
	LoopbackUser = "system:apiserver"
	// userAgent is how an engine presents itself.
	userAgent = "metacontroller-apiserver/simulated"
	// gone is how long an engine may take to end after its requests have begun to fail.
	gone = 2 * time.Minute
)

// World is an API server and the engines that talk to it. Its methods are to be called from the goroutine that made it, in the
// bubble. Between two calls every goroutine of the engines has come to a stand.
type World struct {
	// API is the API server. What writes to it without [World.Do] is not in the trace.
	API *apiserver.Server

	options  Options
	started  time.Time
	timer    *time.Timer
	activity chan struct{}
	trace    []Entry
	calls    int
	// requests counts what has arrived at the API server and the hooks.
	requests int

	mu      sync.Mutex
	jitter  *rand.Rand
	engines []*engine
	items   items
	streams []*stream
	orders  uint64
	// unheard are the writes of [World.Unheard].
	unheard []int
	panics  []LogEntry
}

// engine is one start of an engine.
type engine struct {
	world  *World
	number int
	stop   context.CancelFunc
	ended  chan struct{}
	// dead says that it was killed: nothing of it arrives any more. It is guarded by the world's lock.
	dead bool
	// err is what Run returned, to be read after ended.
	err error
}

// New returns a world without engines. It is to be called in a bubble, and [World.Close] at its end. Worlds that exist at the same time
// in one process disturb what is random in each other.
func New(o Options) *World {
	silence()
	o = o.withDefaults()
	seedRandom(o.Seed)
	w := &World{
		API: apiserver.New(o.API), options: o, started: time.Now(),
		jitter: rand.New(rand.NewPCG(o.Seed, 2)),
		timer:  time.NewTimer(0), activity: make(chan struct{}, 1),
	}
	w.timer.Stop()
	return w
}

// Now returns the time since the world began.
func (w *World) Now() time.Duration { return time.Since(w.started) }

// Start starts an engine and returns its number, counted from 0. It panics if the settings are no valid ones.
func (w *World) Start() int {
	e := &engine{world: w, number: len(w.engines), ended: make(chan struct{})}
	w.mu.Lock()
	w.engines = append(w.engines, e)
	w.mu.Unlock()
	options := w.options.Engine
	options.HookTransport = hookTransport{e}
	options.Random = w.jitterOf
	ctx := klog.NewContext(context.Background(), logr.New(sink{engine: e})) //nolint:forbidigo // An engine ends by Stop, Kill or Close.
	ctx, e.stop = context.WithCancel(ctx)
	m, err := manager.New(ctx, manager.Config{
		Loopback: e.config("loopback", LoopbackUser), Cluster: e.config("cluster", ClusterUser), Options: options,
	})
	if err != nil {
		panic(err) //nolint:forbidigo // The caller's options are wrong.
	}
	w.Note(e.String(), "starts")
	go func() {
		defer close(e.ended)
		e.err = m.Run(ctx)
	}()
	synctest.Wait()
	return e.number
}

// Configure changes the settings of the engines that are started from now on.
func (w *World) Configure(change func(*reconciler.Options)) { change(&w.options.Engine) }

func (e *engine) config(host, user string) *rest.Config {
	return &rest.Config{
		Host: "http://" + host, Transport: apiTransport{engine: e, user: user, host: host}, UserAgent: userAgent, QPS: -1,
		WarningHandlerWithContext: rest.NoWarnings{},
	}
}

// String names the engine in the trace.
func (e *engine) String() string { return fmt.Sprintf("engine %d", e.number) }

func (w *World) jitterOf() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jitter.Float64()
}

// Kill ends an engine as a crash does: what it has sent and what has not arrived never arrives, and it learns nothing any more.
func (w *World) Kill(number int) {
	e := w.engines[number]
	w.Note(e.String(), "is killed")
	w.kill(e, func(Pending) bool { return false })
	synctest.Wait()
}

// KillLate ends an engine as a crash does whose last writes are on their way: they stay pending, abandoned, and arrive when they are released.
func (w *World) KillLate(number int) {
	e := w.engines[number]
	w.Note(e.String(), "is killed while writes of it are under way")
	w.kill(e, Pending.Writes)
	synctest.Wait()
}

// Writes reports whether it is a request that would write something.
func (p Pending) Writes() bool {
	return p.Kind == Request && slices.Contains([]string{"create", "update", "patch", "apply", "delete"}, p.Verb)
}

// kill ends an engine, of which some requests are left.
func (w *World) kill(e *engine, stays func(Pending) bool) {
	w.mu.Lock()
	e.dead = true
	var left items
	for _, i := range w.items {
		if i.Engine != e.number {
			left = append(left, i)
			continue
		}
		if i.exchange != nil {
			i.exchange.fail(errDisconnected)
			if stays(i.Pending) {
				i.Abandoned = true
				left = append(left, i)
			}
		}
	}
	w.items = left
	for _, s := range w.streams {
		if s.engine == e {
			s.end(errDisconnected)
		}
	}
	w.mu.Unlock()
	e.stop()
}

// Stop ends an engine as a rollout does: it may finish what it has begun, without faults, as if nothing else happened meanwhile. The
// error says that it did not end in time.
func (w *World) Stop(number int) error {
	e := w.engines[number]
	w.Note(e.String(), "is stopped")
	e.stop()
	synctest.Wait()
	for limit := w.Now() + gone; !w.Ended(number); {
		if p, ok := w.firstOf(number); ok {
			w.Release(p, Fault{})
		} else if w.Now() >= limit {
			return fmt.Errorf("engine %d did not end within %s", number, gone)
		} else {
			w.idle(10*time.Millisecond, false)
		}
	}
	w.mu.Lock()
	e.dead = true
	w.mu.Unlock()
	return e.err
}

// Ended reports whether an engine has ended.
func (w *World) Ended(number int) bool {
	select {
	case <-w.engines[number].ended:
		return true
	default:
		return false
	}
}

// Close kills the engines that run and waits until everything of them has ended. The error has the panics from which engines have
// recovered, and the engines that did not end. What else is left in the bubble makes synctest fail.
func (w *World) Close() error {
	for _, e := range w.engines {
		w.kill(e, func(Pending) bool { return false })
	}
	synctest.Wait()
	var errs []error
	limit := time.After(gone)
	for _, e := range w.engines {
		select {
		case <-e.ended:
		case <-limit:
			errs = append(errs, fmt.Errorf("engine %d has not ended %s after it was killed", e.number, gone))
		}
	}
	synctest.Wait()
	for _, p := range w.Panics() {
		errs = append(errs, fmt.Errorf("engine %d panicked at %s: %s", p.Engine, p.At, p.Text))
	}
	return errors.Join(errs...)
}

// Do is a request of a user, which arrives at once and does not fail for another reason than the API server's.
func (w *World) Do(user string, r apiserver.Request) apiserver.Response {
	r.User = user
	response := w.API.Do(r)
	var p Pending
	describe(&p, r.Method, r.Path, r.Query, r.ContentType)
	w.Note(user, fmt.Sprintf("%s → %d", p.String()[len("request "):], response.Code))
	return response
}

// HookCalls returns how many calls have arrived at hooks.
func (w *World) HookCalls() int { return w.calls }

// Requests returns how many requests and hook calls have arrived.
func (w *World) Requests() int { return w.requests }

// Options configure a world.
type Options struct {
	// Seed decides the jitter of the engines, and what else is random in them.
	Seed uint64
	// API are the options of the API server. Its clock is that of the bubble.
	API apiserver.Options
	// Engine are the settings of every engine. HookTransport and Random are those of the world.
	Engine reconciler.Options
	// Hook responds to the calls of all hooks. It is called on the goroutine that made the world, when a call arrives. Required once an
	// engine calls a hook.
	Hook func(HookCall) HookResponse
	// Arrived is called with each request of an engine that has arrived at the API server. Nil: nobody is.
	Arrived func(Pending)
	// Collect does one write of a controller of the cluster that the API server does not have, as [apiserver.Server.Collect] does, and returns
	// false if it has nothing to do. It is called by [World.Settle]. Nil: there is none.
	Collect func() bool
	// Trace keeps the entries that [World.Trace] returns.
	Trace bool
	// Endless reports whether so many requests and hook calls of one [World.Settle] are a loop without end. Nil: more than 20,000 are.
	Endless func(requests int) bool
}

func (o Options) withDefaults() Options {
	if o.API.Now == nil {
		o.API.Now = time.Now
	}
	if o.Endless == nil {
		o.Endless = func(requests int) bool { return requests > 20000 }
	}
	return o
}

// HookCall is a call of a hook that arrived.
type HookCall struct {
	// ID is the number of the call, as [Pending.ID] says.
	ID uint64
	// Engine is the number of the engine that calls.
	Engine int
	// Controller is the path of the URL without its last segment and slashes at its ends, which by convention is kind/name, as in
	// composite/c1. Hook is the last segment: sync, finalize or customize.
	Controller, Hook string
	// Inline says that the hook is inline: it has returned Body or Err, and what the world's hook responds does not matter.
	Inline bool
	Body   []byte
	Err    error
	// Request is the body. It must not be modified.
	Request []byte
}

// HookResponse is what a hook responds.
type HookResponse struct {
	// Code is the HTTP status. Default 200.
	Code int
	// Header has the headers of the response. The default of Content-Type is application/json.
	Header http.Header
	// Body is the body.
	Body []byte
	// Err, if not nil, is a failure of the connection in place of a response.
	Err error
}

// Repeatable reports whether the runtime is that of hack/repeatable-runtime, where each bubble has the same random numbers.
func Repeatable(t *testing.T) bool {
	t.Helper()
	var numbers [2]uint64
	for i := range numbers {
		synctest.Test(t, func(*testing.T) { numbers[i] = rand.Uint64() })
	}
	return numbers[0] == numbers[1]
}

// seedRandom makes what is random outside of our code depend on the seed. The jitter that client-go takes from math/rand does in programs
// with "//go:debug randseednop=0". With the runtime of hack/repeatable-runtime, where each bubble has the same numbers for all, the
// seed says how many of them are left out.
func seedRandom(seed uint64) {
	v1.Seed(int64(seed)) //nolint:staticcheck // Only Seed reaches the source that these libraries use.
	for range seed % 1021 {
		rand.Uint32()
	}
}
