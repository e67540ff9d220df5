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
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// report holds the status of one controller object, and publishes it when it changed (publish.go). It is safe for concurrent use.
type report struct {
	objects Objects
	// object is the definition that names the object.
	object reconciler.Definition
	urgent chan struct{}
	// activity has an element after something happened that the numbers may show.
	activity chan struct{}
	// publishing is full while a status is being published.
	publishing chan struct{}
	// changes and rewordings bound how often conditions are published.
	changes, rewordings flowcontrol.RateLimiter

	mu       sync.Mutex
	status   v1alpha1.ControllerStatus
	instance Instance // nil while none runs
	// settled is when a start is over for which nothing but a failure is published.
	settled time.Time
	// published is the status that was published last, at publishedAt.
	published   *v1alpha1.ControllerStatus
	publishedAt time.Time
	// overwritten says that the object shows another status.
	overwritten bool
}

func newReport(o Objects, d reconciler.Definition) *report {
	r := &report{
		objects: o, object: d, urgent: make(chan struct{}, 1), activity: make(chan struct{}, 1), publishing: make(chan struct{}, 1),
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
func (r *report) starting(d reconciler.Definition, instance Instance) {
	r.mu.Lock()
	r.instance, r.settled = instance, time.Now().Add(startTime)
	r.mu.Unlock()
	health := instance.Health()
	r.set(d, r.running(state{&health})...)
}

func (r *report) stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instance = nil
}

// notRunning sets the conditions while no instance runs, and reports whether Ready changed. Whether the resources are served is not known any more,
// unless they are the reason.
func (r *report) notRunning(d reconciler.Definition, reason, message, releasing string) bool {
	idle := state{&reconciler.State{Paused: paused(d), Object: d.KubectlName()}}
	conditions := append(conditionsNotRunning(reason, message, releasing), r.brakes(idle)...)
	if reason != v1alpha1.ReasonResourceNotFound && r.has(v1alpha1.ConditionResourcesServed) {
		conditions = append(conditions, conditionNotServing())
	}
	return r.set(d, conditions...)
}

// running returns the conditions of a running instance: Ready is the first.
func (r *report) running(s state) []metav1.Condition {
	return append(append(s.conditions(), conditionServed(s.Missing)), r.brakes(s)...)
}

// brakes returns the conditions about brakes that are there to see, or were.
func (r *report) brakes(s state) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range s.brakes() {
		if r.has(c.Type) || c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonPausing {
			list = append(list, c)
		}
	}
	return list
}

// set sets conditions, which are published soon. It reports whether the first of them changed.
func (r *report) set(d reconciler.Definition, conditions ...metav1.Condition) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := false
	for i, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			r.status.ObservedGeneration = d.Meta.Generation
		}
		c.ObservedGeneration, c.LastTransitionTime = d.Meta.Generation, metav1.NewTime(time.Now())
		changed := meta.SetStatusCondition(&r.status.Conditions, c)
		some, news = some || changed, news || changed && i == 0
	}
	if some {
		poke(r.urgent)
	}
	return news
}

// conditions returns a copy of the present conditions.
func (r *report) conditions() []metav1.Condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.status.Conditions)
}

// has reports whether a condition is there.
func (r *report) has(condition string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return meta.FindStatusCondition(r.status.Conditions, condition) != nil
}

// complains reports whether a condition is there and False.
func (r *report) complains(condition string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return meta.IsStatusConditionFalse(r.status.Conditions, condition)
}

// doubts reports whether a condition is there and not True.
func (r *report) doubts(condition string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := meta.FindStatusCondition(r.status.Conditions, condition)
	return c != nil && c.Status != metav1.ConditionTrue
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
func (r *report) withRecord(d reconciler.Definition) reconciler.Definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := d.Status.DeepCopy()
	status.FinalizedResources = slices.Clone(r.status.FinalizedResources)
	d.Status = status
	return d
}
