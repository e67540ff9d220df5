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
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

// report holds the status of one controller object, and publishes it when it changed (publish.go). It is safe for concurrent use.
type report struct {
	objects Objects
	// object is the definition that names the object.
	object reconciler.Definition
	// news has an element after something changed that is to be published, now or later.
	news chan struct{}
	// publishing is full while a status is being published.
	publishing chan struct{}
	// changes and rewordings bound how often conditions are published.
	changes, rewordings flowcontrol.RateLimiter

	mu     sync.Mutex
	status v1alpha1.ControllerStatus
	// settled is when a start is over for which nothing but a failure is published.
	settled time.Time
	// published is the status that was published last, at publishedAt.
	published   *v1alpha1.ControllerStatus
	publishedAt time.Time
	// overwritten says that the object shows another status, and differs is since when it does, or numbers differ from the published ones; zero: neither.
	overwritten bool
	differs     time.Time
	// pruned says that the API server did not keep what was published last.
	pruned bool
}

func newReport(o Objects, d reconciler.Definition) *report {
	r := &report{
		objects: o, object: d, news: make(chan struct{}, 1), publishing: make(chan struct{}, 1),
		changes:    flowcontrol.NewTokenBucketRateLimiter(changesPerSecond, changesBurst),
		rewordings: flowcontrol.NewTokenBucketRateLimiter(rewordingsPerSecond, rewordingsBurst),
		status:     *OwnStatus(d.Status), published: OwnStatus(d.Status), settled: time.Now().Add(startTime),
	}
	if len(r.status.FinalizedResources) == 0 && isHeld(d) {
		// An object of before the record, or one that was restored without its status.
		r.record(parentResources(d))
	}
	return r
}

// OwnStatus returns a copy of the status of a controller object without the conditions of other clients, which it may have besides and which the
// server does not write.
func OwnStatus(s *v1alpha1.ControllerStatus) *v1alpha1.ControllerStatus {
	own := s.DeepCopy()
	own.Conditions = slices.DeleteFunc(own.Conditions, func(c metav1.Condition) bool { return !slices.Contains(metrics.ConditionTypes, c.Type) })
	return own
}

// starting takes note of an instance that is about to run.
func (r *report) starting(d reconciler.Definition, health reconciler.State) {
	r.mu.Lock()
	r.settled = time.Now().Add(startTime)
	r.mu.Unlock()
	r.set(d, r.running(state{&health})...)
}

// count sets what the instance did so far, which is published some time later.
func (r *report) count(counters *v1alpha1.ControllerCounters, hooks []v1alpha1.HookStatus, errs []v1alpha1.ParentError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Counters, r.status.Hooks, r.status.LastErrors = counters, hooks, errs
	if !sameNumbers(r.published, &r.status) {
		poke(r.news)
	}
}

// notRunning sets the conditions while no instance runs, and reports whether Ready changed. Whether the resources are served is not known any more,
// unless they are the reason.
func (r *report) notRunning(d reconciler.Definition, reason, message, releasing string) bool {
	idle := state{&reconciler.State{Paused: paused(d), Object: d.KubectlName()}}
	conditions := append(conditionsNotRunning(reason, message, releasing), r.brakes(idle)...)
	if reason != v1alpha1.ReasonResourceNotFound && r.shows(v1alpha1.ConditionResourcesServed) != "" {
		conditions = append(conditions, conditionNotServing())
	}
	return r.set(d, conditions...)
}

// running returns the conditions of a running instance: Ready is the first.
func (r *report) running(s state) []metav1.Condition {
	return append(append(s.conditions(), conditionServed(s.Missing)), r.brakes(s)...)
}

// brakes returns the conditions about what the definition keeps the controller from. They are of interest once they held.
func (r *report) brakes(s state) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range []metav1.Condition{s.pausing(), s.holding()} {
		if r.shows(c.Type) != "" || c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonPausing {
			list = append(list, c)
		}
	}
	return list
}

// set sets conditions, which are published soon. It reports whether the first of them changed.
func (r *report) set(d reconciler.Definition, conditions ...metav1.Condition) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	some, news := merge(&r.status, d, conditions)
	if some {
		poke(r.news)
	}
	return news
}

