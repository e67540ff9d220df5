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
	"slices"
	"sync/atomic"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// instance finalizes all objects of its resources.
type instance struct {
	world     *world
	started   chan struct{}
	activity  chan struct{}
	reads     atomic.Int64
	finalizes []string
	missing   []string
	redefined int
	problem   error
	counters  v1alpha1.ControllerCounters
	state     reconciler.State
	hooks     []v1alpha1.HookStatus
	errors    []v1alpha1.ParentError
}

// Run implements Instance.
func (i *instance) Run(ctx context.Context) {
	w := i.world
	w.mu.Lock()
	if len(w.running) > 0 {
		w.t.Errorf("an instance runs while another one finalizes %v", w.running)
	}
	w.running = i.finalizes
	for _, r := range i.finalizes {
		for name := range w.objects[r] {
			w.objects[r][name] = true
		}
	}
	panics, ends := w.panics["run"], w.panics["end"]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = nil
	}()
	close(i.started)
	if panics {
		panic("run")
	}
	if !ends {
		<-ctx.Done()
	}
}

// Started implements Instance.
func (i *instance) Started() <-chan struct{} { return i.started }

// Activity implements Instance.
func (i *instance) Activity() <-chan struct{} { return i.activity }

// Health implements Instance.
func (i *instance) Health() reconciler.State {
	i.reads.Add(1)
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.world.panics["problem"] {
		panic("problem")
	}
	state := i.state
	select {
	case <-i.started:
		state.Started = true
	default:
	}
	state.Missing, state.Problem = i.missing, i.problem
	return state
}

// Redefine implements Instance.
func (i *instance) Redefine(_ context.Context, d reconciler.Definition) error {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.redefined++
	i.state.Paused = d.Paused
	return nil
}

// Counters implements Instance.
func (i *instance) Counters() *v1alpha1.ControllerCounters {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.world.panics["counters"] {
		panic("counters")
	}
	return i.counters.DeepCopy()
}

// Hooks implements Instance.
func (i *instance) Hooks() []v1alpha1.HookStatus {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	return slices.Clone(i.hooks)
}

// LastErrors implements Instance.
func (i *instance) LastErrors() []v1alpha1.ParentError {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	return slices.Clone(i.errors)
}

// is changes how the running instance is doing.
func (w *world) is(change func(*reconciler.State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.instance.state)
	w.active()
}

func (w *world) counted(change func(*v1alpha1.ControllerCounters)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.instance.counters)
	w.active()
}

// active says that something happened, with the lock held.
func (w *world) active() {
	select {
	case w.instance.activity <- struct{}{}:
	default:
	}
}
