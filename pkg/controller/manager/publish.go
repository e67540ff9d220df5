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
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// reportInterval is how long after something happened numbers are read, and failed publications tried again.
	reportInterval = 5 * time.Second
	// quietInterval is the least time between a publication and the next one that has nothing new but numbers, or that
	// repairs a status which another client wrote; and how often numbers are read while nothing happens: some change with time.
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
		r.active()
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

// active says that the numbers may have changed.
func (r *report) active() { poke(r.activity) }

// run publishes until ctx ends.
func (r *report) run(ctx context.Context) {
	timer, soon := time.NewTimer(reportInterval), true
	defer timer.Stop()
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.activity:
			if !soon {
				timer.Reset(reportInterval)
				soon = true
			}
			continue
		case <-timer.C:
		case <-r.urgent:
		case <-due:
		}
		due = nil
		err := recovery.Call(ctx, "publishing the status of the controller", func() error {
			wait, err := r.publish(ctx)
			if wait > 0 {
				due = time.After(wait)
			}
			return err
		})
		timer.Reset(quietInterval)
		if soon = err != nil; soon {
			timer.Reset(reportInterval)
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
	status, now, wait := r.news(ctx)
	if !now {
		return wait, nil
	}
	if err := r.objects.PublishStatus(ctx, r.object, status); err != nil {
		return 0, fmt.Errorf("publishing the status of %s %s: %w", r.object.Kind, r.object.Meta.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published, r.publishedAt, r.overwritten = status, time.Now(), false
	return 0, nil
}

// news returns the status, and whether it is to be published now, or after which time; zero for not at all.
func (r *report) news(ctx context.Context) (status *v1alpha1.ControllerStatus, now bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status = r.status.DeepCopy()
	status.Counters, status.Hooks, status.LastErrors = r.published.Counters, r.published.Hooks, r.published.LastErrors
	if r.instance != nil {
		_ = recovery.Call(ctx, "reading the numbers of the controller", func() error { // The former ones stay.
			counters := r.instance.Counters()
			status.Hooks, status.LastErrors, status.Counters = r.instance.Hooks(), r.instance.LastErrors(), counters
			return nil
		})
	}
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
	if !r.overwritten && sameNumbers(r.published, status) {
		return nil, false, 0
	}
	quiet := quietInterval - time.Since(r.publishedAt)
	return status, quiet <= 0, max(0, quiet)
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
