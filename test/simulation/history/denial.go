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

package history

import (
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

const (
	// endured is how long a controller has for an edit while writes are denied.
	endured = 3 * time.Minute
	// forgiven is the time after which the engine has tried again what was denied: longer than the longest back-off.
	forgiven = 6 * time.Minute
)

func (r *runner) denyWrites(s Step) {
	p := placeOf(s.Kind, s.On)
	r.denied[p], r.denials = true, true
	r.note("admin", "a webhook denies the engine's writes of %s", p.path())
	r.happened()
}

func (r *runner) allowWrites(s Step) {
	if p := placeOf(s.Kind, s.On); r.denied[p] {
		delete(r.denied, p)
		r.note("admin", "writes of %s are denied no more", p.path())
		r.happened()
	}
}

// denies reports whether a write is one that a webhook denies.
func (r *runner) denies(a apiserver.Admission) bool {
	if a.User != world.ClusterUser || a.Operation != "UPDATE" || a.Subresource != "" {
		return false
	}
	kind := hooks.ByResource(a.Group, a.Resource)
	return kind >= 0 && r.denied[place{kind, a.Namespace, a.Name}]
}

// endure lets everything happen for a while, in which what is denied is tried again and again, and checks that edits of controllers have
// an effect all the same.
func (r *runner) endure() {
	r.faults = faults{}
	r.pass(Step{Millis: endured.Milliseconds()})
	if !r.check() && r.engine != none {
		r.result.Violation = r.reportable(r.tracker.EditsSeen(r.world.Now()))
	}
}

// forgive ends denials, and waits until the engine tries again.
func (r *runner) forgive() {
	if r.denials {
		clear(r.denied)
		r.wait(forgiven)
	}
}
