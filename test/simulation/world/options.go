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
	v1 "math/rand" //nolint:depguard // It is the source of client-go's jitter.
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
)

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
	// Quiet is how long nothing may become pending until the world is at rest, see [World.Settle]. Default 90 s, which is longer than
	// every period of an engine but those of resyncs.
	Quiet time.Duration
	// Requests bounds the requests and hook calls of one [World.Settle]: more are a loop without end. Default 20,000.
	Requests int
}

func (o Options) withDefaults() Options {
	if o.API.Now == nil {
		o.API.Now = time.Now
	}
	if o.Quiet == 0 {
		o.Quiet = 90 * time.Second
	}
	if o.Requests == 0 {
		o.Requests = 20000
	}
	return o
}

// HookCall is a call of a hook that arrived.
type HookCall struct {
	// ID is the number of the call, as [Pending.ID] says.
	ID uint64
	// At is the time since the world began.
	At time.Duration
	// Engine is the number of the engine that calls.
	Engine int
	// Controller is the path of the URL without its last segment and slashes at its ends, which by convention is kind/name, as in
	// composite/c1. Hook is the last segment: sync, finalize or customize.
	Controller, Hook string
	// Header has the headers of the request.
	Header http.Header
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
	// Latency is how long the response takes at least.
	Latency time.Duration
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
