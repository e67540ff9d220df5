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

package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/options"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/worker"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

// engineGrace is how long the engine may take to stop before the API server begins to stop. It is longer than the grace of the
// syncs, so that these end by themselves or canceled, and their last writes reach an API server that still serves.
const engineGrace = worker.DefaultGrace + time.Second

// Engine runs controllers.
type Engine interface {
	// Run runs the controllers until ctx ends, and returns when everything that it started has ended.
	Run(ctx context.Context) error
}

// EngineConfig configures an engine.
type EngineConfig struct {
	// Loopback is for requests to the API server of this process, about controller objects and their revisions. It has all
	// rights.
	Loopback *rest.Config
	// Cluster is for requests to the cluster, about all other objects.
	Cluster *rest.Config
	// Controllers are the settings.
	Controllers options.Controllers
	// Port is where this process serves the API; no hook can be there. 0: it is not known.
	Port int
	// TracerProvider gets the spans of the engine. Nil: there are none.
	TracerProvider trace.TracerProvider
	// Inspection lets the API server ask the engine while it runs. Nil: it does not ask.
	Inspection *inspection.Link
}

// NewEngine creates an engine. It is called when the API server serves.
type NewEngine func(ctx context.Context, c EngineConfig) (Engine, error)

// newEngine creates the engine of this program.
var newEngine NewEngine = runControllers //nolint:gochecknoglobals // The one place where the two halves meet.

// engineRunner starts an engine when the API server serves, and stops it before the API server stops.
type engineRunner struct {
	create NewEngine
	config EngineConfig
	// fail ends the process with an error. It is called when the engine ends without being stopped.
	fail func(error)

	// ctx is the context of the engine; stop cancels it.
	ctx  context.Context
	stop context.CancelFunc
	// mu guards against a start after the stop.
	mu      sync.Mutex
	running sync.WaitGroup
}

func addEngine(ctx context.Context, s *genericapiserver.GenericAPIServer, create NewEngine, c EngineConfig, fail func(error)) error {
	h := &engineRunner{create: create, config: c, fail: fail}
	// The signal to the process cancels ctx. The engine is stopped by the pre-shutdown hook instead, which waits for it.
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.AddPostStartHook("start-controllers", h.start); err != nil {
		return fmt.Errorf("adding the start of controllers: %w", err)
	}
	if err := s.AddPreShutdownHook("stop-controllers", h.shutdown); err != nil {
		return fmt.Errorf("adding the stop of controllers: %w", err)
	}
	return nil
}

func (h *engineRunner) start(hook genericapiserver.PostStartHookContext) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil
	}
	h.config.Loopback = unlimited(hook.LoopbackClientConfig)
	engine, err := h.create(h.ctx, h.config)
	if err != nil {
		h.fail(fmt.Errorf("preparing to run controllers: %w", err))
		return nil
	}
	cut := func() {}
	if asked, ok := engine.(inspection.Engine); ok && h.config.Inspection != nil {
		cut = h.config.Inspection.Connect(asked)
	}
	h.running.Go(func() {
		defer cut()
		err := engine.Run(h.ctx)
		if h.ctx.Err() != nil {
			err = nil
		} else if err == nil {
			err = errors.New("it ended by itself")
		}
		if err != nil {
			h.fail(fmt.Errorf("running controllers: %w", err))
		}
	})
	return nil
}

// shutdown stops the engine and waits for it, for engineGrace at most.
func (h *engineRunner) shutdown() error {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(engineGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		klog.FromContext(h.ctx).Error(nil, "Controllers did not stop in time; what they were doing is done again after the next start",
			"grace", engineGrace)
	}
	return nil
}

// named returns a copy of a client configuration with this program's user agent, and without compression of responses, as in
// kube-controller-manager: compressing what a controller reads takes the API server longer than sending it.
func named(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.DisableCompression = true
	c.UserAgent = apiserver.Name + "/" + version.Get().GitVersion
	return c
}

// unlimited is named without a client-side rate limit: both API servers have API Priority and Fairness.
func unlimited(c *rest.Config) *rest.Config {
	c = named(c)
	c.QPS = -1
	return c
}
