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
	"fmt"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

func TestConditionsAtRest(t *testing.T) {
	const (
		rolling   = `"updateStrategy":{"method":"RollingInPlace"},`
		finalizes = `,"finalize":{}`
		failed    = `"lastErrors":[{"group":"sim.example.com","resource":"things","name":"t0"}],`
	)
	condition := func(name, status, reason string) string {
		return fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q}`, name, status, reason)
	}
	released := func(s *script) { s.thing("user", "", "", 0) }
	deleted := func(s *script) { s.thing("user", deleting+finalizer, "", 0) }
	for name, tc := range map[string]struct {
		strategy, hooks, status, condition string
		parent                             func(*script)
		want                               string
	}{
		"NothingUnderWay":           {"", "", "", condition("Progressing", "False", "Settled"), released, ""},
		"Released":                  {"", "", "", condition("FinalizersReleased", "True", "Released"), released, ""},
		"ReleasingWhatIsReleased":   {"", "", "", condition("FinalizersReleased", "False", "Releasing"), released, ConditionsAsIs},
		"FinalizingNothing":         {"", finalizes, "", condition("Progressing", "True", "Finalizing"), released, ConditionsAsIs},
		"FinalizingAParent":         {"", finalizes, "", condition("Progressing", "True", "Finalizing"), deleted, ""},
		"RollingOut":                {rolling, "", "", condition("Progressing", "True", "RollingUpdate"), released, ""},
		"RollingOutWithoutAMethod":  {"", "", "", condition("Progressing", "True", "RollingUpdate"), released, ConditionsAsIs},
		"ChangedBackByOthers":       {"", "", "", condition("Progressing", "True", "ChangedBack"), released, ""},
		"SyncingForTheFirstTime":    {"", "", "", condition("Progressing", "True", "FirstSync"), released, ConditionsAsIs},
		"SyncingWhatFailsEachTime":  {"", "", failed, condition("Progressing", "True", "FirstSync"), released, ""},
		"AConditionOfAnotherMatter": {"", "", "", condition("Permitted", "False", "Forbidden"), released, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.write("user", "update", "compositecontrollers", "c", fmt.Sprintf(`{"kind":"CompositeController","metadata":{"name":"c0","uid":"c"},"spec":{
				"parentResource":{"apiVersion":"sim.example.com/v1","resource":"things"},"childResources":[{%s"apiVersion":"v1","resource":"configmaps"}],
				"hooks":{"sync":{}%s}},"status":{%s"conditions":[%s]}}`, tc.strategy, tc.hooks, tc.status, tc.condition), 0)
			tc.parent(s)
			got := ""
			if v := s.conditionsAtRest(Cluster{Served: make([]*hooks.Edition, len(hooks.Kinds))}, s.definition("c0")); v != nil {
				got = v.Invariant
			}
			if got != tc.want {
				t.Errorf("violates %q, want %q", got, tc.want)
			}
		})
	}
}
