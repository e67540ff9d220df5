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

package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// identity names a controller object.
type identity struct {
	kind, name string
}

func identityOf(d reconciler.Definition) identity { return identity{kind: d.Kind, name: d.Meta.Name} }

// controllers runs a supervisor for each controller object that is put. It is safe for concurrent use.
type controllers struct {
	config supervisorConfig

	mu sync.Mutex
	// all are the controllers that have not ended.
	all     map[identity]*controller
	running sync.WaitGroup
	// closed says that nothing is put any more.
	closed bool
	// ended, if not nil, is called when the supervisor of an object has ended, and before another one begins.
	ended func(id identity, uid types.UID)
}

type controller struct {
	uid        types.UID
	supervisor *Supervisor
	stop       context.CancelCauseFunc
	stopped    bool
	ended      chan struct{}
}

func newControllers(c supervisorConfig) *controllers {
	return &controllers{config: c, all: map[identity]*controller{}}
}

// put runs a supervisor for d until ctx ends, or gives d to the one that runs. A supervisor of another object of that name
// ends first. After wait was called it does nothing.
func (c *controllers) put(ctx context.Context, d reconciler.Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	id := identityOf(d)
	former, ok := c.all[id]
	if ok && !former.stopped && former.uid == d.Meta.UID {
		former.supervisor.Redefine(d)
		return
	}
	if ok {
		former.end()
	}
	ctx, stop := context.WithCancelCause(ctx)
	started := &controller{uid: d.Meta.UID, supervisor: newSupervisor(c.config, d), stop: stop, ended: make(chan struct{})}
	c.all[id] = started
	c.running.Go(func() {
		defer c.drop(id, started)
		defer stop(nil)
		if ok {
			<-former.ended
		}
		_ = recovery.Call(ctx, "supervising a controller", func() error { // It logs a panic.
			started.supervisor.Run(ctx)
			return nil
		})
	})
}

// wait returns when no supervisor runs any more. The context of put has ended; informers may still call put.
func (c *controllers) wait() {
	c.mu.Lock()
	c.closed = true // Every put before has counted its supervisor.
	c.mu.Unlock()
	c.running.Wait()
}

// instance returns the instance that runs for the object with a UID, nil if none does.
func (c *controllers) instance(id identity, uid types.UID) Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if running, ok := c.all[id]; ok && !running.stopped && running.uid == uid {
		return running.supervisor.Instance()
	}
	return nil
}

// remove stops the supervisor of an object. The channel, nil if none runs, is closed when it has ended.
func (c *controllers) remove(id identity) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	stopped, ok := c.all[id]
	if !ok {
		return nil
	}
	stopped.end()
	return stopped.ended
}

// end is called with the lock held.
func (c *controller) end() {
	c.stopped = true
	c.stop(reconciler.ErrReplaced)
}

// drop is called when a controller has ended.
func (c *controllers) drop(id identity, ended *controller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[id] == ended {
		delete(c.all, id)
	}
	if c.ended != nil {
		c.ended(id, ended.uid)
	}
	close(ended.ended)
}

var _ inspection.Engine = &Manager{}

// errNotRunning says that there is nothing to ask.
var errNotRunning = errors.New("the controller does not run here at present; its condition Ready says why, and kubectl describe shows it")

// Controller implements inspection.Engine.
func (m *Manager) Controller(kind, name string, uid types.UID) (inspection.Controller, error) {
	if c, ok := m.controllers.instance(identity{kind: kind, name: name}, uid).(inspection.Controller); ok {
		return c, nil
	}
	return nil, errNotRunning
}

// Candidate implements inspection.Engine.
func (m *Manager) Candidate(ctx context.Context, object runtime.Object) (inspection.Controller, func(), error) {
	d, ok := definitionOf(object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no controller", object)
	}
	candidate, err := m.candidate(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	shut, err := candidate.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return candidate, shut, nil
}

// candidate builds a controller that does not run.
func (m *Manager) candidate(ctx context.Context, d reconciler.Definition) (*reconciler.Controller, error) {
	shared := *m.shared
	shared.Expectations, shared.History = nil, nil // It writes nothing, and must not be taken for the controller that runs.
	return builder{shared: &shared, resources: shared.Cluster.Discovery}.build(ctx, d)
}
