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

package apply_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/apply"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/client"
	"github.com/metacontroller/metacontroller-apiserver/pkg/metrics"
)

// counted returns the requests that write children, by verb and outcome.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	metrics.Register()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "metacontroller_child_writes_total" {
			continue
		}
		for _, m := range f.GetMetric() { // Labels are sorted by name.
			found[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return found
}

func TestEveryRequestIsCountedByVerbAndOutcome(t *testing.T) {
	ok := response{http.StatusOK, ours}
	written := response{http.StatusOK, strings.Replace(ours, `"resourceVersion":"9"`, `"resourceVersion":"10"`, 1)}
	exists := failure(http.StatusConflict, "AlreadyExists", "a")
	conflict := failure(http.StatusConflict, "Conflict", "a")
	gone := failure(http.StatusNotFound, "NotFound", "a")
	notServed := failure(http.StatusNotFound, "NotFound", "")
	noDryRun := failure(http.StatusBadRequest, "BadRequest", "a")
	for name, tc := range map[string]struct {
		action    plan.Action
		responses responses
		want      map[string]float64
	}{
		"Created":      {plan.Create, responses{http.MethodPost: ok}, map[string]float64{"create written": 1}},
		"Exists":       {plan.Create, responses{http.MethodPost: exists, http.MethodGet: ok}, map[string]float64{"create conflict": 1}},
		"Tried twice":  {plan.Create, responses{http.MethodPost: exists, http.MethodGet: gone}, map[string]float64{"create conflict": 2}},
		"No namespace": {plan.Create, responses{http.MethodPost: gone}, map[string]float64{"create rejected": 1}},
		"No response":  {plan.Create, responses{http.MethodPost: {http.StatusCreated, `[]`}}, map[string]float64{"create error": 1}},
		"Updated":      {plan.Update, responses{http.MethodPut: written}, map[string]float64{"update written": 1}},
		"Unchanged":    {plan.Update, responses{http.MethodPut: ok}, map[string]float64{"update unchanged": 1}},
		"Changed":      {plan.Update, responses{http.MethodPut: conflict}, map[string]float64{"update conflict": 1}},
		"Gone":         {plan.Update, responses{http.MethodPut: gone}, map[string]float64{"update conflict": 1}},
		"Not served":   {plan.Update, responses{http.MethodPut: notServed}, map[string]float64{"update rejected": 1}},
		"Deleted":      {plan.Delete, responses{http.MethodDelete: success}, map[string]float64{"delete written": 1}},
		"Replaced": {
			plan.Recreate,
			responses{http.MethodPut: noDryRun, http.MethodPost: {http.StatusOK, triedChild(`{"k":"v"}`)}, http.MethodGet: {http.StatusOK, ours}, http.MethodDelete: success},
			map[string]float64{"trial rejected": 1, "trial unchanged": 1, "delete written": 1},
		},
		"Tried": {plan.Recreate, responses{http.MethodPut: written}, map[string]float64{"trial unchanged": 1, "update written": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, applier := resist(t, tc.responses, apply.Options{})
			before := counted(t)
			_, _ = carryOut(t.Context(), t, applier, one(t, tc.action))
			if diff := cmp.Diff(tc.want, since(t, before)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatchesOfOwnersAreCounted(t *testing.T) {
	_, applier := resist(t, responses{http.MethodPatch: {http.StatusOK, ours}}, apply.Options{})
	before := counted(t)
	target := client.Target{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "ns", Name: "a"}
	if _, err := applier.Patch(t.Context(), target, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"update written": 1}, since(t, before)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// since returns the requests that were counted after others.
func since(t *testing.T, before map[string]float64) map[string]float64 {
	t.Helper()
	more := map[string]float64{}
	for series, n := range counted(t) {
		if n > before[series] {
			more[series] = n - before[series]
		}
	}
	return more
}
