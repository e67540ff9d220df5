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
	"fmt"
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/faults/report"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/invariant"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/world"
)

// TestAPanicAtEveryRequest has the engine panic at one request or response after the other, while a parent is created, changed and deleted
// beside another one. Everything is as it must be at the end, and somebody is told of the panic. In the short form some are left out.
func TestAPanicAtEveryRequest(t *testing.T) {
	figures := report.For(t, report.Panics)
	stride := report.Pick(11, 1)
	for name, controller := range map[string]int{"compositecontrollers": 0, "decoratorcontrollers": 2} {
		for _, kinds := range [][]world.Kind{{world.Request, world.Call}, {world.Response, world.CallResponse}} {
			panics := 0
			for at := 0; ; at += stride {
				d := &defect{kinds: kinds, at: at}
				v := run(t, lives(controller), false, d).Violation
				if d.seen <= at {
					if v != nil {
						t.Errorf("%s: without a panic: %v", name, v)
					}
					break
				}
				panics++
				if v == nil || v.Invariant != invariant.NoPanic || !strings.Contains(v.Detail, world.Defect) {
					t.Errorf("%s, %s %d: %v, want the panic alone", name, kinds[0], at, v)
				}
			}
			if panics < 5 {
				t.Errorf("%s: %d panics at %ss, so little happens", name, panics, kinds[0])
			}
			figures.Sayf("%s: a panic at %d different %ss and %ss, all of them told and tried again", name, panics, kinds[0], kinds[1])
		}
	}
}

// lives is a history of two parents of a controller that finalizes them.
func lives(controller int) History {
	pass := Step{Do: Pass, Millis: 30_000}
	h := History{Name: fmt.Sprint("lives ", controller), Seed: 1, Steps: []Step{
		{Do: Define, Controller: controller, Seed: 4}, {Do: EditDefinition, Controller: controller, How: "finalizing"},
		{Do: CreateObject, Kind: hooks.Thing, Seed: 2}, {Do: CreateObject, Kind: hooks.Thing, On: 1, Seed: 2}, pass,
		{Do: EditObject, Kind: hooks.Thing, Seed: 5}, pass, {Do: DeleteObject, Kind: hooks.Thing, How: "Background"}, pass,
	}}
	return h
}
