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
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// Beginnings of topics.
const (
	topicStatus   = "status/"
	topicOnDelete = "OnDelete/"
	topicWarning  = "warning/"
	topicLarge    = "large/"
)

// maxTopics is how many topics of one parent are remembered beside those of one sync. Beyond that all of them are reported once more.
const maxTopics = 256

// told remembers what parents were told that is told once. The zero value is ready; it is safe for concurrent use.
type told struct {
	mu      sync.Mutex
	parents map[types.UID]map[plan.Hash]struct{}
}

func (t *told) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.parents)
}

func (t *told) knows(parent types.UID, topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.parents[parent][plan.HashText(topic)]
	return ok
}

// tell notes that a parent was told, and reports whether it did not know before. The sync may have a number of such topics.
func (t *told) tell(parent types.UID, topic string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	topics := t.parents[parent]
	hash := plan.HashText(topic)
	if _, ok := topics[hash]; ok {
		return false
	}
	if topics == nil {
		if t.parents == nil {
			t.parents = map[types.UID]map[plan.Hash]struct{}{}
		}
		topics = map[plan.Hash]struct{}{}
		t.parents[parent] = topics
	}
	if len(topics) >= maxTopics+most {
		clear(topics)
	}
	topics[hash] = struct{}{}
	return true
}

func (t *told) forget(parent types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.parents, parent)
}

// reportLeft records, once for each change, which children differ and are left as they are because their method is OnDelete. No trial finds out what
// the API server makes of such a child: where all that differs may be its doing, nothing is said.
func (c *Control) reportLeft(parent *object.Object, p plan.Plan) {
	var left []string
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.Reason != plan.OnDelete || step.RecordOnly || step.Doubtful || len(step.Changed) == 0 {
			continue
		}
		if c.told.tell(p.Parent, topicOnDelete+changeOf(step), len(p.Steps)) {
			left = append(left, step.Key.String()+" ("+first(step.Changed)+")")
		}
	}
	if len(left) > 0 {
		c.config.Recorder.Warning(Reference(parent), nil, reasonNotUpdated, "Not updated: "+enumerate(left)+". The update method of the kind is "+
			"OnDelete, the default, which leaves children as they are until they are deleted. To have them updated, set "+
			"updateStrategy.method to InPlace or Recreate")
	}
}

// reportLarge records, once for each parent and kind, which children are applied server-side although their rule merges them.
func (c *Control) reportLarge(parent *object.Object, p plan.Plan, outcomes []plan.Outcome) {
	large := map[schema.GroupKind][]string{}
	for i := range outcomes {
		if o := &outcomes[i]; o.Large && o.Written != nil {
			large[o.GroupKind()] = append(large[o.GroupKind()], o.Key.String())
		}
	}
	for kind, names := range large {
		if !c.told.tell(p.Parent, topicLarge+kind.String(), 0) {
			continue
		}
		c.config.Recorder.Normal(Reference(parent), nil, reasonApplied, fmt.Sprintf(
			"Applied server-side, and not merged: %s. The record of what was applied would be too long for an annotation. Server-side apply keeps none. "+
				"To have all children of the kind applied so, set updateStrategy.apply to ServerSide", enumerate(names)))
	}
}

// changeOf returns a text that stands for a child and how it is to be changed.
func changeOf(step *plan.Step) string {
	var text strings.Builder
	text.WriteString(step.Key.String())
	for _, change := range step.Changed {
		fmt.Fprintf(&text, " %s=%x", change.Path, plan.HashOf(change.Desired))
	}
	return text.String()
}

// reportWarnings records, once for each parent, what the API server said about a write that it did.
func (c *Control) reportWarnings(parent *object.Object, p plan.Plan, o *plan.Outcome) {
	for _, text := range o.Warnings {
		if !c.told.tell(p.Parent, topicWarning+o.Key.GroupKind().String()+" "+text, len(p.Steps)) {
			continue
		}
		message := fmt.Sprintf("The API server warns about %s: %s", o.Key, text)
		if strings.Contains(text, "unknown field") || strings.Contains(text, "duplicate field") {
			message += ". It does not store such a field: correct it in the response of the hook, or leave it out"
		}
		c.config.Recorder.Warning(Reference(parent), childReference(o), reasonWarning, message)
	}
}
