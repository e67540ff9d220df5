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

package childcontrol

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// ReasonStatusIgnored is the reason of an event about a child whose status a hook tries to set.
const ReasonStatusIgnored = "ChildStatusIgnored"

// ignoredStatus remembers of which kinds it was reported on a parent that their status is not written. The zero value is ready; it is
// safe for concurrent use.
type ignoredStatus struct {
	mu       sync.Mutex
	reported map[types.UID]map[schema.GroupKind]struct{}
}

// report reports whether a kind was not reported on a parent yet, and remembers that it is.
func (s *ignoredStatus) report(parent types.UID, kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.reported[parent][kind]; ok {
		return false
	}
	if s.reported == nil {
		s.reported = map[types.UID]map[schema.GroupKind]struct{}{}
	}
	if s.reported[parent] == nil {
		s.reported[parent] = map[schema.GroupKind]struct{}{}
	}
	s.reported[parent][kind] = struct{}{}
	return true
}

func (s *ignoredStatus) isReported(parent types.UID, kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.reported[parent][kind]
	return ok
}

func (s *ignoredStatus) forget(parent types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reported, parent)
}

// reportStatus records, once for each parent and kind, that a hook sets a status of a child that is not written
// (docs/reference/contract.md#s12.2). A hook that returns the status that it was shown sets nothing.
func (c *Control) reportStatus(parent *object.Object, in plan.Input) {
	var observed map[children.Key]*object.Object
	for i := range in.Desired {
		d := &in.Desired[i]
		status, ok := d.Content["status"].(map[string]any)
		if !ok || len(status) == 0 || c.ignored.isReported(in.Parent, d.GroupKind()) {
			continue
		}
		if observed == nil {
			observed = make(map[children.Key]*object.Object, len(in.Observed))
			for _, o := range in.Observed {
				observed[plan.KeyOf(o)] = o
			}
		}
		rule, _ := c.config.Rules.For(d.GroupKind())
		o := observed[d.Key]
		if o == nil && !rule.HasStatus || o != nil && hasStatus(o, status) {
			continue
		}
		if c.ignored.report(in.Parent, d.GroupKind()) {
			c.config.Recorder.Warning(Reference(parent), ReasonStatusIgnored, fmt.Sprintf(
				"The hook sets the status of %s, which is not written: the status of a child belongs to the child's own controller. "+
					"Leave the field status out", d.Key))
		}
	}
}

// hasStatus reports whether a child's status is the one given.
func hasStatus(o *object.Object, status map[string]any) bool {
	raw, ok := o.Field("status")
	if !ok {
		return false
	}
	var current map[string]any
	return utiljson.Unmarshal(raw, &current) == nil && equality.Semantic.DeepEqual(current, status)
}
