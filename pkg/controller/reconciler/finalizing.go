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

package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/childcontrol"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/eventrecorder"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/workqueue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// finalizers is where those of an object are.
const finalizers = "metadata.finalizers"

const (
	// finalizeLimit is how long a finalize hook may take before people are told.
	finalizeLimit = time.Minute
	// finalizeInterval is the least time between two looks at this.
	finalizeInterval = 2 * time.Second
)

// finalizing are the parents that stay because the finalize hook was called for them and has not returned "finalized": true. It is safe for
// concurrent use; the zero value is ready.
type finalizing struct {
	mu    sync.Mutex
	since map[parent.Key]finalization
	// began has an element after the first call for a parent. Nil: nobody waits for it.
	began chan struct{}
}

type finalization struct {
	since    time.Time
	reported bool
}

func (f *finalizing) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.since)
}

// called notes a response of the finalize hook.
func (f *finalizing) called(key parent.Key, finalized bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.since[key]
	switch {
	case finalized:
		delete(f.since, key)
	case !known:
		if f.since == nil {
			f.since = map[parent.Key]finalization{}
		}
		f.since[key] = finalization{since: now}
		select {
		case f.began <- struct{}{}:
		default:
		}
	}
}

func (f *finalizing) forget(key parent.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since, key)
}

// restart lets the time begin anew: nobody called the hook meanwhile. It returns the parents, which are noted again when the hook is called.
func (f *finalizing) restart() []parent.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Collect(maps.Keys(f.since))
	f.since = nil
	return keys
}

// late returns how many parents have been finalized for longer than the limit.
func (f *finalizing) late(now time.Time) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, each := range f.since {
		if now.Sub(each.since) >= finalizeLimit {
			n++
		}
	}
	return n
}

// report returns those of them that it did not return before.
func (f *finalizing) report(now time.Time) (keys []parent.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, each := range f.since {
		if !each.reported && now.Sub(each.since) >= finalizeLimit {
			each.reported = true
			f.since[key] = each
			keys = append(keys, key)
		}
	}
	return keys
}

// next returns when the next of them will be late that was not reported, false if there is none.
func (f *finalizing) next() (due time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, each := range f.since {
		if late := each.since.Add(finalizeLimit); !each.reported && (!ok || late.Before(due)) {
			due, ok = late, true
		}
	}
	return due, ok
}

// awaitsFinalizing reports whether the controller's finalizer is on the parent until the finalize hook returns "finalized": true. The hook is
// called for others too: a parent that was being deleted before the controller came never gets the finalizer.
func (s *Sync) awaitsFinalizing() bool { return s.finalizing() && s.controller.finalizer.On(s.Parent) }

// watchFinalizing reports, once for each, parents for which the finalize hook takes long.
func (c *Controller) watchFinalizing(ctx context.Context) {
	if c.hooks.Finalize == nil {
		return
	}
	var looked time.Time
	for {
		var late <-chan time.Time
		if due, ok := c.finalizing.next(); ok {
			late = time.After(max(time.Until(looked.Add(finalizeInterval)), time.Until(due)))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.finalizing.began:
			continue
		case <-late:
		}
		looked = time.Now()
		c.active() // The time alone made it late, during a pause as well.
		if c.paused.Load() || c.shared.Access.Held() {
			continue // Nobody calls the hook.
		}
		_ = recovery.Call(ctx, "looking for parents that wait for the finalize hook", func() error { // It is logged.
			for _, key := range c.finalizing.report(time.Now()) {
				c.reportFinalizing(key)
			}
			return nil
		})
	}
}

func (c *Controller) reportFinalizing(key parent.Key) {
	o, ok := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name)
	if !ok {
		return
	}
	c.recorder.Warning(childcontrol.Reference(o), nil, eventrecorder.ReasonFinalizeWaits, fmt.Sprintf(
		"The finalize hook of %s has not returned \"finalized\": true for more than a minute, and this object stays until it does. See the log "+
			"of the hook. To let the object go without, remove %s from metadata.finalizers", c.config.Definition.Meta.Name, c.finalizer.Name))
}

