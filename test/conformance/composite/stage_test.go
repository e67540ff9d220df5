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

// Package composite holds what the checklist of the contract (docs/reference/contract.md#s22) has of CompositeControllers alone, as tests against a
// real control plane, with the server's binary and hooks that are real HTTP servers. Hooks of both kinds are in package hooks, what merging and
// applying mean in package apply, and finalizers in package finalizers.
//
// All tests share one control plane and one server. Each has a controller of its own, which selects its parents by a label.
package composite

import (
	"os"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
	"github.com/metacontroller/metacontroller-apiserver/test/controllers"
	"github.com/metacontroller/metacontroller-apiserver/test/fixture"
)

const limit = cluster.Limit

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, cluster.Audit)) }

// A stage is one test of a CompositeController with ConfigMaps as children.
type stage struct {
	*fixture.Test

	// script serves the sync hook.
	script *fixture.Script
	// running is the controller from run on.
	running *controllers.Controller
}

// newStage makes the stage of a test, without controller.
func newStage(t *testing.T, e *fixture.Environment) *stage {
	t.Helper()
	s := &stage{Test: e.NewTest(t), script: e.NewScript(fixture.Composite)}
	s.Handle("/sync", s.script)
	return s
}

// run creates the controller, changed by edit, and waits until it runs.
func (s *stage) run(edit func(*v1alpha1.CompositeControllerSpec)) {
	s.T.Helper()
	s.running = s.Run(fixture.Definition{
		Kind: fixture.Composite, Sync: s.At("/sync"),
		Children:      []fixture.Child{{Resource: fixture.ConfigMaps, Method: v1alpha1.ChildUpdateInPlace}},
		EditComposite: edit,
	})
}

// settled waits until the controller has dealt with all that was written before, and returns how often the hook was called.
func (s *stage) settled() int {
	s.T.Helper()
	s.Settle()
	return s.script.All()
}
