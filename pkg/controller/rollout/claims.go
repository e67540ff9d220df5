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
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
)

// claims is the index of the revision that each rolling child is on. Children that the latest revision does not desire have no
// entry.
type claims map[children.Key]int

// claimsOf reads what the revisions claim (docs/reference/contract.md#s14.3). Kinds that no longer roll and children that are no longer
// desired are dropped. A child that two revisions claim, because a write was interrupted, is on the newer one.
func (p *Planner) claimsOf(parentNamespace string, revisions []Revision, desired map[children.Key]bool) claims {
	out := claims{}
	for index, r := range revisions {
		for _, claimed := range r.Object.Children {
			if _, ok := p.config.Rules[schema.GroupKind{Group: claimed.APIGroup, Kind: claimed.Kind}]; !ok {
				continue
			}
			for _, name := range claimed.Names {
				key := absoluteKey(parentNamespace, claimed.APIGroup, claimed.Kind, name)
				if _, taken := out[key]; desired[key] && !taken {
					out[key] = index
				}
			}
		}
	}
	return out
}

// children returns the claims of one revision as a ControllerRevision holds them, in a fixed order.
func (c claims) children(parentNamespace string, index int) []v1alpha1.ControllerRevisionChildren {
	names := map[schema.GroupKind][]string{}
	for key, at := range c {
		if at == index {
			names[key.GroupKind()] = append(names[key.GroupKind()], relativeName(parentNamespace, key))
		}
	}
	out := make([]v1alpha1.ControllerRevisionChildren, 0, len(names))
	for _, gk := range slices.SortedFunc(maps.Keys(names), compareGroupKinds) {
		slices.Sort(names[gk])
		out = append(out, v1alpha1.ControllerRevisionChildren{APIGroup: gk.Group, Kind: gk.Kind, Names: names[gk]})
	}
	return out
}

func compareGroupKinds(a, b schema.GroupKind) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
}

// sameChildren reports whether two lists claim the same children, in any order.
func sameChildren(a, b []v1alpha1.ControllerRevisionChildren) bool {
	type child struct{ group, kind, name string }
	flatten := func(list []v1alpha1.ControllerRevisionChildren) map[child]bool {
		out := map[child]bool{}
		for _, c := range list {
			for _, name := range c.Names {
				out[child{c.APIGroup, c.Kind, name}] = true
			}
			if len(c.Names) == 0 {
				out[child{c.APIGroup, c.Kind, ""}] = true
			}
		}
		return out
	}
	return maps.Equal(flatten(a), flatten(b))
}
