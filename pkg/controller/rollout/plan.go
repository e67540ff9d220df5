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
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Response is what the hook returned for one revision.
type Response struct {
	// Desired are the children, in the order of the response and each once.
	Desired []Key
	// ResyncAfter is greater than 0 when the hook wants to be called again after that time.
	ResyncAfter time.Duration
	// Finalized as the hook set it.
	Finalized bool
}

// Input is what a plan is made from.
type Input struct {
	// Revisions are what Planner.Revisions returned.
	Revisions []Revision
	// Responses to the revisions, in the same order.
	Responses []Response
	// Observed returns a child as it is observed; false when it is missing. Children of other owners are missing.
	Observed func(Key) (Child, bool)
	// Unchanged tells whether applying the latest revision's version to a child would change nothing. It is asked only for
	// children that are observed, and only while some child is not on the latest revision.
	Unchanged func(Key) bool
}

// Assignment says which version of one child is desired.
type Assignment struct {
	// Key of the child.
	Key Key
	// Revision is the index of the revision whose response holds the desired version.
	Revision int
	// Keep is true when the child is to be left as it is, neither updated nor deleted: the revision that it is on does not
	// know it any more, and its turn to move has not come. Revision is meaningless then.
	Keep bool
}

// Plan says what to do now.
type Plan struct {
	// Children are all children that the latest revision desires, in the order of its response. Every other child is to be
	// deleted.
	Children []Assignment
	// Moved are the children whose update begins with this plan, in order.
	Moved []Key
	// Writes are to be done in this order, and all of them before any child is touched.
	Writes []Write
	// Updated is the parent's condition of that type.
	Updated Condition
	// ResyncAfter is the smallest that any response asks for; 0 for none.
	ResyncAfter time.Duration
	// Finalized is true when all responses say so.
	Finalized bool
}

// Plan decides how the rollout goes on. The status of the parent comes from the latest revision's response alone, with
// Updated set in it.
func (p *Planner) Plan(in Input) (*Plan, error) {
	if len(in.Revisions) == 0 || len(in.Revisions) != len(in.Responses) {
		return nil, errors.New("a rollout needs the latest revision and one response for each revision")
	}
	parent := &unstructured.Unstructured{Object: in.Revisions[0].Parent}
	r := &run{planner: p, in: in, namespace: parent.GetNamespace(), desired: map[Key]bool{}, returned: map[Key]bool{}}
	for _, key := range in.Responses[0].Desired {
		if p.rolls(key) {
			r.desired[key] = true
		}
	}
	r.claims = p.claimsOf(r.namespace, in.Revisions, r.desired)
	r.settle()
	plan := &Plan{Finalized: true}
	plan.Updated = r.advance()
	plan.Moved = r.moved
	plan.Children = r.assignments()
	plan.Writes = p.writes(parent, in.Revisions, r.claims)
	for _, a := range in.Responses {
		plan.Finalized = plan.Finalized && a.Finalized
		if a.ResyncAfter > 0 && (plan.ResyncAfter == 0 || a.ResyncAfter < plan.ResyncAfter) {
			plan.ResyncAfter = a.ResyncAfter
		}
	}
	return plan, nil
}

// run is the state of making one plan.
type run struct {
	planner   *Planner
	in        Input
	namespace string
	// desired are the rolling children that the latest revision desires.
	desired map[Key]bool
	claims  claims
	moved   []Key
	// versions are the children that each older revision's response holds.
	versions []map[Key]bool
	// returned remembers what Unchanged returned, for it may be costly.
	returned map[Key]bool
}

func (r *run) unchanged(key Key) bool {
	response, ok := r.returned[key]
	if !ok {
		response = r.in.Unchanged(key)
		r.returned[key] = response
	}
	return response
}

// settle gives the children to the latest revision for which there is nothing to wait: new ones, and those that it would
// not change.
func (r *run) settle() {
	r.versions = make([]map[Key]bool, len(r.in.Responses))
	for n, a := range r.in.Responses[1:] {
		r.versions[n+1] = map[Key]bool{}
		for _, key := range a.Desired {
			r.versions[n+1][key] = true
		}
	}
	for key := range r.desired {
		index, claimed := r.claims[key]
		if !claimed {
			r.claims[key] = 0
			continue
		}
		if index == 0 {
			continue
		}
		if _, observed := r.in.Observed(key); observed {
			if r.unchanged(key) {
				r.claims[key] = 0
			}
		} else if !r.versions[index][key] {
			// There is nothing to create it from but the latest version.
			r.claims[key] = 0
		}
	}
}

// advance moves children to the latest revision, in the order of its response, as long as the children in work allow it
// (docs/reference/contract.md#s14.4): those that are on it and not happy. A child moves when no child of another kind is in work, and of its
// own kind fewer than the rule's limit.
func (r *run) advance() Condition {
	order := r.in.Responses[0].Desired
	if r.finished() {
		return onLatest(r.in.Revisions[0].Object.Name)
	}
	work := r.inWork(order)
	total := map[schema.GroupKind]int{}
	for key := range r.desired {
		total[key.groupKind()]++
	}
	for _, key := range order {
		if !r.desired[key] || r.claims[key] == 0 {
			continue
		}
		gk := key.groupKind()
		limit := r.planner.config.Rules[gk].limit(total[gk])
		if work.all-work.byKind[gk] > 0 || work.byKind[gk] >= limit {
			break
		}
		r.claims[key] = 0
		r.moved = append(r.moved, key)
		work.add(gk)
	}
	if len(r.moved) > 0 {
		return progressing(r.namespace, r.moved)
	}
	return waiting(work.reasons)
}

// finished tells that all children are on the latest revision.
func (r *run) finished() bool {
	for _, index := range r.claims {
		if index != 0 {
			return false
		}
	}
	return true
}

// work counts the children in work.
type work struct {
	all    int
	byKind map[schema.GroupKind]int
	// reasons why the children that were found in work are not happy, in the order of the response.
	reasons []string
}

func (w *work) add(gk schema.GroupKind) {
	w.all++
	w.byKind[gk]++
}

func (r *run) inWork(order []Key) *work {
	w := &work{byKind: map[schema.GroupKind]int{}}
	for _, key := range order {
		if !r.desired[key] || r.claims[key] != 0 {
			continue
		}
		if reason := r.unhappy(key); reason != "" {
			w.add(key.groupKind())
			w.reasons = append(w.reasons, reason)
		}
	}
	return w
}

// assignments says for all children, rolling or not, which version is desired.
func (r *run) assignments() []Assignment {
	out := make([]Assignment, 0, len(r.in.Responses[0].Desired))
	for _, key := range r.in.Responses[0].Desired {
		index := r.claims[key]
		out = append(out, Assignment{Key: key, Revision: index, Keep: index != 0 && !r.versions[index][key]})
	}
	return out
}
