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
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/cache"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/events"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/queue"
)

// pauseOf reports whether a parent is paused by its annotation, and until when; zero for no such time.
func pauseOf(o *object.Object, now time.Time) (until time.Time, paused bool, err error) {
	value, there := o.Annotation(v1alpha1.AnnotationPaused)
	switch {
	case !there || value == "false":
		return until, false, nil
	case value == "true":
		return until, true, nil
	}
	if until, err = time.Parse(time.RFC3339, value); err != nil {
		return time.Time{}, false, errors.New(`it is neither "true" nor a time such as 2026-01-02T15:04:05Z`)
	}
	return until, until.After(now), nil
}

// pausedUntil says until when a parent is paused by its annotation, empty if it is not.
func (c *Controller) pausedUntil(o *object.Object) string {
	until, paused, _ := pauseOf(o, time.Now())
	if !paused {
		return ""
	}
	text := "until the annotation " + v1alpha1.AnnotationPaused + " is taken off"
	if !until.IsZero() {
		text = "until " + until.UTC().Format(time.RFC3339)
	}
	if o.Deleting() && c.finalizer.On(o) {
		text += "; it is being deleted, and stays until it is finalized after that"
	}
	return text
}

// holdPaused reports whether the parent is paused by its annotation. Then nothing is done about it, but for what a sync before that has left to write
// and the condition that says so. The change that ends the pause has it synced, or its time.
func (s *Sync) holdPaused(ctx context.Context) (result queue.Result, paused bool, err error) {
	c, o, r := s.controller, s.Parent, s.record
	until, said := c.pausedUntil(o), c.parents.progress(r).paused
	if until == "" {
		if said != "" {
			c.parents.change(r, func(r *record) { r.paused = "" })
			c.retries.raise() // Its children were not tried meanwhile.
		}
		return result, false, nil
	}
	// Nobody calls the finalize hook meanwhile, and a start does not wait for the first sync.
	c.parents.change(r, func(r *record) { r.paused, r.late, r.finalization = until, true, finalization{} })
	if until != said {
		c.recorder.NormalAlways(reference(o), events.ReasonPaused, s.pausedBy(ctx, until))
	}
	if end, _, _ := pauseOf(o, time.Now()); !end.IsZero() {
		result.ResyncAfter = max(time.Until(end), time.Millisecond)
	}
	result.Idle = true
	err = s.writeLeft(ctx)
	if err == nil && s.Source.KeepsSynced && s.Parent != nil {
		err = s.writeSynced(ctx, s.condition(metav1.ConditionUnknown, v1alpha1.ParentPaused, "paused "+until))
	}
	return result, true, err
}

// pausedBy says who has paused the parent, as far as that is known, until when, and how to end it.
func (s *Sync) pausedBy(ctx context.Context, until string) string {
	who := "somebody, whom the API server's audit log names"
	if manager := s.controller.managersOf(ctx, s.Target).of("metadata.annotations." + v1alpha1.AnnotationPaused); manager != "" {
		who = fmt.Sprintf("the field manager %q", manager)
	}
	return fmt.Sprintf("Paused by %s %s. No hook is called, and nothing is written. To end it: kubectl annotate %s %s-", who, until,
		argumentsOf(s.Key), v1alpha1.AnnotationPaused)
}

// argumentsOf names a parent as kubectl takes it.
func argumentsOf(key parent.Key) string {
	where := key.Resource().String() + " " + key.Name
	if key.Namespace != "" {
		where += " --namespace " + key.Namespace
	}
	return where
}

// noticeNoPause reports, once for each change, a parent whose annotation does not pause it, because its value is none, or was over when it was set.
func (c *Controller) noticeNoPause(e cache.Event) {
	until, paused, err := pauseOf(e.New, time.Now())
	if e.Old != nil && !until.IsZero() && !paused {
		err = errors.New(`its time is over, and it is neither "true" nor a time to come`)
	}
	if err == nil {
		return
	}
	value, _ := e.New.Annotation(v1alpha1.AnnotationPaused)
	if before, there := cmp.Or(e.Old, e.New).Annotation(v1alpha1.AnnotationPaused); e.Old != nil && there && before == value {
		return
	}
	c.recorder.Warning(reference(e.New), nil, events.ReasonNotPaused, fmt.Sprintf(
		"The annotation %s does not pause this object: %v. Set one of these, or take it off", v1alpha1.AnnotationPaused, err))
}