// merge puts conditions into the status of d's object, with Ready also what follows from it. It reports whether one changed, and whether the first did.
func merge(status *v1alpha1.ControllerStatus, d reconciler.Definition, conditions []metav1.Condition) (some, first bool) {
	if ready := conditions[0]; ready.Type == v1alpha1.ConditionReady {
		status.ObservedGeneration = d.Meta.Generation
		if c, is := stalled(ready); is {
			conditions = append(conditions, c)
		} else {
			some = meta.RemoveStatusCondition(&status.Conditions, c.Type)
		}
	}
	for i, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime = d.Meta.Generation, metav1.NewTime(time.Now())
		changed := meta.SetStatusCondition(&status.Conditions, c)
		some, first = some || changed, first || changed && i == 0
	}
	return some, first
}

// conditions returns a copy of the present conditions.
func (r *report) conditions() []metav1.Condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.status.Conditions)
}

// shows returns the status of a condition, empty if it is not there.
func (r *report) shows(condition string) metav1.ConditionStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := meta.FindStatusCondition(r.status.Conditions, condition); c != nil {
		return c.Status
	}
	return ""
}

// recorded returns the resources whose objects may carry the controller's finalizer.
func (r *report) recorded() []schema.GroupResource {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]schema.GroupResource, 0, len(r.status.FinalizedResources))
	for _, f := range r.status.FinalizedResources {
		list = append(list, schema.GroupResource{Group: f.Group, Resource: f.Resource})
	}
	return list
}

// record adds resources to those that are recorded. It counts when it is published.
func (r *report) record(resources []schema.GroupResource) {
	added := without(resources, r.recorded()...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range added {
		r.status.FinalizedResources = append(r.status.FinalizedResources, v1alpha1.FinalizedResource{Group: a.Group, Resource: a.Resource})
	}
}

// drop removes a resource from those that are recorded.
func (r *report) drop(resource schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.FinalizedResources = slices.DeleteFunc(r.status.FinalizedResources, func(f v1alpha1.FinalizedResource) bool {
		return f == v1alpha1.FinalizedResource{Group: resource.Group, Resource: resource.Resource}
	})
	poke(r.news)
}

// withRecord returns d with the present record in its status.
func (r *report) withRecord(d reconciler.Definition) reconciler.Definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := d.Status.DeepCopy()
	status.FinalizedResources = slices.Clone(r.status.FinalizedResources)
	d.Status = status
	return d
}

const (
	// reportInterval is how long after something happened numbers are published at the earliest, of which checkInterval passes until they are read,
	// and failed publications tried again.
	reportInterval = 5 * time.Second
	// quietInterval is the least time between a publication and the next one that has nothing new but numbers, or that
	// repairs a status which another client wrote.
	quietInterval = 30 * time.Second
	// startTime is how long a start may take before the status says that it is under way. Until then only failures are published: a client
	// that creates or updates a controller, and then updates what it got, finds it in that version, and a start is one write.
	startTime = time.Second
	// changesPerSecond and changesBurst bound the publications of conditions that change all the time; rewordingsPerSecond and
	// rewordingsBurst those of conditions of which only the message does: a hook may fail for each parent in other words.
	changesPerSecond, changesBurst       = 0.2, 10
	rewordingsPerSecond, rewordingsBurst = 1.0 / 30, 3
)

// observe takes note of the status that the object shows now.
func (r *report) observe(d reconciler.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.overwritten = !showsAll(d.Status, r.published); r.overwritten {
		poke(r.news)
	}
}

// showsAll reports whether other has all of s but counters and the times of transitions. It may have conditions of other clients.
func showsAll(other, s *v1alpha1.ControllerStatus) bool {
	if !slices.Equal(s.FinalizedResources, other.FinalizedResources) {
		return false
	}
	for _, c := range s.Conditions {
		shown := meta.FindStatusCondition(other.Conditions, c.Type)
		if shown == nil {
			return false
		}
		if c.LastTransitionTime = shown.LastTransitionTime; c != *shown {
			return false
		}
	}
	return true
}

// run publishes until ctx ends.
func (r *report) run(ctx context.Context) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.news:
		case <-due:
		}
		var wait time.Duration
		err := recovery.Call(ctx, "publishing the status of the controller", func() (err error) {
			wait, err = r.publish(ctx)
			return err
		})
		if err != nil {
			wait = reportInterval
		}
		if due = nil; wait > 0 {
			due = time.After(wait)
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Status of the controller is not published; trying again", "after", reportInterval)
		}
	}
}

