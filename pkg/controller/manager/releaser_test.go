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
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/reconciler"
)

// lists counts the lists of parents, none of which carries the finalizer.
type lists struct{ n int }

// Finalized implements supervisorConfig.Finalized.
func (l *lists) Finalized(context.Context, schema.GroupResource, reconciler.Definition) ([]FinalizedParent, error) {
	l.n++
	return nil, nil
}

// Warning implements Recorder.
func (*lists) Warning(*corev1.ObjectReference, string, string) {}

// WarningOfParent implements Recorder.
func (*lists) WarningOfParent(_, _ *corev1.ObjectReference, _, _ string) {}

// Lifecycle implements Recorder.
func (*lists) Lifecycle(*corev1.ObjectReference, string, string) {}

// An instance may run for a moment between the end of a release and the wait for the next one.
func TestWhatAnInstanceGaveBackIsReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := []schema.GroupResource{{Resource: "services"}}
		d := reconciler.OfDecorator(&v1alpha1.DecoratorController{ObjectMeta: metav1.ObjectMeta{Name: "d", DeletionTimestamp: new(metav1.Now())}})
		l, record := &lists{}, newReport(nil, d)
		record.record(services)
		var r *releaser
		ran := false
		r = newReleaser(supervisorConfig{Finalized: l.Finalized, Recorder: l}, record, func() reconciler.Definition { return d }, func() {
			if r.progress() == "" || ran {
				return // The release has not ended.
			}
			ran = true
			r.claim(services)
			record.record(services)
			r.claim(nil)
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.run(ctx) })
		synctest.Wait()
		if left := record.recorded(); !ran || l.n != 2 || len(left) > 0 {
			t.Errorf("the instance ran: %t; objects were listed %d times, want twice; %v is recorded still", ran, l.n, left)
		}
		stop()
		running.Wait()
	})
}
