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
	"slices"
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

// unwritten remembers of which kinds a parent was told. The zero value is ready; it is safe for concurrent use.
type unwritten struct {
	mu   sync.Mutex
	told map[types.UID]map[schema.GroupKind]struct{}
}

// news reports whether a parent was not told of a kind yet, and remembers that it is.
func (u *unwritten) news(parent types.UID, kind schema.GroupKind) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.told[parent][kind]; ok {
		return false
	}
	if u.told == nil {
		u.told = map[types.UID]map[schema.GroupKind]struct{}{}
	}
	if u.told[parent] == nil {
		u.told[parent] = map[schema.GroupKind]struct{}{}
	}
	u.told[parent][kind] = struct{}{}
	return true
}

func (u *unwritten) knows(parent types.UID, kind schema.GroupKind) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.told[parent][kind]
	return ok
}

func (u *unwritten) forget(parent types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.told, parent)
}

// tellStatus records, once for each parent and kind, that a hook sets a status of a child that is not written
// (docs/reference/contract.md#s12.2). A hook that returns the status that it was shown sets nothing.
func (c *Control) tellStatus(parent *object.Object, in plan.Input) {
	var observed map[children.Key]*object.Object
	for i := range in.Desired {
		d := &in.Desired[i]
		status, ok := d.Content["status"].(map[string]any)
		if !ok || len(status) == 0 || c.unwritten.knows(parent.UID(), d.GroupKind()) {
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
		if c.unwritten.news(parent.UID(), d.GroupKind()) {
			c.config.Recorder.Warning(Reference(parent), ReasonStatusIgnored, fmt.Sprintf(
				"The hook sets the status of %s, which is not written: the status of a child belongs to the child's own controller. "+
					"Leave the field status out", d.Key))
		}
	}
}

// setsStatus reports whether a desired child has a status.
func setsStatus(desired []children.Desired) bool {
	return slices.ContainsFunc(desired, func(d children.Desired) bool {
		status, ok := d.Content["status"].(map[string]any)
		return ok && len(status) > 0
	})
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
