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
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

// ask calls the sync hook about the parent with other fields in its spec, as it is done for revisions, and with the red child.
func (s *script) ask(spec map[string]any, response *hooks.Response, after time.Duration) {
	s.t.Helper()
	parent := s.decode(s.versions["t"])
	parent["spec"] = spec
	s.Call(&Call{At: after, Controller: "c0", Hook: hook.Sync, Response: response, Pure: true, InFlight: 1, Request: &hooks.Request{
		Controller: s.definition("c0"), Parent: parent, Children: hooks.Objects{"ConfigMap.v1": {"m": s.decode(s.versions["m"])}},
	}})
}

func TestDeletionDuringARollout(t *testing.T) {
	former, latest := map[string]any{"color": "red"}, map[string]any{"color": "blue"}
	defaulted := map[string]any{"color": "blue", "grade": "b"}
	red, blue, none := wants(map[string]any{"color": "red"}), wants(map[string]any{"color": "blue"}), &hooks.Response{}
	const second = time.Second
	upgrade := func(s *script) {
		s.write("user", "update", "customresourcedefinitions", "d", `{"kind":"CustomResourceDefinition","metadata":{"name":"d"}}`, second)
	}
	for name, tc := range map[string]struct {
		method  string
		happens func(*script)
		want    string
	}{
		"OfAChildThatMoves": {"RollingRecreate", func(s *script) {
			s.ask(latest, blue, second)
			s.ask(former, red, 2*second)
		}, ""},
		"OfAChildThatMovesThoughAKindChangedBetweenTheCalls": {"RollingRecreate", func(s *script) {
			s.ask(latest, blue, second)
			upgrade(s)
			s.ask(former, red, 2*second)
		}, ""},
		"OfAChildThatTheLatestLacksThoughAKindChangedBetweenTheCalls": {"RollingInPlace", func(s *script) {
			s.ask(latest, none, second)
			upgrade(s)
			s.ask(former, red, 2*second)
		}, ""},
		"OfAChildThatAllWantAsItIs": {"RollingRecreate", func(s *script) {
			s.ask(latest, red, second)
			upgrade(s)
			s.ask(former, red, 2*second)
		}, WantedStays},
		"OfAChildThatTheLatestUpdatesInPlace": {"RollingInPlace", func(s *script) {
			s.ask(latest, blue, second)
			upgrade(s)
			s.ask(former, none, 2*second)
		}, WantedStays},
		"OfAChildThatAllWantSinceTheParentHasOtherDefaults": {"RollingRecreate", func(s *script) {
			s.ask(latest, blue, second)
			upgrade(s)
			s.ask(defaulted, red, 2*second)
			s.ask(former, red, 3*second)
		}, WantedStays},
		"OfAChildThatTheLatestLacksSinceTheParentHasOtherDefaults": {"RollingInPlace", func(s *script) {
			upgrade(s)
			s.ask(latest, blue, 2*second)
			s.ask(defaulted, none, 3*second)
		}, ""},
		"OfAChildThatAllWantInTheSyncAfterTheOneInWhichAKindChanged": {"RollingRecreate", func(s *script) {
			s.ask(latest, blue, second)
			upgrade(s)
			s.ask(former, red, 2*second)
			s.ask(defaulted, red, 3*second)
			s.ask(former, red, 4*second)
		}, WantedStays},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.define(tc.method, "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"color":"red"`, 0)
			tc.happens(s)
			s.write("engine", "delete", "configmaps", "m", "", 5*second)
			got := ""
			if v := s.Violation(); v != nil {
				got = v.Invariant
			}
			if got != tc.want {
				t.Errorf("violates %q, want %q: %v", got, tc.want, s.Violation())
			}
		})
	}
}
