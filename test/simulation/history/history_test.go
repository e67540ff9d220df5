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
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

func TestGenerateUsesEveryAction(t *testing.T) {
	used := map[Action]int{}
	for seed := range uint64(300) {
		for _, s := range Generate(seed).Steps {
			used[s.Do]++
			if _, known := actions[s.Do]; !known {
				t.Fatalf("seed %d has the action %q, which nobody does", seed, s.Do)
			}
		}
	}
	for a := range actions {
		if used[a] == 0 {
			t.Errorf("no history has the action %s", a)
		}
	}
}

func TestSomeHistoriesDrawMany(t *testing.T) {
	const seeds = 4000
	drawn := map[string]int{}
	for seed := range uint64(seeds) {
		o := Options{}.drawing(seed)
		drawn[fmt.Sprintf("%d children", o.Many)]++
		drawn[fmt.Sprintf("%d related objects", o.Related)]++
		drawn[fmt.Sprintf("admission: %t", o.Admission)]++
		drawn[fmt.Sprintf("restless: %t", o.Restless)]++
		drawn[fmt.Sprintf("inline: %t", o.Inline != 0)]++
		drawn[fmt.Sprintf("retain: %t", o.Retain != 0)]++
		drawn[fmt.Sprintf("synced: %t", o.Synced != 0)]++
	}
	for what, perThousand := range map[string]int{
		"150 children": 7, "30 children": 32, "150 related objects": 7, "30 related objects": 32, "admission: true": 100, "restless: true": 100,
		"inline: true": 90, "retain: true": 100, "synced: true": 100,
	} {
		if n := drawn[what] * 1000 / seeds; n < perThousand/2 || n > 2*perThousand {
			t.Errorf("%s in %d of a thousand histories, want about %d", what, n, perThousand)
		}
	}
}

func TestHistoriesAreTheSameAfterAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.json")
	h := Generate(7)
	h.Name, h.Invariant, h.Explanation = "a name", "an invariant", "an explanation"
	if err := h.Write(file); err != nil {
		t.Fatal(err)
	}
	read, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, read) {
		t.Errorf("read %v, wrote %v", read, h)
	}
	h.Steps = nil
	if err := h.Write(file); err != nil {
		t.Fatal(err)
	}
	if read, err = Read(file); err != nil || len(read.Steps) != 0 {
		t.Errorf("a history without steps is read with %d, %v", len(read.Steps), err)
	}
}

func TestShrinkLeavesWhatIsNeeded(t *testing.T) {
	h := Generate(3)
	for name, tc := range map[string]struct {
		needs []int
		// count is what the first of them must have at least.
		count int
	}{
		"OneStep":            {needs: []int{40}},
		"TwoFarApart":        {needs: []int{2, 90}},
		"TwoNextToEachOther": {needs: []int{50, 51}},
		"FirstAndLast":       {needs: []int{0, len(h.Steps) - 1}},
	} {
		tried := 0
		holds := func(candidate History) bool {
			tried++
			for _, n := range tc.needs {
				if !slices.ContainsFunc(candidate.Steps, func(s Step) bool { return s.Seed == h.Steps[n].Seed }) {
					return false
				}
			}
			return true
		}
		small := Shrink(h, holds)
		if len(small.Steps) != len(tc.needs) || !holds(small) {
			t.Errorf("%s: %d steps are left, want %d", name, len(small.Steps), len(tc.needs))
		}
		if tried > 400 {
			t.Errorf("%s: %d candidates were tried", name, tried)
		}
	}
}

func TestShrinkMakesNumbersSmaller(t *testing.T) {
	h := History{Options: Options{Chain: true}, Steps: []Step{{Do: RunOn, Count: 64}, {Do: EditObject, On: 2}}}
	small := Shrink(h, func(candidate History) bool {
		return len(candidate.Steps) == 2 && candidate.Steps[0].Do == RunOn && candidate.Steps[0].Count > 20
	})
	if want := (History{Steps: []Step{{Do: RunOn, Count: 32}, {Do: EditObject}}}); !reflect.DeepEqual(small, want) {
		t.Errorf("shrunk to %+v, want %+v", small, want)
	}
}

func TestAWriteThatNobodySeesChangesTheStoredFormOnly(t *testing.T) {
	at := func(version, more string) value.Object {
		o, err := value.Decode(fmt.Appendf(nil, `{"metadata":{"name":"a","resourceVersion":%q,"labels":{"a":"b"}}%s}`, version, more))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for name, tc := range map[string]struct {
		before, after value.Object
		want          bool
	}{
		"Version": {at("1", `,"status":{"a":1}`), at("2", `,"status":{"a":1}`), true},
		"Status":  {at("1", `,"status":{"a":1}`), at("2", `,"status":{"a":2}`), false},
		"Created": {nil, at("2", ""), false},
		"Deleted": {at("1", ""), nil, false},
	} {
		w := apiserver.Write{Before: tc.before, After: tc.after}
		if got := stored(w); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
	labeled := at("2", "")
	value.Map(labeled, "metadata")["labels"] = map[string]any{"a": "c"}
	if stored(apiserver.Write{Before: at("1", ""), After: labeled}) {
		t.Error("a change of labels counts as one of the stored form")
	}
}
