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

package parent

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// ConditionUpdated is the type of the condition that shows in a parent's status how its rollout is going
// (docs/reference/contract.md#s14.4).
const ConditionUpdated = "Updated"

// Condition is a condition in the status of a parent that the engine sets, beside those of the hook.
type Condition struct {
	// Type is its type, such as Updated.
	Type string
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus
	// Reason is a word, and Message is for people.
	Reason, Message string
	// ObservedGeneration is the generation of the parent that the condition is about; zero for a condition that has none.
	ObservedGeneration int64
}

// ConditionOf returns the condition of a type that a status has; false if it has none.
func ConditionOf(status map[string]any, name string) (c Condition, ok bool) {
	conditions, _ := status["conditions"].([]any)
	at := slices.IndexFunc(conditions, is(name))
	if at < 0 {
		return c, false
	}
	fields, _ := conditions[at].(map[string]any)
	value, _ := fields["status"].(string)
	c = Condition{Type: name, Status: metav1.ConditionStatus(value)}
	c.Reason, _ = fields["reason"].(string)
	c.Message, _ = fields["message"].(string)
	c.ObservedGeneration, _ = fields["observedGeneration"].(int64)
	return c, true
}

// Apply returns the status with the condition in its conditions, in place of any of that type that the hook set. The status
// is the hook's and may be nil; observed is the parent's present status, from which lastTransitionTime is taken; neither is
// modified. A status whose conditions are no list is returned as it is.
//
// The lastTransitionTime is kept while the status of the condition stays the same. If the observed condition has none, or no observedGeneration,
// because the parent's schema prunes the field, none is added: adding it would write the parent in every sync.
func (c Condition) Apply(status, observed map[string]any, now time.Time) map[string]any {
	conditions, ok := status["conditions"].([]any)
	if !ok && status["conditions"] != nil {
		return status
	}
	out := make(map[string]any, len(status)+1)
	maps.Copy(out, status)
	set := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
	if c.ObservedGeneration != 0 {
		set["observedGeneration"] = c.ObservedGeneration
	}
	c.keep(set, observed)
	at := slices.IndexFunc(conditions, is(c.Type))
	if at < 0 {
		at = len(conditions)
	}
	out["conditions"] = slices.Insert(slices.DeleteFunc(slices.Clone(conditions), is(c.Type)), at, any(set))
	return out
}

// keep keeps what the condition has since its status is the same.
func (c Condition) keep(set, observed map[string]any) {
	conditions, _ := observed["conditions"].([]any)
	at := slices.IndexFunc(conditions, is(c.Type))
	if at < 0 {
		return
	}
	before, ok := conditions[at].(map[string]any)
	if !ok || before["status"] != string(c.Status) {
		return
	}
	if since, _ := before["lastTransitionTime"].(string); since != "" {
		set["lastTransitionTime"] = since
	} else {
		delete(set, "lastTransitionTime")
	}
	if _, there := before["observedGeneration"]; !there {
		delete(set, "observedGeneration")
	}
}

// is returns what reports whether a value is a condition of a type.
func is(name string) func(any) bool {
	return func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == name
	}
}

// WithoutCondition returns a status without conditions of a type. It has no conditions then, if there are no others. The status is not modified.
func WithoutCondition(status map[string]any, name string) map[string]any {
	conditions, _ := status["conditions"].([]any)
	if !slices.ContainsFunc(conditions, is(name)) {
		return status
	}
	out := maps.Clone(status)
	if rest := slices.DeleteFunc(slices.Clone(conditions), is(name)); len(rest) > 0 {
		out["conditions"] = rest
	} else {
		delete(out, "conditions")
	}
	return out
}

// HideCondition returns o as it is without conditions of a type in its status, and without a status that has nothing else. All other values
// stay as the API server sent them.
func HideCondition(o *object.Object, name string) *object.Object {
	return withCondition(o, name, func(json.RawMessage) json.RawMessage { return nil })
}

// HideTransition returns o as it is without the time since when conditions of a type in its status have theirs. All other values stay the same; they
// may be written in another order.
func HideTransition(o *object.Object, name string) *object.Object {
	return withCondition(o, name, func(raw json.RawMessage) json.RawMessage {
		var condition map[string]json.RawMessage
		_ = json.Unmarshal(raw, &condition) // Its type was read.
		delete(condition, "lastTransitionTime")
		encoded, _ := json.Marshal(condition)
		return encoded
	})
}

// withCondition returns o with what edit makes of conditions of a type in its status, and without those of which it makes nil; o itself if it has none.
func withCondition(o *object.Object, name string, edit func(json.RawMessage) json.RawMessage) *object.Object {
	raw, ok := o.Field("status", "conditions")
	if !ok || !bytes.Contains(raw, []byte(name)) {
		return o
	}
	var status map[string]json.RawMessage
	var conditions []json.RawMessage
	whole, _ := o.Field("status")
	if json.Unmarshal(whole, &status) != nil || json.Unmarshal(raw, &conditions) != nil {
		return o // No condition, but something else that the hook returned.
	}
	found := false
	for i, each := range conditions {
		var condition struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(each, &condition) == nil && condition.Type == name {
			conditions[i], found = edit(each), true
		}
	}
	if !found {
		return o
	}
	conditions = slices.DeleteFunc(conditions, func(each json.RawMessage) bool { return each == nil })
	var err error
	if delete(status, "conditions"); len(conditions) > 0 {
		status["conditions"], err = json.Marshal(conditions)
	}
	var encoded []byte
	if len(status) > 0 && err == nil {
		encoded, err = json.Marshal(status)
	}
	if err != nil {
		return o // Not reached: it was decoded from JSON.
	}
	if hidden, err := o.WithStatus(encoded); err == nil {
		return hidden
	}
	return o // Likewise.
}
