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
	"sync"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/supervisor"
)

// identity names a controller object.
type identity struct {
	kind, name string
}

func identityOf(d supervisor.Definition) identity {
	return identity{kind: d.Kind(), name: d.Meta().Name}
}

// roster holds the running hosts. A host for an object that was deleted and made anew starts when the former one of that
// name has ended.
type roster struct {
	config supervisor.Config

	mu      sync.Mutex
	entries map[identity]*entry
	// ending are the hosts that were told to stop, by the object's identity; the channel is closed when they have.
	ending  map[identity]<-chan struct{}
	running sync.WaitGroup
}

type entry struct {
	host  *supervisor.Host
	stop  context.CancelFunc
	ended chan struct{}
}

func newRoster(c supervisor.Config) *roster {
	return &roster{config: c, entries: map[identity]*entry{}, ending: map[identity]<-chan struct{}{}}
}

// put starts a host for d, or tells the one that runs.
func (r *roster) put(ctx context.Context, d supervisor.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := identityOf(d)
	if e, ok := r.entries[id]; ok {
		e.host.Redefine(d)
		return
	}
	running, stop := context.WithCancel(ctx)
	e := &entry{host: supervisor.New(r.config, d), stop: stop, ended: make(chan struct{})}
	r.entries[id] = e
	former := r.ending[id]
	r.running.Go(func() {
		defer close(e.ended)
		defer stop()
		if former != nil {
			<-former
		}
		e.host.Run(running)
	})
}

// remove stops the host of an object that is gone.
func (r *roster) remove(d supervisor.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := identityOf(d)
	e, ok := r.entries[id]
	if !ok {
		return
	}
	delete(r.entries, id)
	r.ending[id] = e.ended
	e.stop()
	var ended <-chan struct{} = e.ended
	r.running.Go(func() {
		<-ended
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ending[id] == ended {
			delete(r.ending, id)
		}
	})
}

// wait returns when every host has ended. Their contexts must have been canceled.
func (r *roster) wait() { r.running.Wait() }
