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

package ratcheting

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// object is a made-up kind with what the errors of real ones point to.
func object(name string, items ...any) map[string]any {
	return map[string]any{"spec": map[string]any{"name": name, "items": items, "labels": map[string]any{"a.b/c": "x y"}}}
}

func TestOnlyNewMistakesAreErrors(t *testing.T) {
	spec := field.NewPath("spec")
	bad := func(path *field.Path, value any) *field.Error { return field.Invalid(path, value, "is bad") }
	hidden := func(path *field.Path) *field.Error { return bad(path, field.OmitValueType{}) }
	name, item := spec.Child("name"), spec.Child("items").Index
	for title, test := range map[string]struct {
		now, then    map[string]any
		errs, before field.ErrorList
		kept         []int // Indexes of errs.
	}{
		"a value that was right before": {
			now: object("x"), then: object("y"), errs: field.ErrorList{bad(name, "x")}, kept: []int{0},
		},
		"a value that did not change": {
			now: object("x"), then: object("x"), errs: field.ErrorList{bad(name, "x")}, before: field.ErrorList{bad(name, "x")},
		},
		"another bad value": {
			now: object("x"), then: object("y"), errs: field.ErrorList{bad(name, "x")}, before: field.ErrorList{bad(name, "y")}, kept: []int{0},
		},
		"the same value for another reason": {
			now: object("x"), then: object("x"), errs: field.ErrorList{field.Invalid(name, "x", "is worse")},
			before: field.ErrorList{bad(name, "x")}, kept: []int{0},
		},
		"a value that is not repeated and did not change": {
			now: object("x"), then: object("x"), errs: field.ErrorList{hidden(name)}, before: field.ErrorList{hidden(name)},
		},
		"another value that is not repeated": {
			now: object("x"), then: object("y"), errs: field.ErrorList{hidden(name)}, before: field.ErrorList{hidden(name)}, kept: []int{0},
		},
		"an item that moved": {
			now: object("", "a", "b", "x"), then: object("", "x"), errs: field.ErrorList{bad(item(2), "x")},
			before: field.ErrorList{bad(item(0), "x")},
		},
		"an item that moved and is not repeated": {
			now: object("", "a", "x"), then: object("", "x"), errs: field.ErrorList{hidden(item(1))}, before: field.ErrorList{hidden(item(0))},
		},
		"one more of the same": {
			now: object("", "x", "x"), then: object("", "x"), errs: field.ErrorList{bad(item(0), "x"), bad(item(1), "x")},
			before: field.ErrorList{bad(item(0), "x")}, kept: []int{1},
		},
		"what is still missing": {
			now: object(""), then: object(""), errs: field.ErrorList{field.Required(spec.Child("other"), "")},
			before: field.ErrorList{field.Required(spec.Child("other"), "")},
		},
		"a list that is too long as before, with another item": {
			now: object("", "a", "c"), then: object("", "a", "b"), errs: field.ErrorList{field.TooMany(spec.Child("items"), 2, 1)},
			before: field.ErrorList{field.TooMany(spec.Child("items"), 2, 1)}, kept: []int{0},
		},
		"a value under a key with dots": {
			now: object(""), then: object(""), errs: field.ErrorList{bad(spec.Child("labels").Key("a.b/c"), "x y")},
			before: field.ErrorList{bad(spec.Child("labels").Key("a.b/c"), "x y")},
		},
		"an item that is gone": {
			now: object(""), then: object("", "x"), before: field.ErrorList{bad(item(0), "x")},
		},
	} {
		t.Run(title, func(t *testing.T) {
			var want field.ErrorList
			for _, i := range test.kept {
				want = append(want, test.errs[i])
			}
			if diff := cmp.Diff(want, newErrors(test.errs, test.before, test.now, test.then)); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheAnswerIsShort(t *testing.T) {
	var errs field.ErrorList
	const longest = maxValue - len(`: "": `)
	for i := range 5000 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "items").Index(i), strings.Repeat("x", longest+i%2), "is bad"))
	}
	got := brief(errs)
	if len(got) != maxErrors {
		t.Fatalf("%d errors, want %d", len(got), maxErrors)
	}
	if want := "spec.items[99]: Invalid value: and 4901 more mistakes"; got[maxErrors-1].Error() != want {
		t.Errorf("the last error is %q, want %q", got[maxErrors-1], want)
	}
	for i, err := range got[:maxErrors-1] {
		text := fmt.Sprintf(": %q", strings.Repeat("x", longest))
		if i%2 == 1 {
			text = ""
		}
		if want := fmt.Sprintf("spec.items[%d]: Invalid value%s: is bad", i, text); err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if few := brief(errs[:maxErrors]); len(few) != maxErrors || strings.Contains(few[maxErrors-1].Error(), "more mistakes") {
		t.Errorf("%d errors became %d, the last is %q", maxErrors, len(few), few[maxErrors-1])
	}
}
