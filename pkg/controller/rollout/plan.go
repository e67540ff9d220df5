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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// Rolls reports whether children with an update method roll.
func Rolls(method v1alpha1.ChildUpdateMethod) bool {
	return method == v1alpha1.ChildUpdateRollingInPlace || method == v1alpha1.ChildUpdateRollingRecreate
}

// limit is how many of the given number of children of a kind may be in work: a number, or a percentage rounded down, at least 1. A value that is
// neither counts as 1, as does none.
func limit(maxUnavailable *intstr.IntOrString, children int) int {
	n := 1
	if maxUnavailable != nil {
		n, _ = intstr.GetScaledValueFromIntOrPercent(maxUnavailable, children, false)
	}
	return max(1, n)
}

// DefaultHistoryLimit is Config.HistoryLimit where a controller does not say: that of a Deployment.
const DefaultHistoryLimit = 10

// Config configures a Planner. It belongs to one controller and does not change.
type Config struct {
	// Resource of the parents.
	Resource schema.GroupVersionResource
	// FieldPaths are the dot-separated paths of the parent's fields that make up a revision. Empty means ["spec"]. Paths
	// lead through objects only, not into lists.
	FieldPaths []string
	// HistoryLimit is how many revisions of each parent are kept on which no children are, beside the latest.
	HistoryLimit int
	// GenerateSelector is the controller's generateSelector, which decides on the labels of revisions.
	GenerateSelector bool
	// Namespace of the revisions of cluster-scoped parents: the server's own.
	Namespace string
	// Rules are how the child kinds roll that do.
	Rules map[schema.GroupKind]v1alpha1.CompositeControllerChildUpdateStrategy
	// Unserved reports whether a kind without a rule may be one that rolls and that the cluster does not serve at present: which kind that
	// is cannot be known then. Nil: there is none.
	Unserved func(schema.GroupKind) bool
}

// Planner plans the rollouts of one controller's parents. It is immutable and safe for concurrent use.
type Planner struct {
	config Config
	paths  [][]string
	// recorded are the field paths as a revision records them, and selector selects the revisions of parents of the resource.
	recorded string
	selector labels.Selector
}

// New returns a planner. The configuration must not be modified afterwards.
func New(config Config) *Planner {
	if len(config.FieldPaths) == 0 {
		config.FieldPaths = []string{"spec"}
	}
	p := &Planner{config: config}
	if encoded, err := json.Marshal(config.FieldPaths); err == nil {
		p.recorded = string(encoded)
	}
	p.selector = labels.SelectorFromSet(p.identityLabels())
	for _, path := range config.FieldPaths {
		p.paths = append(p.paths, strings.Split(path, "."))
	}
	return p
}

// Active reports whether any child kind rolls. Otherwise there are no revisions, and the hook is called once with the parent as
// it is.
func (p *Planner) Active() bool { return len(p.config.Rules) > 0 }

func (p *Planner) rolls(key children.Key) bool {
	_, ok := p.config.Rules[key.GroupKind()]
	return ok
}

// unserved reports whether children of a kind may roll when the cluster serves it again.
func (p *Planner) unserved(kind schema.GroupKind) bool {
	_, ok := p.config.Rules[kind]
	return !ok && p.config.Unserved != nil && p.config.Unserved(kind)
}

// Response is what the hook returned for one revision.
type Response struct {
	// Desired are the children, in the order of the response and each once.
	Desired []children.Desired
	// ResyncAfter is the time after which the hook is to be called again; 0 for none.
	ResyncAfter time.Duration
	// Finalized as the hook set it.
	Finalized bool
}

// Input is what a plan is made from.
type Input struct {
	// Revisions are what Planner.Revisions returned.
	Revisions []Revision
	// Responses to the [Live] ones of the revisions, in the same order.
	Responses []Response
	// Observed returns an observed child; false when it is missing. A child of another owner is missing.
	Observed func(children.Key) (Child, bool)
	// Unchanged reports whether applying the latest revision's version to a child would change nothing. It is called only for
	// observed children, at most once for each, and only while some child is not on the latest revision.
	Unchanged func(children.Desired) bool
}

// Plan says what to do now.
type Plan struct {
	// Desired are the children that the latest revision desires, each in the version of the revision that it is on, in the order of the
	// latest response. Every other child is deleted, but for Kept.
	Desired []children.Desired
	// Kept are children that are neither updated nor deleted: the response for the revision that such a one is on no longer holds it, and it cannot
	// move to the latest revision yet.
	Kept []children.Key
	// Moved are the children whose update begins with this plan, in order.
	Moved []children.Key
	// Writes are done in this order, all of them before any child is written.
	Writes []Write
	// Updated is the parent's condition of that type.
	Updated Condition
	// Outdated is how many children are not on the latest revision, also those that the cluster does not serve at present.
	Outdated int
	// ResyncAfter is the smallest of the responses; 0 for none.
	ResyncAfter time.Duration
	// Finalized is true when all responses say so.
	Finalized bool
}

