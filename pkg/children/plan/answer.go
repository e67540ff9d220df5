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

package plan

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Response stands for the children of a hook's response as the hook wrote them: equal ones have equal Responses. The zero Response is
// none.
type Response uint64

// Response returns the Response for a JSON array of children. scope is what else decides about what is desired, apart from what
// never changes for a parent and a controller: the selector, for one.
func (m *Memory) Response(children []byte, scope string) Response {
	var h maphash.Hash
	h.SetSeed(m.seed)
	// No part of a JSON array ends in a zero.
	_, _ = h.Write(children)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(scope)
	return Response(h.Sum64())
}

// Responded takes note that a plan was made from a response.
func (m *Memory) Responded(parent types.UID, a Response, p Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	desired := len(p.failed)
	for i := range p.Steps {
		if p.Steps[i].content != nil {
			desired++
		}
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.content == nil {
			continue
		}
		// A child whose write failed may be known in another desired state still: that one is not the response's.
		if r := m.find(parent, step.Key, step.desired); r != nil {
			r.response, r.siblings = a, desired
		}
	}
}

// Settled reports whether a plan for a response that was planned from before would do nothing, because the observed children are
// the desired ones and each needed nothing in the version in which it is observed. It is false for a response without children.
func (m *Memory) Settled(parent types.UID, a Response, observed []*object.Object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.parents[parent]
	if len(observed) == 0 || len(known) < len(observed) {
		return false
	}
	m.asked++
	for _, o := range observed {
		r := known.get(KeyOf(o))
		if r == nil || r.response != a || r.siblings != len(observed) || r.settledAt != o.ResourceVersion() || o.Deleting() {
			return false
		}
		if r.seen == m.asked {
			// It is shown twice, since two rules name its resource, so that a sibling may be missing.
			return false
		}
		r.seen = m.asked
	}
	return true
}
