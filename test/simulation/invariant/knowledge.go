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

package invariant

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// limit is how long a parent waits at most for the informers (docs/reference/compatibility.md#d5.2).
const limit = 10 * time.Second

// expected is an acknowledged write that the next request has to show.
type expected struct {
	index    int
	at       time.Duration
	revision int64
	// created says that the object did not exist before, gone that it does not exist any more.
	created, gone bool
	// status is that of a parent, of which nothing else was written; nil for other writes.
	status map[string]any
	// name names the object, and verb with the changed field how it was written.
	name, verb string
}

// expect notes a write of an engine for the syncs that made it.
func (t *Tracker) expect(c *change) {
	e := expected{index: c.index, at: c.at, revision: c.Revision, created: c.before == nil, gone: c.after == nil, name: c.Namespace + "/" + c.Name}
	e.verb = c.Verb
	if c.after == nil && !c.deletes() {
		return // It lost its last finalizer, and with it went a target.
	}
	targets := 0
	fields := changed(c.before, c.after)
	if len(fields) == 1 && fields[0] == ofStatus {
		e.status = c.after.at("status")
	}
	for _, field := range fields {
		if c.before != nil && c.after != nil && asTarget(field) && c.Verb != "apply" { // Targets are patched.
			targets++
			if by := writerOfTarget(field, c.before, c.after); by != "" && !c.prunes(field) {
				e := e
				e.verb += " of " + field
				t.expects(syncing{c.engine, by, c.UID}, c.UID, e)
			}
		}
	}
	if targets > 0 {
		return // What else changed are defaults of the kind.
	}
	child := c.after
	if _, ok := child.controller(); !ok {
		child = c.before
	}
	if controller, parent := t.writerOf(child); controller != "" {
		t.expects(syncing{c.engine, controller, parent}, c.UID, e)
	}
}

func (t *Tracker) expects(key syncing, uid string, e expected) {
	if t.unseen[key] == nil {
		t.unseen[key] = map[string]expected{}
	}
	t.unseen[key][uid] = e
}

// Unacknowledged says that the engine does not know of a write, by its place among all writes: its response was lost, or nobody waits for it.
func (t *Tracker) Unacknowledged(place int) {
	for _, writes := range t.unseen {
		for uid, e := range writes {
			if e.index == place {
				delete(writes, uid)
			}
		}
	}
}

// checkKnowledge checks that a request shows what earlier syncs of the same parent wrote, unless the time has passed for which they are
// waited for.
func (t *Tracker) checkKnowledge(key syncing, c *Call) {
	writes := t.unseen[key]
	if len(writes) == 0 {
		return
	}
	delete(t.unseen, key)
	shown := map[string]object{key.parent: c.Request.Parent}
	for _, o := range c.Request.Children.All() {
		shown[hooks.Meta(o, "uid")] = o
	}
	for uid, e := range writes {
		if c.At-e.at >= limit {
			continue
		}
		o, ok := shown[uid]
		if _, owned := o.controller(); ok && uid != key.parent && !owned {
			continue // Adopted in this sync; the hook is shown it as it was before (docs/reference/contract.md#s8).
		}
		switch {
		case ok && e.gone && !o.deleting():
			t.violated(New(KnowledgeIsFresh, c.At, "%s, which %s deleted %v ago, is shown to its hook", e.name, c.Controller, c.At-e.at))
		case ok && uid == key.parent && e.status != nil && deferred(o, withoutSynced(parentRules(c.Request.Controller)[0], e.status)):
			// It was deferred, and shown to the hook before it was written (docs/reference/compatibility.md#d6).
		case ok && !e.gone && o.version() < e.revision:
			t.violated(New(KnowledgeIsFresh, c.At, "%s is shown to the hook of %s in version %d, which wrote version %d (%s) %v ago",
				e.name, c.Controller, o.version(), e.revision, e.verb, c.At-e.at))
		case !ok && e.created && t.written[uid] == e.index && t.declared(c, uid):
			t.violated(New(KnowledgeIsFresh, c.At, "%s, which %s created %v ago, is not shown to its hook", e.name, c.Controller, c.At-e.at))
		}
	}
}

// checkGeneration checks that no status says of a generation that it was observed which no hook was shown.
func (t *Tracker) checkGeneration(c *change) {
	before, _ := c.before.at("status")["observedGeneration"].(int64)
	after, ok := c.after.at("status")["observedGeneration"].(int64)
	if shown := t.generations[c.UID]; ok && after != before && after > shown {
		t.violated(New(GenerationShown, c.at, "status.observedGeneration of %s is %d, and the hook was shown the generation %d last", c.after, after, shown))
	}
}

// deferred reports whether an object is shown with a status before that was written. It is shown as the hook returned it, and so with the
// note that the schema of Realms may not have.
func deferred(shown object, written map[string]any) bool {
	status := maps.Clone(shown.at("status"))
	if _, kept := written["note"]; !kept && shown.kind() == hooks.Realm {
		delete(status, "note")
	}
	return reflect.DeepEqual(status, written)
}

// declared reports whether a request shows objects of the kind of an object.
func (t *Tracker) declared(c *Call, uid string) bool {
	kind := text(t.objects[uid]["kind"])
	for key := range c.Request.Children {
		if strings.HasPrefix(key, kind+".") {
			return true
		}
	}
	return false
}