// Plan decides the next step of the rollout. The status of the parent comes from the latest revision's response alone, with
// Updated set in it.
func (p *Planner) Plan(in Input) (*Plan, error) {
	if len(in.Revisions) == 0 || len(Live(in.Revisions)) != len(in.Responses) {
		return nil, errors.New("a rollout needs the latest revision and one response for each revision")
	}
	parent := &unstructured.Unstructured{Object: in.Revisions[0].Parent}
	r := &run{planner: p, in: in, namespace: parent.GetNamespace(), returned: map[children.Key]bool{}}
	for _, a := range in.Responses {
		version := make(map[children.Key]children.Desired, len(a.Desired))
		for _, d := range a.Desired {
			version[d.Key] = d
		}
		r.versions = append(r.versions, version)
	}
	for _, d := range in.Responses[0].Desired {
		if p.rolls(d.Key) {
			r.rolling = append(r.rolling, d.Key)
		}
	}
	r.claims = p.claimsOf(r.namespace, in.Revisions, r.versions[0])
	r.settle()
	plan := &Plan{Finalized: true, Updated: r.advance()}
	plan.Moved, plan.Outdated = r.moved, r.claims.outdated()
	plan.Desired, plan.Kept = r.desired()
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
	// rolling are the rolling children that the latest revision desires, in the order of its response.
	rolling []children.Key
	claims  claims
	moved   []children.Key
	// versions are the children that each revision's response holds.
	versions []map[children.Key]children.Desired
	// returned caches Unchanged, which may be costly.
	returned map[children.Key]bool
}

func (r *run) unchanged(key children.Key) bool {
	unchanged, ok := r.returned[key]
	if !ok {
		unchanged = r.in.Unchanged(r.versions[0][key])
		r.returned[key] = unchanged
	}
	return unchanged
}

// settle moves children to the latest revision that need not wait: new ones, and those that it would not change.
func (r *run) settle() {
	for _, key := range r.rolling {
		index, claimed := r.claims[key]
		_, observed := r.in.Observed(key)
		_, held := r.versions[index][key]
		// What only the latest response holds can only be created from that.
		if !claimed || observed && index != 0 && r.unchanged(key) || !observed && !held {
			r.claims[key] = 0
		}
	}
}

// advance moves children to the latest revision, in the order of its response (docs/reference/contract.md#s14.4). A child is in
// work when it is on the latest revision and not ready. A child moves when no child of another kind is in work, and fewer of
// its own kind than the rule's limit.
func (r *run) advance() Condition {
	if r.claims.outdated() == 0 {
		return onLatest(r.in.Revisions[0].Object.Name)
	}
	total, busy, all := map[schema.GroupKind]int{}, map[schema.GroupKind]int{}, 0
	var reasons []string
	for _, key := range r.rolling {
		gk := key.GroupKind()
		if total[gk]++; r.claims[key] != 0 {
			continue
		}
		if reason := r.notReady(key); reason != "" {
			busy[gk], all, reasons = busy[gk]+1, all+1, append(reasons, reason)
		}
	}
	for _, key := range r.rolling {
		gk := key.GroupKind()
		if r.claims[key] == 0 {
			continue
		}
		if all > busy[gk] || busy[gk] >= limit(r.planner.config.Rules[gk].MaxUnavailable, total[gk]) {
			break
		}
		r.claims[key], r.moved = 0, append(r.moved, key)
		busy[gk], all = busy[gk]+1, all+1
	}
	if len(r.moved) > 0 {
		return progressing(r.namespace, r.moved)
	}
	return waiting(append(reasons, r.withdrawn()...))
}

// withdrawn are the reasons why children that the cluster does not serve at present are not on the latest revision, in a fixed order.
func (r *run) withdrawn() []string {
	var reasons []string
	for _, key := range slices.SortedFunc(maps.Keys(r.claims), children.Key.Compare) {
		if r.claims[key] != 0 && !r.planner.rolls(key) {
			reasons = append(reasons, "the cluster does not serve child "+key.Kind+" "+relativeName(r.namespace, key)+" at present")
		}
	}
	return reasons
}

// desired returns the version of every child that is desired, rolling or not, and the children that are kept as they are.
func (r *run) desired() (desired []children.Desired, kept []children.Key) {
	for _, latest := range r.in.Responses[0].Desired {
		if d, held := r.versions[r.claims[latest.Key]][latest.Key]; held {
			desired = append(desired, d)
		} else {
			kept = append(kept, latest.Key)
		}
	}
	return desired, kept
}

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
	if rule.Method == v1alpha1.ChildUpdateRollingInPlace {
		if seen, _ := child.Value("status", "observedGeneration").(int64); seen > 0 && seen < child.Generation() {
			return fmt.Sprintf("child %s has not observed its latest change: status.observedGeneration is %d, metadata.generation is %d",
				name, seen, child.Generation())
		}
	}
	for _, check := range rule.StatusChecks.Conditions {
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
