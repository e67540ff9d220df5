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

package gitops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/health"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// definition is a CompositeController of the ConfigMaps with a label of its name.
func definition(name string) string {
	return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController","metadata":{"name":"` + name + `"},"spec":{"generateSelector":true,
		"parentResource":{"apiVersion":"v1","resource":"configmaps","labelSelector":{"matchLabels":{"health":"` + name + `"}}},
		"hooks":{"sync":{"inline":{}}}}}`
}

// judgement is what the tools make of an object: Argo CD and Flux with what is published for them, and kstatus without.
type judgement struct {
	argo          health.HealthStatusCode
	flux, kstatus status.Status
}

func (j judgement) String() string {
	return fmt.Sprintf("Argo CD: %s, Flux: %s, kstatus alone: %s", j.argo, j.flux, j.kstatus)
}

func judge(ctx context.Context, t *testing.T, flux engine.StatusReader, o *unstructured.Unstructured) judgement {
	t.Helper()
	argo, err := health.GetResourceHealth(o, scripts(t))
	if err != nil || argo == nil {
		t.Fatalf("the health of %s: %v, %v", o.GetName(), argo, err)
	}
	plain, err := status.Compute(o)
	if err != nil {
		t.Fatalf("the status of %s: %v", o.GetName(), err)
	}
	found := judgement{argo.Status, plain.Status, plain.Status}
	if strings.HasSuffix(o.GetKind(), "Controller") {
		read, err := flux.ReadStatusForObject(ctx, nil, o)
		if err != nil || read.Error != nil {
			t.Fatalf("Flux's status of %s: %v, %v", o.GetName(), err, read)
		}
		found.flux = read.Status
	}
	return found
}

// TestHealthOfParents judges statuses that the server's engine writes, and those of conditions that are the hook's.
func TestHealthOfParents(t *testing.T) {
	t.Parallel()
	healthy := judgement{health.HealthStatusHealthy, status.CurrentStatus, status.CurrentStatus}
	progressing := judgement{health.HealthStatusProgressing, status.InProgressStatus, status.InProgressStatus}
	for name, row := range map[string]struct {
		status string
		want   judgement
	}{
		"synced":                      {`{"observedGeneration":2}`, healthy},
		"changed since the last sync": {`{"observedGeneration":1}`, progressing},
		// Nothing but a script can know that a controller will write a status.
		"never synced": {`{}`, judgement{health.HealthStatusProgressing, status.CurrentStatus, status.CurrentStatus}},
		"ready":        {`{"observedGeneration":2,"conditions":[{"type":"Ready","status":"True"}]}`, healthy},
		"not ready":    {`{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False"}]}`, progressing},
		"stalled, by the hook": {
			`{"observedGeneration":2,"conditions":[{"type":"Stalled","status":"True"},{"type":"Ready","status":"False"}]}`,
			judgement{health.HealthStatusDegraded, status.FailedStatus, status.FailedStatus},
		},
		"failing": {
			`{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False"},{"type":"Synced","status":"False","reason":"HookFailing"}]}`,
			judgement{health.HealthStatusDegraded, status.InProgressStatus, status.InProgressStatus},
		},
		"paused": {
			`{"observedGeneration":2,"conditions":[{"type":"Synced","status":"Unknown","reason":"Paused"}]}`,
			judgement{health.HealthStatusSuspended, status.CurrentStatus, status.CurrentStatus},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, `{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"blog","generation":2},"status":`+row.status+`}`)
			if found := judge(t.Context(), t, nil, o); found != row.want {
				t.Errorf("judged %v, not %v", found, row.want)
			}
		})
	}
}

// healthOfControllers has controllers get into each state, and judges them as the server returns them.
func healthOfControllers(t *testing.T, a *application) {
	flux := healthChecks(t)(nil)
	progressing := judgement{health.HealthStatusProgressing, status.InProgressStatus, status.InProgressStatus}
	ready := func(reason string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return condition(o, "Ready")["reason"] == reason }
	}
	for name, row := range map[string]struct {
		spec    string
		parents bool
		until   func(*unstructured.Unstructured) bool
		want    judgement
	}{
		"running": {until: ready("Running"), want: judgement{health.HealthStatusHealthy, status.CurrentStatus, status.CurrentStatus}},
		"waiting for its parent kind": {
			spec:  `"childResources":[],"parentResource":{"apiVersion":"nowhere.example.com/v1","resource":"things"},`,
			until: ready("ResourceNotFound"), want: progressing,
		},
		"paused": {
			spec: `"paused":true,`, until: ready("Paused"),
			want: judgement{health.HealthStatusSuspended, status.CurrentStatus, status.InProgressStatus},
		},
		"without a hook that answers": {
			spec: `"hooks":{"sync":{"webhook":{"url":"http://127.0.0.1:1/"}}},`, parents: true, until: ready("HookFailing"),
			want: judgement{health.HealthStatusDegraded, status.FailedStatus, status.FailedStatus},
		},
		"without its service account": {
			spec: `"serviceAccountRef":{"name":"nobody","namespace":"default"},`, until: ready("ServiceAccountNotFound"),
			want: judgement{health.HealthStatusDegraded, status.FailedStatus, status.FailedStatus},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			controller := "health-" + strings.ReplaceAll(name, " ", "-")
			if row.parents {
				a.ApplyForTest(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+controller+`, namespace: default, labels: {health: `+controller+`}}}`)
			}
			created := a.create(t, merged(t, definition(controller), row.spec))
			// What no server has looked at yet may not be taken for what it shall become.
			if found := judge(t.Context(), t, flux, created); found != progressing {
				t.Errorf("as it was created it is judged %v", found)
			}
			var o *unstructured.Unstructured
			cluster.Eventually(t, limit, "the controller to be "+name, func(ctx context.Context) (bool, string) {
				found, err := a.composites().Get(ctx, controller, metav1.GetOptions{})
				if err != nil {
					return false, err.Error()
				}
				o = found
				return row.until(o), fmt.Sprint(o.Object["status"])
			})
			if found := judge(t.Context(), t, flux, o); found != row.want {
				t.Errorf("judged %v, not %v: %v", found, row.want, o.Object["status"])
			}
			later := patch(t, a.composites(), controller, `{"spec":{"resyncPeriodSeconds":3600}}`)
			if found := judge(t.Context(), t, flux, later); found != progressing {
				t.Errorf("with a changed definition that no server has looked at it is judged %v", found)
			}
		})
	}
}

// condition is a condition of an object's status, nil if it has none of that type.
func condition(o *unstructured.Unstructured, kind string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

// merged puts fields of JSON into the spec of a definition.
func merged(t *testing.T, text, fields string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, text)
	more := object(t, `{"apiVersion":"v1","kind":"Fields","spec":{`+strings.TrimSuffix(fields, ",")+`}}`)
	for key, value := range more.Object["spec"].(map[string]any) {
		if err := unstructured.SetNestedField(o.Object, value, "spec", key); err != nil {
			t.Fatalf("setting %s: %v", key, err)
		}
	}
	return o
}

// create creates a controller for the test.
func (a *application) create(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := a.composites().Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating %s: %v", o.GetName(), err)
	}
	t.Cleanup(func() {
		if err := a.composites().Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting %s: %v", o.GetName(), err)
		}
	})
	return created
}