// publish publishes the status if there is something new. What is to be published later is so after wait, zero for nothing.
func (r *report) publish(ctx context.Context) (wait time.Duration, err error) {
	select {
	case r.publishing <- struct{}{}:
		defer func() { <-r.publishing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	status, now, wait := r.due()
	if !now {
		return wait, nil
	}
	kept, err := r.objects.PublishStatus(ctx, r.object, "", status)
	if err != nil {
		return 0, fmt.Errorf("publishing the status of %s %s: %w", r.object.Kind, r.object.Meta.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published, r.publishedAt, r.overwritten, r.differs, r.pruned = status, time.Now(), false, time.Time{}, !kept
	return 0, nil
}

// due returns the status, and whether it is to be published now, or after which time; zero for not at all.
func (r *report) due() (status *v1alpha1.ControllerStatus, now bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status = r.status.DeepCopy()
	change := compare(r.published, status)
	switch settling := time.Until(r.settled); {
	case !slices.Equal(status.FinalizedResources, r.published.FinalizedResources):
		return status, true, 0
	case change != none && settling > 0 && !fails(status):
		return nil, false, settling
	case change == different && !r.changes.TryAccept():
		return nil, false, reportInterval
	case change == different, change == reworded && r.rewordings.TryAccept():
		return status, true, 0
	}
	switch {
	case !r.overwritten && (r.pruned || sameNumbers(r.published, status)): // What is pruned is tried again when the object or a condition changes.
		r.differs = time.Time{}
		return nil, false, 0
	case r.differs.IsZero():
		r.differs = time.Now()
	}
	wait = max(0, time.Until(r.differs.Add(reportInterval-checkInterval)), time.Until(r.publishedAt.Add(quietInterval)))
	return status, wait == 0, wait
}

// number matches what differs between messages that say the same.
var number = regexp.MustCompile(`\d+`)

// change is how the conditions of two statuses differ.
type change int

const (
	none change = iota
	// reworded says that a message says the same of something else.
	reworded
	different
)

// compare returns how the conditions of two statuses differ. Numbers in messages are left aside, but for those of the release, for which
// somebody waits and which change with attempts only.
func compare(before, after *v1alpha1.ControllerStatus) change {
	result := none
	if before.ObservedGeneration != after.ObservedGeneration {
		result = different
	}
	for _, c := range after.Conditions {
		shown := meta.FindStatusCondition(before.Conditions, c.Type)
		switch {
		case shown == nil, c.Status != shown.Status, c.Reason != shown.Reason, c.ObservedGeneration != shown.ObservedGeneration:
			result = different
		case c.Message == shown.Message:
		case c.Type == v1alpha1.ConditionFinalizersReleased, c.Type == v1alpha1.ConditionDeletionsHeld:
			result = different
		case number.ReplaceAllString(c.Message, "#") != number.ReplaceAllString(shown.Message, "#"):
			result = max(result, reworded)
		}
	}
	return result
}

// sameNumbers reports whether two statuses, whose conditions have not changed, are equal in what counts. How long the calls of hooks took is
// no reason to publish.
func sameNumbers(before, after *v1alpha1.ControllerStatus) bool {
	if !equality.Semantic.DeepEqual(before.Counters, after.Counters) || !equality.Semantic.DeepEqual(before.LastErrors, after.LastErrors) ||
		!showsAll(before, after) {
		return false
	}
	return slices.EqualFunc(before.Hooks, after.Hooks, func(a, b v1alpha1.HookStatus) bool {
		a.P50Milliseconds, a.P99Milliseconds = b.P50Milliseconds, b.P99Milliseconds
		return equality.Semantic.DeepEqual(a, b)
	})
}

// fails reports whether a condition says that something is wrong.
func fails(s *v1alpha1.ControllerStatus) bool {
	for _, name := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionEstablished, v1alpha1.ConditionHooksHealthy, v1alpha1.ConditionPermitted,
		v1alpha1.ConditionResourcesServed, v1alpha1.ConditionFinalizersReleased,
	} {
		c := meta.FindStatusCondition(s.Conditions, name)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonStarting && c.Reason != v1alpha1.ReasonPaused {
			return true
		}
	}
	return false
}
