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

package preview

import (
	"bytes"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Verdicts are what is known about a plan of children beside the plan.
type Verdicts struct {
	// Observed are the children that the parent has, and Rules the declared kinds.
	Observed []*object.Object
	Rules    children.Rules
	// Err is about the children for which no step could be worked out.
	Err error
	// Held says that deletions would be held.
	Held bool
	// Refused are the errors of a dry run.
	Refused map[children.Key]error
	// Untried are the children for which no dry run could be made, since the plan creates their namespace.
	Untried sets.Set[children.Key]
	// Conflict returns why a child cannot be created, nil if it can be.
	Conflict func(child children.Key) error
	// Text is the text of an error for people.
	Text func(error) string
}

// Children takes note of what would be done with the children. The error is that of the sync.
func (n *Notes) Children(made plan.Plan, v *Verdicts) error {
	errs := []error{v.Err}
	for i := range made.Steps {
		step := &made.Steps[i]
		child := stepPlan(step)
		cause := v.Refused[step.Key]
		if step.Action == plan.Create {
			if conflict := v.Conflict(step.Key); conflict != nil {
				cause, child.Reason = conflict, reasonConflict
			}
		}
		switch {
		case v.Held && step.Deletes():
			child.Action, child.Reason = v1alpha1.ChildRefuse, reasonHeld
			child.Message = "spec.deletionGuard.maxDeletions does not allow it now: the deletion would be held until it is confirmed"
		case cause != nil:
			child.Action, child.Message = v1alpha1.ChildRefuse, v.Text(cause)
			if child.Reason == "" {
				child.Reason = reasonRefused
			}
			errs = append(errs, cause)
		case v.Untried.Has(step.Key):
			child.Message = "no dry run was made: its namespace is created first"
		}
		n.Plan.Children = append(n.Plan.Children, child)
	}
	n.rest(made, v)
	return errors.Join(errs...)
}

// Reasons of a refusal, beside those of plans.
const (
	reasonConflict = "Conflict"
	reasonHeld     = "DeletionsHeld"
	reasonRefused  = "RefusedByDryRun"
	reasonFailed   = "Failed"
	reasonRollout  = "Rollout"
)

// rest takes note of the children that a plan does not deal with.
func (n *Notes) rest(made plan.Plan, v *Verdicts) {
	for _, key := range made.Failed {
		failed := v1alpha1.ChildPlan{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Action: v1alpha1.ChildRefuse, Reason: reasonFailed}
		if rule, ok := v.Rules.For(key.GroupKind()); ok {
			failed.APIVersion = rule.Kind.GroupVersion().String()
		}
		failed.Message = v.Text(v.Err)
		n.Plan.Children = append(n.Plan.Children, failed)
	}
	left := sets.New(made.Kept...)
	for _, o := range v.Observed {
		if left.Has(children.KeyOf(o)) {
			kept := of(o, v1alpha1.ChildLeave)
			kept.Reason, kept.Message = reasonRollout, "the rolling update has not reached it"
			n.Plan.Children = append(n.Plan.Children, kept)
		}
	}
}

// messages explain why a child is left as it is.
var messages = map[plan.Reason]string{
	plan.OnDelete: "it differs, and its update method OnDelete leaves it until it is deleted",
	plan.Deleting: "it is being deleted",
	plan.Flapping: "it is changed back after every write, and is left alone for a while",
	plan.Stale:    "it changed after it was observed, and is looked at again",
	plan.Untried:  "it would have to be deleted, and it cannot be tried whether the differences are the API server's doing",
}

// stepPlan returns a step as people see it.
func stepPlan(s *plan.Step) v1alpha1.ChildPlan {
	child := v1alpha1.ChildPlan{
		APIVersion: s.Resource.GroupVersion().String(), Kind: s.Kind, Namespace: s.Namespace, Name: s.Name,
		Action: v1alpha1.ChildAction(s.Action), Reason: string(s.Reason), Message: messages[s.Reason], FieldManager: s.Manager,
	}
	for _, c := range s.ShownChanges() {
		child.Changes = append(child.Changes, fieldChange(c.Path, c.Observed, c.Desired))
	}
	if s.Action == plan.Create {
		body := slices.Clone(s.Body)
		if s.Secret() {
			body = redact(body)
		}
		child.Object = &runtime.RawExtension{Raw: bytes.TrimSpace(body)}
	}
	return child
}