// RemoveFinalizer takes the controller's finalizer off the parent.
func (s *Sync) RemoveFinalizer(ctx context.Context) error {
	c := s.controller
	if s.preview != nil {
		return s.preview.removeFinalizer(s)
	}
	// Its event is not that of another client, which takes the finalizer off.
	written, mistaken, err := c.ownWrites.Write(s.Source.informer, s.stored, func() (*object.Object, error) {
		return s.insist(ctx, parent.Changes{}, func(o *object.Object) (*object.Object, error) {
			written, changed, err := c.finalizer.Remove(ctx, c.shared.Cluster.Client, s.Target, o)
			if !changed {
				return nil, err
			}
			return written, err
		})
	})
	if mistaken {
		c.pool.Enqueue(s.Key, workqueue.Live)
	}
	if err != nil {
		return InContext(fmt.Sprintf("can't remove finalizer for %s", s.Parent), err)
	}
	if written != nil {
		s.Wrote(written, finalizers)
	}
	return nil
}

// FinalizerName returns the name of the controller's finalizer.
func (s *Sync) FinalizerName() string { return s.controller.finalizer.Name }

// OptsOut reports whether the finalizer is to come off a parent that is not deleted, but not selected any more. The controller forgets it
// then, and no garbage collector looks after children whose owner stays: they are dealt with first (docs/reference/compatibility.md#d15).
func (s *Sync) OptsOut() bool {
	return s.Decision.Finalized && s.finalizing() && !s.Parent.Deleting()
}

// PutOffFinalizer keeps the finalizer on the parent if ReconcileChildren left children that the hook does not want, so that the next sync
// deletes them, or it failed. The error says that there may be children that cannot be observed.
func (s *Sync) PutOffFinalizer() error {
	s.Decision.Finalized = s.Decision.Finalized && s.deletedChildren
	unobserved := s.controller.unobserved()
	if !s.Decision.Finalized || len(unobserved) == 0 {
		return nil
	}
	// The controller is built again when the cluster serves them, and syncs all parents.
	s.Decision.Finalized = false
	return InContext(fmt.Sprintf("can't remove finalizer for %s", s.Parent), &unservedError{fmt.Sprintf("the finalizer stays on, because this object "+
		"may have children that the hook is not shown: the cluster does not serve %s; install that, or take it out of the spec",
		strings.Join(unobserved, ", "))})
}

// unobserved returns the declared kinds of children that the cluster does not serve, in no version that is declared.
func (c *Controller) unobserved() (kinds []string) {
	for _, missing := range unserved(c.config) {
		if !slices.ContainsFunc(c.config.Children, func(rule children.Rule) bool { return rule.Resource.GroupResource() == missing.GroupResource() }) {
			kinds = append(kinds, fmt.Sprintf("%s in %s", missing.Resource, missing.GroupVersion()))
		}
	}
	return kinds
}

// finalizedEarly reports whether the hook had the finalizer taken off a parent on which the next sync puts it again
// (docs/reference/contract.md#s6).
func (s *Sync) finalizedEarly() bool {
	c := s.controller
	return s.Decision.Finalized && s.Parent != nil && c.hooks.Finalize != nil && !s.finalizing() && !c.finalizer.On(s.Parent)
}

// deletedAll reports whether all children were deleted that were to be, and none of them is to be created again.
func deletedAll(result *childcontrol.Result) bool {
	done := 0
	for i := range result.Outcomes {
		if o := &result.Outcomes[i]; o.Action == plan.Delete && o.Done {
			done++
		}
	}
	left := slices.ContainsFunc(result.Plan.Steps, func(step plan.Step) bool { return step.HoldsDeletion() })
	return !left && done == len(result.Plan.Deletions())
}
