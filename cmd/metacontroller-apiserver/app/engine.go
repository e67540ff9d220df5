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
	"github.com/metacontroller/metacontroller-apiserver/pkg/leaderelection"
)

// engineGrace is how long the engine may take to stop before the API server begins to stop. It is longer than the grace of the
// syncs, so that these end by themselves or canceled, and their last writes reach an API server that still serves.
const engineGrace = worker.DefaultGrace + time.Second

// Engine runs controllers.
type Engine interface {
	// Run runs the controllers, from when this process is elected until ctx ends, and returns when everything that it started has ended.
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
	// Elected is closed when the engine may call hooks and write. Until then it fills its caches. Nil: it may at once.
	Elected <-chan struct{}
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

// engineRunner runs engines, one after the other, from when the API server serves until before it stops: each while this process is elected.
// One that waits to be elected fills its caches meanwhile.
type engineRunner struct {
	create NewEngine
	config EngineConfig
	// elector elects this process. Nil: it is always elected.
	elector elector
	// leads is called when this process is elected.
	leads func(ctx context.Context)
	// fail ends the process with an error. It is called when an engine ends without being stopped, or does not end when it is.
	fail func(error)

	// ctx is the context of the engines; stop cancels it.
	ctx  context.Context
	stop context.CancelFunc
	// mu guards against a start after the stop.
	mu      sync.Mutex
	running sync.WaitGroup
}

// elector elects processes, as *leaderelection.Elector does.
type elector interface {
	Stand(ctx context.Context, lead func(term context.Context)) error
	Fence() *leaderelection.Fence
}

// add has the API server start and stop the runner. The signal to the process cancels ctx; the engine is stopped by the pre-shutdown hook
// instead, which waits for it.
func (h *engineRunner) add(ctx context.Context, s *genericapiserver.GenericAPIServer) error {
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
	if h.elector != nil {
		h.config.Loopback.Wrap(h.elector.Fence().Wrap)
		h.config.Cluster = rest.CopyConfig(h.config.Cluster)
		h.config.Cluster.Wrap(h.elector.Fence().Wrap)
	}
	h.running.Go(func() {
		for h.ctx.Err() == nil && h.runOne() {
			klog.FromContext(h.ctx).Info("Controllers have stopped here, and run again when this server is elected")
		}
	})
	return nil
}

// runOne runs an engine until it is not elected any more. It returns false when the process is to end.
func (h *engineRunner) runOne() bool {
	elected := make(chan struct{})
	config := h.config
	config.Elected = elected
	engine, err := h.create(h.ctx, config)
	if err != nil {
		h.fail(fmt.Errorf("preparing to run controllers: %w", err))
		return false
	}
	running, stop := context.WithCancel(h.ctx)
	standing, withdraw := context.WithCancel(h.ctx)
	defer withdraw()
	ended := make(chan struct{})
	var failed error
	outlived := false
	go func() {
		defer close(ended)
		defer withdraw()
		err := engine.Run(running)
		if running.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		failed = err
	}()
	h.stand(standing, func(term context.Context) {
		close(elected)
		if asked, ok := engine.(inspection.Engine); ok && h.config.Inspection != nil {
			defer h.config.Inspection.Connect(asked)()
		}
		if h.leads != nil {
			h.leads(term)
		}
		<-term.Done()
		stop()
		outlived = !h.await(term, ended)
	})
	stop()
	<-ended
	if failed != nil {
		h.fail(fmt.Errorf("running controllers: %w", failed))
	}
	return failed == nil && !outlived
}

// stand calls lead when this process is elected, if it is before ctx ends.
func (h *engineRunner) stand(ctx context.Context, lead func(term context.Context)) {
	if h.elector == nil {
		lead(ctx)
		return
	}
	if err := h.elector.Stand(ctx, lead); err != nil {
		klog.FromContext(ctx).Error(err, "The next server cannot run controllers at once")
	}
}

// await waits for an engine whose term is over. One that does not end after the Lease was lost could do what the next one does: it is ended
// with the process, and false is returned.
func (h *engineRunner) await(term context.Context, ended <-chan struct{}) bool {
	timer := time.NewTimer(engineGrace)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	}
	lost := errors.Is(context.Cause(term), leaderelection.ErrLost)
	if lost {
		h.fail(fmt.Errorf("controllers did not stop within %s after %w", engineGrace, leaderelection.ErrLost))
	}
	<-ended
	return !lost
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
