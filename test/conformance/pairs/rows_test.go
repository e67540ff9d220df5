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

package pairs

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

// padding makes a child so large that its event comes after that of a parent that is written later.
const padding = 32 << 10

// TestPairs has one server for all.
func TestPairs(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{})
	t.Run("NoChangeIsMissed", func(t *testing.T) { noChangeIsMissed(t, e) })
	t.Run("Rows", func(t *testing.T) { rows(t, e) })
}

func rows(t *testing.T, e *fixture.Environment) {
	for _, c := range combinations {
		for _, row := range []struct {
			name string
			run  func(*pair)
		}{
			{"BothSeeEveryChange", bothSee},
			{"TheSecondGoesOnWhenTheFirstDeselects", deselected},
			{"TheSecondGoesOnWhenTheFirstIsDeleted", deleted},
			{"BothGoOnWhenTheFirstIsEdited", edited},
			{"BothWriteTheParentAtTheSameMoment", bothWrite},
			{"AFailingHookHoldsOnlyItsOwnController", failing},
		} {
			t.Run(c.name+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				row.run(newPair(t, e, c.first, c.second, padding))
			})
		}
	}
}

// changes is how often a row changes its parent.
const changes = 6

func bothSee(p *pair) {
	p.parent("p")
	for n := range changes {
		generation := p.change("p", n)
		p.sees(p.first, "p", generation)
		p.sees(p.second, "p", generation)
	}
}

// deselected changes a parent in the same write that takes it from the first controller, and while it is gone.
func deselected(p *pair) {
	p.parent("p")
	for n := range changes {
		p.change("p", 2*n+1)
		p.Patch(fixture.Things, "p", fmt.Sprintf(`{"metadata":{"labels":{%q:"no"}},"spec":{"n":"%d"}}`, firstLabel, 2*n+1))
		generation := p.change("p", 2*n+2)
		p.sees(p.second, "p", generation)
		p.Patch(fixture.Things, "p", fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"}}}`, firstLabel))
		p.sees(p.first, "p", generation)
	}
}

func deleted(p *pair) {
	p.parent("p")
	p.sees(p.first, "p", 1)
	for n := range changes / 2 {
		p.change("p", n)
	}
	p.first.Delete()
	for n := range changes / 2 {
		p.sees(p.second, "p", p.change("p", 100+n))
	}
	p.first.AwaitGone()
	p.sees(p.second, "p", p.change("p", 1000))
}

func edited(p *pair) {
	p.parent("p")
	p.sees(p.first, "p", 1)
	for n := range changes {
		p.change("p", 2*n)
		if n%2 == 0 {
			// A new instance of the first controller, with the same hook.
			p.first.Patch(fmt.Sprintf(`{"spec":{"resyncPeriodSeconds":%d}}`, 1000+n))
		}
		p.sees(p.second, "p", p.change("p", 2*n+1))
	}
	p.first.AwaitReady()
	generation := p.change("p", 1000)
	p.sees(p.first, "p", generation)
	p.sees(p.second, "p", generation)
}

// bothWrite has both write the parent, a composite its status and a decorator its annotations, while its spec changes.
func bothWrite(p *pair) {
	p.parent("p")
	for n := range changes {
		p.change("p", n)
	}
	last := fmt.Sprint(changes - 1)
	for _, m := range p.members() {
		p.Await(fixture.Things, "p", "to have what "+m.Name+" writes", func(o *unstructured.Unstructured) bool {
			if m.definition.Kind == fixture.Composite {
				return fixture.Value(o, "status", "n") == last
			}
			return fixture.Value(o, "metadata", "annotations", m.definition.Name[len(p.Name)+1:]) == last
		})
	}
	p.Idle(p.first.Controller)
	p.Idle(p.second.Controller)
}

// failing has the hook of the first fail: the second must not wait with it.
func failing(p *pair) {
	p.parent("p")
	p.sees(p.first, "p", 1)
	p.first.script.Respond(func(*fixture.Call) (*fixture.Reply, error) { return nil, fmt.Errorf("out of order") })
	for n := range changes {
		p.sees(p.second, "p", p.change("p", n))
	}
}
