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

package migration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

var errKilled = errors.New("killed")

// TestAMoveGoesOnWhereItWasKilled kills it before, in and after each step, and when its state was not saved.
func TestAMoveGoesOnWhereItWasKilled(t *testing.T) {
	names := []string{"copy", "switch", "thaw"}
	for i, name := range names {
		for _, moment := range []string{"in the step", "before it is saved", "after it was saved"} {
			t.Run(name+" "+moment, func(t *testing.T) {
				saved, killed := "", false
				var ran []string
				run := func() error {
					var steps []step
					for _, n := range names {
						steps = append(steps, step{name: n, run: func(context.Context) error {
							ran = append(ran, n)
							if n == name && moment == "in the step" && !killed {
								killed = true
								return errKilled
							}
							return nil
						}})
					}
					return proceed(t.Context(), steps, saved, func(_ context.Context, n string) error {
						kill := n == name && !killed && moment != "in the step"
						killed = killed || kill
						if !kill || moment == "after it was saved" {
							saved = n
						}
						if kill {
							return errKilled
						}
						return nil
					}, func(string) {})
				}
				if err := run(); !errors.Is(err, errKilled) {
					t.Fatalf("it was not killed: %v", err)
				}
				if err := run(); err != nil {
					t.Fatal(err)
				}
				want := slices.Clone(names)
				if moment != "after it was saved" {
					want = slices.Insert(want, i, name) // It is done again.
				}
				if !slices.Equal(ran, want) || saved != "thaw" {
					t.Errorf("the steps that ran are %v and the last one is %q, want %v", ran, saved, want)
				}
			})
		}
	}
}

func TestAStepOfAnotherVersionIsRefused(t *testing.T) {
	err := proceed(t.Context(), []step{{name: "copy"}}, "leap", nil, nil)
	if err == nil || !strings.Contains(err.Error(), `"leap"`) {
		t.Errorf("the error is %v", err)
	}
}

func TestAMoveThatIsCanceledRunsNoFurtherStep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ran := 0
	count := func(context.Context) error { ran++; cancel(); return nil }
	err := proceed(ctx, []step{{"a", "", count}, {"b", "", count}}, "", func(context.Context, string) error { return nil }, func(string) {})
	if !errors.Is(err, context.Canceled) || ran != 1 {
		t.Errorf("%d steps ran, and the error is %v", ran, err)
	}
}

func TestDifferencesOfCopies(t *testing.T) {
	controller := func(change func(o map[string]any)) objects {
		o := probe()
		o.SetUID("a")
		o.SetResourceVersion("1")
		o.SetGeneration(3)
		o.SetFinalizers([]string{"example.com/one"})
		o.Object["status"] = map[string]any{"observedGeneration": int64(3)}
		change(o.Object)
		return objects{"CompositeController " + o.GetName(): o}
	}
	metadata := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	same := controller(func(map[string]any) {})
	for name, tc := range map[string]struct {
		of, copies objects
		want       string
	}{
		"the version is the store's own": {copies: controller(func(o map[string]any) { metadata(o)["resourceVersion"] = "9" })},
		"a default": {copies: controller(func(o map[string]any) {
			o["spec"].(map[string]any)["resyncPeriodSeconds"] = int64(0)
		})},
		"another UID":                   {copies: controller(func(o map[string]any) { metadata(o)["uid"] = "b" }), want: "differs in .metadata.uid"},
		"another generation":            {copies: controller(func(o map[string]any) { metadata(o)["generation"] = int64(1) }), want: "differs in .metadata.generation"},
		"a finalizer more":              {copies: controller(func(o map[string]any) { metadata(o)["finalizers"] = []any{"example.com/one", "b"} }), want: "differs in .metadata.finalizers"},
		"a label more":                  {copies: controller(func(o map[string]any) { metadata(o)["labels"] = map[string]any{"a": "b"} }), want: "differs in .metadata.labels"},
		"a status more":                 {copies: controller(func(o map[string]any) { o["status"].(map[string]any)["replicas"] = int64(1) }), want: "differs in .status.replicas"},
		"a deletion":                    {copies: controller(func(o map[string]any) { metadata(o)["deletionTimestamp"] = "now" }), want: "differs in .metadata.deletionTimestamp"},
		"no status":                     {copies: controller(func(o map[string]any) { delete(o, "status") }), want: "differs in .status.observedGeneration"},
		"it was not copied":             {copies: objects{}, want: "is missing"},
		"one that is nowhere":           {copies: objects{"CompositeController a": probe(), "CompositeController " + probeName: same["CompositeController "+probeName]}, want: "CompositeController a is one too many"},
		"a status where there was none": {of: controller(func(o map[string]any) { delete(o, "status") }), want: "differs in .status"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.of == nil {
				tc.of = same
			}
			if tc.copies == nil {
				tc.copies = same
			}
			got := strings.Join(differing(tc.of, tc.copies), "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("what differs is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheDigestTellsVersionsApart(t *testing.T) {
	of := func(version string) string {
		o := probe()
		o.SetResourceVersion(version)
		return objects{"a": o}.digest()
	}
	if of("1") == of("2") {
		t.Error("two versions have the same digest")
	}
	if objects.digest(nil) == of("1") {
		t.Error("nothing has the digest of something")
	}
}

func TestPlacesBehindTheDoor(t *testing.T) {
	for path, want := range map[string]place{
		"":                                    {},
		"/servers":                            {resource: "servers"},
		"/compositecontrollers":               {resource: "compositecontrollers"},
		"/compositecontrollers/a":             {resource: "compositecontrollers", name: "a"},
		"/namespaces/n/controllerrevisions/r": {resource: "controllerrevisions", namespace: "n", name: "r"},
		"/compositecontrollers/a/status":      {resource: "compositecontrollers", name: "a/status"},
		"/compositecontrollers/a/plan":        {resource: "compositecontrollers", name: "a" + planSuffix},
	} {
		if got := placeOf(path); got != want {
			t.Errorf("%s is %+v, want %+v", path, got, want)
		}
	}
}
