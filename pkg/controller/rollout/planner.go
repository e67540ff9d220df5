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
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// Rule says how children of one kind roll.
type Rule struct {
	// InPlace is true for RollingInPlace, and false for RollingRecreate.
	InPlace bool
	// Conditions that an updated child must have before the next child moves.
	Conditions []v1alpha1.StatusConditionCheck
	// MaxUnavailable is how many children of the kind may be in work at the same time: a number, or a percentage of the
	// children of the kind that the hook desires, rounded down. At least 1, which is also what nil means.
	MaxUnavailable *intstr.IntOrString
}

// RuleOf returns the rule of an update strategy; false when it does not roll. The strategy may be nil.
func RuleOf(s *v1alpha1.CompositeControllerChildUpdateStrategy) (Rule, bool) {
	if s == nil || (s.Method != v1alpha1.ChildUpdateRollingInPlace && s.Method != v1alpha1.ChildUpdateRollingRecreate) {
		return Rule{}, false
	}
	return Rule{
		InPlace:        s.Method == v1alpha1.ChildUpdateRollingInPlace,
		Conditions:     s.StatusChecks.Conditions,
		MaxUnavailable: s.MaxUnavailable,
	}, true
}

// limit is how many of the given number of children may be in work. A value that is neither number nor percentage counts as 1.
func (r Rule) limit(children int) int {
	if r.MaxUnavailable == nil {
		return 1
	}
	number, isPercent := strings.CutSuffix(r.MaxUnavailable.String(), "%")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 1
	}
	if isPercent {
		n = children * min(max(n, 0), 100) / 100
	}
	return max(1, n)
}

// Config configures a Planner. It belongs to one controller and does not change.
type Config struct {
	// Resource of the parents.
	Resource schema.GroupVersionResource
	// Kind of the parents.
	Kind string
	// FieldPaths are the dot-separated paths of the parent's fields that make up a revision. Empty means ["spec"]. Paths
	// lead through objects only, not into lists.
	FieldPaths []string
	// GenerateSelector is the controller's generateSelector, which decides on the labels of revisions.
	GenerateSelector bool
	// Namespace of the revisions of cluster-scoped parents: the server's own.
	Namespace string
	// Rules of the child kinds that roll.
	Rules map[schema.GroupKind]Rule
}

// Planner plans the rollouts of one controller's parents. It is immutable and safe for concurrent use.
type Planner struct {
	config Config
	paths  [][]string
}

// New returns a planner. The configuration must not be modified afterwards.
func New(config Config) *Planner {
	if len(config.FieldPaths) == 0 {
		config.FieldPaths = []string{"spec"}
	}
	p := &Planner{config: config}
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
