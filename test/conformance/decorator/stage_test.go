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

package decorator

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const limit = cluster.Limit

// Targets without and with a status subresource.
var (
	bareThings = schema.GroupVersionResource{Group: fixture.Group, Version: "v1", Resource: "barethings"}
	fullThings = fixture.Things
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// TestDecorators has one server for all.
func TestDecorators(t *testing.T) {
	e := fixture.SetUp(t, fixture.Options{
		Limit: limit, Resources: []cluster.CustomResource{{Resource: bareThings, Kind: "BareThing", WithoutStatus: true}},
	})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture.Environment)
	}{
		// Normal events of the whole process have one budget, which the others spend.
		{"AnEventTellsOfADeletedTarget", tellOfDeletedTarget},
		{"AChangeOfARelatedObjectCallsTheMatchingTargetsOnly", matchingTargetsOnly},
		{"Attachments", attachments},
		{"Targets", targets},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

// A stage is one test of a DecoratorController, whose hooks are one script.
type stage struct {
	*fixture.Test

	script *fixture.Script
	// running is the controller from run on.
	running *controllers.Controller
}

func newStage(t *testing.T, e *fixture.Environment, decide func(*fixture.Call) *fixture.Reply) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(fixture.Decorator)}
	s.responses(decide)
	s.Handle("/sync", s.script)
	s.Handle("/finalize", s.script)
	return s
}

// responses changes what the hooks respond.
func (s *stage) responses(decide func(*fixture.Call) *fixture.Reply) {
	s.script.Respond(func(c *fixture.Call) (*fixture.Reply, error) { return decide(c), nil })
}

// run creates the controller, changed by edit, and waits until it runs.
func (s *stage) run(edit func(*v1alpha1.DecoratorControllerSpec), targets ...schema.GroupVersionResource) {
	s.T.Helper()
	s.running = s.Run(fixture.Definition{Kind: fixture.Decorator, Parents: targets, Sync: s.At("/sync"), EditDecorator: edit})
}

// attaches declares a kind of attachments.
func attaches(spec *v1alpha1.DecoratorControllerSpec, r schema.GroupVersionResource, method v1alpha1.ChildUpdateMethod) {
	spec.Attachments = append(spec.Attachments, fixture.Child{Resource: r, Method: method}.OfDecorator())
}

// settled waits until the controller has dealt with all that was written before, and returns how often the hooks were called.
func (s *stage) settled() int {
	s.T.Helper()
	s.Settle()
	return s.script.All()
}

// nothing is a response that changes nothing.
func nothing(*fixture.Call) *fixture.Reply { return &fixture.Reply{} }
