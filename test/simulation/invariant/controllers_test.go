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
	"reflect"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
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

func TestErrorsAreTold(t *testing.T) {
	warning := func(uid string, after time.Duration) func(*script) {
		return func(s *script) {
			s.write("engine", "create", "events", "e", `{"type":"Warning","reason":"SyncError","metadata":{"name":"e"},"involvedObject":{"uid":"`+uid+`"}}`, after)
		}
	}
	for name, tc := range map[string]struct {
		says func(*script)
		want string
	}{
		"Silently":                   {func(*script) {}, ErrorsTold},
		"ByTheStatus":                {func(s *script) { s.failed("it is refused") }, ""},
		"ByAWarningOnTheParent":      {warning("t", time.Hour), ""},
		"ByAWarningOnTheChild":       {warning("m", time.Hour), ""},
		"ByAWarningOfBefore":         {warning("t", time.Second), ErrorsTold},
		"ByAWarningOnAnotherObject":  {warning("other", time.Hour), ErrorsTold},
		"ByTheConditionOfFinalizers": {func(s *script) { s.releasing() }, ""},
		"OfAChildThatIsGone":         {func(s *script) { s.write("user", "delete", "configmaps", "m", "", time.Hour) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.write("user", "create", "compositecontrollers", "c", fmt.Sprintf(ready, ""), 0)
			s.thing("user", "", "", 0)
			s.child("engine", "", "", 0)
			tc.says(s)
			got := ""
			if v := s.ErrorTold(2*time.Hour, time.Minute, hooks.ConfigMap, "ns0", "t0-c0-m0"); v != nil {
				got = v.Invariant
			}
			if got != tc.want {
				t.Errorf("violates %q, want %q", got, tc.want)
			}
		})
	}
}

// releasing says in the status of the composite that finalizers cannot be taken off.
func (s *script) releasing() {
	s.t.Helper()
	s.write("engine", "update", "compositecontrollers/status", "c", `{"kind":"CompositeController","metadata":{"name":"c0","uid":"c","generation":1},
		"status":{"conditions":[{"type":"FinalizersReleased","status":"False"}]},"spec":{"hooks":{"sync":{}}}}`, time.Minute)
}

// TestErrorsAtRest has a parent fail that wants a child of a name.
func TestErrorsAtRest(t *testing.T) {
	for name, tc := range map[string]struct {
		retried bool
		named   string
		want    string
	}{
		"BeforeItIsTriedAgain":      {false, "", ""},
		"WithoutACause":             {true, "", ErrorsTold},
		"OfAStrangerWithTheName":    {true, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns0"}}`, "t0-c0-m0"), ""},
		"OfAStrangerOfAnotherName":  {true, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns0"}}`, "other"), ErrorsTold},
		"WithTheChildThatIsItsOwn":  {true, fmt.Sprintf(child, "", ""), ErrorsTold},
		"OfAStrangerElsewhereNamed": {true, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns1"}}`, "t0-c0-m0"), ErrorsTold},
	} {
		t.Run(name, func(t *testing.T) {
			got := rested(t, Cluster{Ended: true, Retried: tc.retried}, func(s *script) {
				s.thing("user", `,"generation":1`, `,"status":{"observedGeneration":1}`, 0)
				s.call(hook.Sync, "t", nil, "", wants(nil), time.Minute)
				s.failed("it is refused")
				if tc.named != "" {
					s.write("user", "create", "configmaps", "m", tc.named, 0)
				}
			})
			if got != tc.want {
				t.Errorf("violates %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhatControllersSayLasts(t *testing.T) {
	const controller = `{"kind":"CompositeController","metadata":{"name":"c0","uid":"c"},"status":{"observedGeneration":1%s,
		"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q},{"type":"HooksHealthy","status":"True"}],"lastErrors":[{"name":%q,"time":%q}]}}`
	says := func(more, ready, at, failing string) map[string]map[string]any {
		s := newScript(t)
		s.write("user", "update", "compositecontrollers", "c", fmt.Sprintf(controller, more, ready, at, failing, at), 0)
		return s.Statuses()
	}
	before := says("", "True", "10:00", "t0")
	for name, tc := range map[string]struct {
		now  map[string]map[string]any
		same bool
	}{
		"TheSameLater":         {says(`,"counters":{"syncs":3},"hooks":[{"name":"sync","calls":3}]`, "True", "11:00", "t0"), true},
		"AnotherCondition":     {says("", "False", "10:00", "t0"), false},
		"AnotherParentFailing": {says("", "True", "10:00", "t1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reflect.DeepEqual(before, tc.now); got != tc.same {
				t.Errorf("says the same: %v, want %v: %v and %v", got, tc.same, before, tc.now)
			}
		})
	}
}

func TestResyncPeriod(t *testing.T) {
	s := newScript(t)
	s.write("user", "create", "compositecontrollers", "c", `{"kind":"CompositeController","metadata":{"name":"c0","uid":"c"},"spec":{"resyncPeriodSeconds":300}}`, 0)
	for controller, want := range map[string]time.Duration{"c0": 5 * time.Minute, "other": time.Hour} {
		if got := s.ResyncPeriod(controller, time.Hour); got != want {
			t.Errorf("%s is synced each %v, want %v", controller, got, want)
		}
	}
}

func TestCallsAreCounted(t *testing.T) {
	s := newScript(t)
	s.define("InPlace", "")
	s.thing("user", "", "", 0)
	before := s.Asked()
	s.call(hook.Sync, "t", nil, "", nil, 0)
	s.call(hook.Sync, "t", nil, "", nil, time.Second)
	of := Asking{"c0", hook.Sync, "t"}
	if before[of] != 0 || s.Asked()[of] != 2 {
		t.Errorf("%d and %d calls are counted, want none and 2", before[of], s.Asked()[of])
	}
}
