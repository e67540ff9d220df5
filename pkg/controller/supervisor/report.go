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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// reportInterval is the least time between two publications of counters alone.
const reportInterval = 5 * time.Second

// A Publisher writes the status of a controller object. An object that is gone is an apierrors NotFound.
type Publisher interface {
	// Publish writes status to the object of d.
	Publish(ctx context.Context, d Definition, status *v1alpha1.ControllerStatus) error
}

// report holds what is to be published about one controller and publishes it when it changed.
type report struct {
	publisher Publisher
	clock     clock.WithTicker
	urgent    chan struct{}

	mu         sync.Mutex
	definition Definition
	status     v1alpha1.ControllerStatus
	published  *v1alpha1.ControllerStatus
	instance   Instance
}

func newReport(p Publisher, c clock.WithTicker, d Definition) *report {
	return &report{publisher: p, clock: c, urgent: make(chan struct{}, 1), definition: d, status: *d.Status().DeepCopy()}
}

func (r *report) starting(d Definition, instance Instance) {
	r.mu.Lock()
	r.instance = instance
	r.mu.Unlock()
	r.set(d, metav1.ConditionFalse, v1alpha1.ReasonStarting, "Reading the objects that the controller watches.")
}

func (r *report) ready(d Definition) {
	r.set(d, metav1.ConditionTrue, v1alpha1.ReasonRunning, "The controller runs.")
}

func (r *report) stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instance = nil
}

// notReady reports whether this is news.
func (r *report) notReady(d Definition, reason, message string) bool {
	return r.set(d, metav1.ConditionFalse, reason, message)
}

func (r *report) set(d Definition, status metav1.ConditionStatus, reason, message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.definition = d
	generation := d.Meta().Generation
	r.status.ObservedGeneration = generation
	changed := meta.SetStatusCondition(&r.status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	if changed {
		select {
		case r.urgent <- struct{}{}:
		default:
		}
	}
	return changed
}

// run publishes until ctx ends.
func (r *report) run(ctx context.Context) {
	ticker := r.clock.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-r.urgent:
		}
		r.publish(ctx)
	}
}

func (r *report) publish(ctx context.Context) {
	r.mu.Lock()
	d := r.definition
	if r.instance != nil {
		r.status.Counters = r.instance.Counters()
	}
	status := r.status.DeepCopy()
	same := equality.Semantic.DeepEqual(r.published, status)
	r.mu.Unlock()
	if same {
		return
	}
	err := r.publisher.Publish(ctx, d, status)
	switch {
	case err == nil:
		r.mu.Lock()
		r.published = status
		r.mu.Unlock()
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, "Status of the controller is not published; trying again", "after", reportInterval)
	}
}
