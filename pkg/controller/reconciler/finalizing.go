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
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/discovery"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/related"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// finalizeLimit is how long a finalize hook may take, after the last child that went, before people are told.
	finalizeLimit = time.Minute
	// finalizeInterval is the least time between two looks at this.
	finalizeInterval = 2 * time.Second
	// finalizeFailing is how long syncs may fail before people are told: some failures are over with the next one.
	finalizeFailing = time.Second
)

// finalization is about a parent that stays until the finalize hook returns "finalized": true.
type finalization struct {
	// since is when the first sync began that was to call the hook, or later, when a child had gone; zero if the parent is not being finalized.
	since time.Time
	// left is the least number of children that were observed.
	left int
	// reported says that people were told that it takes long.
	reported bool
}

// finalizes notes a sync of a parent that is being finalized, and reports whether it is the first one.
func (p *parents) finalizes(r *record, now time.Time) (first bool) {
	p.change(r, func(r *record) {
		if first = r.since.IsZero(); first {
			r.finalization = finalization{since: now, left: math.MaxInt}
		}
	})
	return first
}

// leaves notes how many children a parent has that may be being finalized. Time in which they become fewer is not lost: a hook may delete
// thousands of them one by one. Those that are made again do not count a second time.
func (p *parents) leaves(r *record, n int, now time.Time) {
	p.change(r, func(r *record) {
		if !r.since.IsZero() && n < r.left {
			r.finalization = finalization{since: now, left: n}
		}
	})
}

func (p *parents) finalized(r *record) {
	p.change(r, func(r *record) { r.finalization = finalization{} })
}

// finalizing returns the parents that are being finalized.
func (p *parents) finalizing() map[*record]finalization {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sums.finalizing == 0 {
		return nil
	}
	found := make(map[*record]finalization, p.sums.finalizing)
	for _, r := range p.records {
		if !r.since.IsZero() {
			found[r] = r.finalization
		}
	}
	return found
}

// restart lets the time of finalizations begin anew: nobody called the hook meanwhile. It returns the parents, which are noted again when the hook
// is called.
func (p *parents) restart() (keys []parent.Key) {
	for r := range p.finalizing() {
		keys = append(keys, r.key)
		p.finalized(r)
	}
	return keys
}

// lasts returns for how long a parent has been finalized, false if it is not.
func (p *parents) lasts(key parent.Key, now time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.records[key]; ok && !r.since.IsZero() {
		return now.Sub(r.since), true
	}
	return 0, false
}

// late returns how many parents have been finalized for longer than the limit, and that for which it has taken longest.
func (p *parents) late(now time.Time) (n int, first parent.Key) {
	var since time.Time
	for r, each := range p.finalizing() {
		if now.Sub(each.since) < finalizeLimit {
			continue
		}
		if order := each.since.Compare(since); n == 0 || order < 0 || order == 0 && r.key.String() < first.String() {
			first, since = r.key, each.since
		}
		n++
	}
	return n, first
}

// report returns those of them that it did not return before.
func (p *parents) report(now time.Time) (keys []parent.Key) {
	for r, each := range p.finalizing() {
		if !each.reported && now.Sub(each.since) >= finalizeLimit {
			p.change(r, func(r *record) { r.reported = true })
			keys = append(keys, r.key)
		}
	}
	return keys
}

// next returns when the next of them will be late that was not reported, false if there is none.
func (p *parents) next() (due time.Time, ok bool) {
	for _, each := range p.finalizing() {
		if late := each.since.Add(finalizeLimit); !each.reported && (!ok || late.Before(due)) {
			due, ok = late, true
		}
	}
	return due, ok
}

// awaitsFinalizing reports whether the controller's finalizer is on the parent until the finalize hook returns "finalized": true. The hook is
// called for others too: a parent that was being deleted before the controller came never gets the finalizer.
func (s *Sync) awaitsFinalizing() bool { return s.finalizing() && s.controller.finalizer.On(s.Parent) }

// finalizes notes a sync of a parent that is being finalized.
func (c *Controller) finalizes(r *record) {
	if c.parents.finalizes(r, time.Now()) {
		c.began.raise()
	}
}

