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

package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/definition"
	"github.com/metacontroller/metacontroller-apiserver/pkg/recovery"
)

const (
	// reportInterval is how often counters are read, and failed publications tried again.
	reportInterval = 5 * time.Second
	// quietInterval is the least time between a publication and the next one that has nothing new but counters, or that
	// repairs a status which another client wrote.
	quietInterval = 30 * time.Second
)

// report holds the status of one controller object, and publishes it when it changed. It is safe for concurrent use.
type report struct {
	objects Objects
	// object is the definition that names the object.
	object definition.Definition
	urgent chan struct{}
	// publishing is full while a status is being published.
	publishing chan struct{}

	mu       sync.Mutex
	status   v1alpha1.ControllerStatus
	instance Instance // nil while none runs
	// published is the status that was published last, at publishedAt.
	published   *v1alpha1.ControllerStatus
	publishedAt time.Time
	// overwritten says that the object shows another status.
	overwritten bool
}

func newReport(o Objects, d definition.Definition) *report {
	r := &report{
		objects: o, object: d, urgent: make(chan struct{}, 1), publishing: make(chan struct{}, 1),
		status: *d.Status.DeepCopy(), published: d.Status.DeepCopy(),
	}
	if len(r.status.FinalizedResources) == 0 && held(d) {
		// An object of before the record, or one that was restored without its status.
		r.record(parents(d))
	}
	return r
}

func (r *report) starting(d definition.Definition, instance Instance) {
	r.mu.Lock()
	r.instance = instance
	r.mu.Unlock()
	r.served(d, instance.Missing())
	r.notReady(d, v1alpha1.ReasonStarting, "Reading the objects that the controller watches.")
}

func (r *report) stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instance = nil
}

func (r *report) ready(d definition.Definition) {
	r.set(d, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning, "The controller runs.")
}

// notReady reports whether this is news.
func (r *report) notReady(d definition.Definition, reason, message string) bool {
	return r.set(d, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

// served publishes which of the declared resources are missing though the controller runs.
func (r *report) served(d definition.Definition, missing []string) {
	if len(missing) == 0 {
		r.set(d, v1alpha1.ConditionResourcesServed, metav1.ConditionTrue, v1alpha1.ReasonServed,
			"The cluster serves every resource that the definition names.")
		return
	}
	r.set(d, v1alpha1.ConditionResourcesServed, metav1.ConditionFalse, v1alpha1.ReasonResourceNotFound, fmt.Sprintf(
		"The cluster does not serve %s. The controller runs without, and takes up what appears. Install what is missing, or remove it from spec.",
		strings.Join(missing, ", ")))
}

// set sets a condition, which is published at once. It reports whether it changed.
func (r *report) set(d definition.Definition, condition string, status metav1.ConditionStatus, reason, message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if condition == v1alpha1.ConditionReady {
		r.status.ObservedGeneration = d.Meta.Generation
	}
	changed := meta.SetStatusCondition(&r.status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message,
		ObservedGeneration: d.Meta.Generation, LastTransitionTime: metav1.NewTime(time.Now()),
	})
	if changed {
		poke(r.urgent)
	}
	return changed
}

// shows reports whether a condition is there with a status.
func (r *report) shows(condition string, status metav1.ConditionStatus) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return meta.IsStatusConditionPresentAndEqual(r.status.Conditions, condition, status)
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
	poke(r.urgent)
}

// withRecord returns d with the present record in its status.
func (r *report) withRecord(d definition.Definition) definition.Definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := d.Status.DeepCopy()
	status.FinalizedResources = slices.Clone(r.status.FinalizedResources)
	d.Status = status
	return d
}

// observe takes note of the status that the object shows now.
func (r *report) observe(d definition.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.overwritten = !showsAll(d.Status, r.published)
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
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-r.urgent:
		}
		err := recovery.Call(ctx, "publishing the status of the controller", func() error { return r.publish(ctx) })
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Status of the controller is not published; trying again", "after", reportInterval)
		}
	}
}

// publish publishes the status if there is something new.
func (r *report) publish(ctx context.Context) error {
	select {
	case r.publishing <- struct{}{}:
		defer func() { <-r.publishing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	status, news := r.news(ctx)
	if !news {
		return nil
	}
	if err := r.objects.PublishStatus(ctx, r.object, status); err != nil {
		return fmt.Errorf("publishing the status of %s %s: %w", r.object.Kind, r.object.Meta.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published, r.publishedAt, r.overwritten = status, time.Now(), false
	return nil
}

// news returns the status, and whether it is to be published now.
func (r *report) news(ctx context.Context) (*v1alpha1.ControllerStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status.DeepCopy()
	if status.Counters = r.published.Counters; r.instance != nil {
		_ = recovery.Call(ctx, "reading the counters of the controller", func() error { // The former ones stay.
			status.Counters = r.instance.Counters()
			return nil
		})
	}
	if status.ObservedGeneration != r.published.ObservedGeneration || !showsAll(r.published, status) {
		return status, true
	}
	return status, time.Since(r.publishedAt) >= quietInterval &&
		(r.overwritten || !equality.Semantic.DeepEqual(status.Counters, r.published.Counters))
}
