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

package rollout

import (
	"encoding/json"
	"fmt"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// Child is an observed child. The compact objects of the cluster cache implement it.
type Child interface {
	// Generation is the child's metadata.generation; 0 for kinds that have none.
	Generation() int64
	// Deleting reports whether the child is being deleted.
	Deleting() bool
	// Field returns the encoded value of a nested field.
	Field(path ...string) (json.RawMessage, bool)
}

// notReady returns why a child on the latest revision is not ready, so that the rollout waits for it; empty when it is ready
// (docs/reference/contract.md#s14.5). Beyond the contract, a child that is being deleted is not ready.
func (r *run) notReady(key children.Key) string {
	name := key.Kind + " " + relativeName(r.namespace, key)
	child, ok := r.in.Observed(key)
	switch {
	case !ok:
		return "missing child " + name
	case child.Deleting():
		return "child " + name + " is being deleted"
	case !r.unchanged(key):
		return "child " + name + " has not been updated to the latest revision"
	}
	rule := r.planner.config.Rules[key.GroupKind()]
	if rule.InPlace {
		if seen := observedGeneration(child); seen > 0 && seen < child.Generation() {
			return fmt.Sprintf("child %s has not observed its latest change: status.observedGeneration is %d, metadata.generation is %d",
				name, seen, child.Generation())
		}
	}
	for _, check := range rule.Conditions {
		if reason := unmet(child, check); reason != "" {
			return "child " + name + ": " + reason
		}
	}
	return ""
}

func observedGeneration(child Child) int64 {
	raw, ok := child.Field("status", "observedGeneration")
	if !ok {
		return 0
	}
	var generation int64
	if err := json.Unmarshal(raw, &generation); err != nil {
		return 0
	}
	return generation
}

// unmet returns why the child fails the check; empty when it passes.
func unmet(child Child, check v1alpha1.StatusConditionCheck) string {
	condition, ok := statusCondition(child, check.Type)
	switch {
	case !ok:
		return fmt.Sprintf("it has no condition %q", check.Type)
	case check.Status != nil && condition.Status != *check.Status:
		return fmt.Sprintf("condition %q has status %q, want %q", check.Type, condition.Status, *check.Status)
	case check.Reason != nil && condition.Reason != *check.Reason:
		return fmt.Sprintf("condition %q has reason %q, want %q", check.Type, condition.Reason, *check.Reason)
	default:
		return ""
	}
}

type observedCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

// statusCondition returns the first condition of that type. Entries that are no conditions are skipped.
func statusCondition(child Child, conditionType string) (observedCondition, bool) {
	raw, ok := child.Field("status", "conditions")
	if !ok {
		return observedCondition{}, false
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return observedCondition{}, false
	}
	for _, entry := range entries {
		var c observedCondition
		if err := json.Unmarshal(entry, &c); err == nil && c.Type == conditionType {
			return c, true
		}
	}
	return observedCondition{}, false
}