// watchFinalizing reports, once for each, parents for which the finalize hook takes long.
func (c *Controller) watchFinalizing(ctx context.Context) {
	if c.hooks.Finalize == nil {
		return
	}
	var looked time.Time
	for {
		var late <-chan time.Time
		if due, ok := c.parents.next(); ok {
			late = time.After(max(time.Until(looked.Add(finalizeInterval)), time.Until(due)))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.began:
			continue
		case <-late:
		}
		looked = time.Now()
		c.active() // The time alone made it late, during a pause as well.
		if c.paused.Load() || c.shared.Access.Held() {
			continue // Nobody calls the hook.
		}
		_ = recovery.Call(ctx, "looking for parents that wait for the finalize hook", func() error { // It is logged.
			for _, key := range c.parents.report(time.Now()) {
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
	c.recorder.Warning(reference(o), nil, events.ReasonFinalizeWaits, fmt.Sprintf(
		"The finalize hook of %s has not returned \"finalized\": true for more than a minute, and this object stays until it does. See the log "+
			"of the hook, or what an inline one has in finalized%s", c.config.Definition.Meta.Name, c.letGo(key, o)))
}

// letGo is a sentence, which follows another one, about how to have a parent not finalized; empty if the finalizer is not on it.
func (c *Controller) letGo(key parent.Key, o *object.Object) string {
	at := slices.Index(o.Finalizers(), c.finalizer.Name)
	if at < 0 {
		return ""
	}
	return fmt.Sprintf(". To let the object go without, take the finalizer off metadata.finalizers: kubectl patch %s --type=json -p '["+
		`{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%[2]d"}]'`, argumentsOf(key), at,
		c.finalizer.Name)
}

// wayOut is a sentence, which follows the error of a sync, about how to finalize a parent without what is gone; empty for other errors, which may
// pass.
func (c *Controller) wayOut(key parent.Key, o *object.Object, err error) string {
	switch _, waits := c.parents.lasts(key, time.Now()); {
	case !waits:
		return ""
	case some(err, func(each error) bool { return apierrors.HasStatusCause(each, corev1.NamespaceTerminatingCause) }):
		return ". Nothing can be created in a namespace that is being deleted: change the finalize hook so that it is done without" + c.letGo(key, o)
	case some(err, func(each error) bool {
		switch each.(type) { //nolint:errorlint // some unwraps.
		case *unservedError, *discovery.NotFoundError:
			return true
		}
		return false
	}):
		return c.letGo(key, o)
	}
	return ""
}

// stuck returns how many parents are not finalized for long, or since their syncs fail, and what is known of the one for which that has taken
// longest, those that fail first.
func (c *Controller) stuck(now time.Time) (n int, at string) {
	n, key := c.parents.late(now)
	failed, _ := c.queue.LongestFailing(func(f queue.Failed) bool {
		lasts, waits := c.parents.lasts(f.Key, now)
		if waits && lasts >= finalizeFailing && lasts < finalizeLimit {
			n++
		}
		return !waits || lasts < finalizeFailing
	})
	if failed.Err != nil {
		key = failed.Key
		at = ", with the error " + events.Shorten(message(failed.Err), maxMessage)
	}
	if n == 0 {
		return 0, ""
	}
	at = key.String() + at
	if o, ok := c.byResource[key.Resource()].informer.Get(key.Namespace, key.Name); ok {
		at += c.letGo(key, o)
	}
	return n, at
}

// relatedGone reports that a parent is finalized without related objects of kinds that the cluster does not serve.
func (c *Controller) relatedGone(key parent.Key, o *object.Object, gone []related.Type) {
	kinds, entries := make([]string, len(gone)), "an empty entry"
	for i, t := range gone {
		kinds[i] = fmt.Sprintf("%s in %s", t.Resource.Resource, t.Resource.GroupVersion())
		if t.Kind == "" {
			entries = "no entry, for their kind is not known any more,"
		}
	}
	c.recorder.Warning(reference(o), nil, events.ReasonRelatedNotServed, fmt.Sprintf(
		"The cluster does not serve %s, which the customize hook names. The finalize hook is shown %s in \"related\" for that. If it fails without, "+
			"install the kind again, or change the hooks%s", strings.Join(kinds, ", "), entries, c.letGo(key, o)))
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
func deletedAll(result *result) bool {
	done := 0
	for i := range result.outcomes {
		if o := &result.outcomes[i]; o.Action == plan.Delete && o.Done {
			done++
		}
	}
	left := slices.ContainsFunc(result.plan.Steps, func(step plan.Step) bool { return step.HoldsDeletion() })
	return !left && done == len(result.plan.Deletions())
}
