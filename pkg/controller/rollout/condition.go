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
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// ConditionUpdated is the type of the condition that shows in a parent's status how its rollout is going
// (docs/reference/contract.md#s14.4).
const ConditionUpdated = "Updated"

// Reasons of the condition Updated.
const (
	// ReasonOnLatestRevision: all rolling children are on the latest revision.
	ReasonOnLatestRevision = "OnLatestRevision"
	// ReasonProgressing: children are being moved to the latest revision.
	ReasonProgressing = "RolloutProgressing"
	// ReasonWaiting: children that were moved before are not ready yet. The message names the first and the check that it
	// fails.
	ReasonWaiting = "RolloutWaiting"
)

// Condition is the parent's condition Updated.
type Condition struct {
	// Status is True when all rolling children are on the latest revision, and False otherwise.
	Status metav1.ConditionStatus
	// Reason is one of the reasons above.
	Reason string
	// Message is for people.
	Message string
}

func onLatest(revision string) Condition {
	return Condition{metav1.ConditionTrue, ReasonOnLatestRevision, "latest ControllerRevision: " + revision}
}

func progressing(parentNamespace string, moved []children.Key) Condition {
	names := make([]string, len(moved))
	for i, key := range moved {
		names[i] = key.Kind + " " + relativeName(parentNamespace, key)
	}
	return Condition{metav1.ConditionFalse, ReasonProgressing, "updating " + children.Enumerate(names)}
}

func waiting(reasons []string) Condition {
	message := ""
	if len(reasons) > 0 {
		message = reasons[0]
	}
	if len(reasons) > 1 {
		message += fmt.Sprintf(" and %d more", len(reasons)-1)
	}
	return Condition{metav1.ConditionFalse, ReasonWaiting, message}
}

// Apply returns the status with the condition in its conditions, in place of any of that type that the hook set. The status
// is the hook's and may be nil; observed is the parent's present status, from which lastTransitionTime is taken; neither is
// modified. A status whose conditions are no list is returned as it is.
//
// The lastTransitionTime is kept while the status of the condition stays the same. If the observed condition has none,
// because the parent's schema prunes the field, none is added: adding it would write the parent in every sync.
func (c Condition) Apply(status, observed map[string]any, now time.Time) map[string]any {
	var conditions []any
	if value := status["conditions"]; value != nil {
		var ok bool
		if conditions, ok = value.([]any); !ok {
			return status
		}
	}
	out := maps.Clone(status)
	if out == nil {
		out = map[string]any{}
	}
	updated := map[string]any{
		"type": ConditionUpdated, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
	}
	if since := c.since(observed, now); since != "" {
		updated["lastTransitionTime"] = since
	}
	at := slices.IndexFunc(conditions, isUpdated)
	if at < 0 {
		at = len(conditions)
	}
	out["conditions"] = slices.Insert(slices.DeleteFunc(slices.Clone(conditions), isUpdated), at, any(updated))
	return out
}

// since returns the lastTransitionTime; empty for none.
func (c Condition) since(observed map[string]any, now time.Time) string {
	conditions, _ := observed["conditions"].([]any)
	if at := slices.IndexFunc(conditions, isUpdated); at >= 0 {
		if before, ok := conditions[at].(map[string]any); ok && before["status"] == string(c.Status) {
			since, _ := before["lastTransitionTime"].(string)
			return since
		}
	}
	return now.UTC().Format(time.RFC3339)
}

func isUpdated(condition any) bool {
	fields, ok := condition.(map[string]any)
	return ok && fields["type"] == ConditionUpdated
}

// Child is an observed child. The compact objects of the cluster cache implement it.
type Child interface {
	// Generation is the child's metadata.generation; 0 for kinds that have none.
	Generation() int64
	// Deleting reports whether the child is being deleted.
	Deleting() bool
	// Value returns a nested field, nil if there is none.
	Value(path ...string) any
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
		if seen, _ := child.Value("status", "observedGeneration").(int64); seen > 0 && seen < child.Generation() {
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

// unmet returns why the child fails the check; empty when it passes.
func unmet(child Child, check v1alpha1.StatusConditionCheck) string {
	condition := statusCondition(child, check.Type)
	status, _ := condition["status"].(string)
	reason, _ := condition["reason"].(string)
	switch {
	case condition == nil:
		return fmt.Sprintf("it has no condition %q", check.Type)
	case check.Status != nil && status != *check.Status:
		return fmt.Sprintf("condition %q has status %q, want %q", check.Type, status, *check.Status)
	case check.Reason != nil && reason != *check.Reason:
		return fmt.Sprintf("condition %q has reason %q, want %q", check.Type, reason, *check.Reason)
	default:
		return ""
	}
}

// statusCondition returns the first condition of that type, nil if there is none. Entries that are no conditions are skipped.
func statusCondition(child Child, conditionType string) map[string]any {
	conditions, _ := child.Value("status", "conditions").([]any)
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == conditionType {
			return condition
		}
	}
	return nil
}
