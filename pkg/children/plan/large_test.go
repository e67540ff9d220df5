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

package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children/plan"
	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

// kib returns a value of so many KiB.
func kib(n int) string { return strings.Repeat("x", n<<10) }

// commented returns a child with an annotation.
func commented(value, comment string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"comment":%q}},"data":{"k":%q}}`, comment, value)
}

// placedIn returns a child as it is observed.
func placedIn(child string) string {
	return strings.Replace(child, `"name":"a"`, `"name":"a","namespace":"ns"`, 1)
}

// body is the part of a body that tests look at.
type body struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

// sent returns the body of a step.
func sent(t *testing.T, step plan.Step) body {
	t.Helper()
	var b body
	if err := json.Unmarshal(step.Body, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAChildWhoseRecordIsTooLongIsApplied is about what decides between merging and server-side apply.
func TestAChildWhoseRecordIsTooLongIsApplied(t *testing.T) {
	// The largest value whose record is allowed, and the record of an empty one.
	const longest = validation.TotalAnnotationSizeLimitB - 4<<10
	overhead := len(merge.Annotation) + len(strings.Replace(applied, `"v"`, `""`, 1))
	// The child has an annotation that the hook returned before.
	droppedAnnotation := strings.Replace(annotated(t, placed, commented("v", kib(120))), `"annotations":{`, fmt.Sprintf(`"annotations":{"comment":%q,`, kib(120)), 1)
	for name, tc := range map[string]struct {
		reason   string
		desired  string
		observed string
		method   v1alpha1.ChildUpdateMethod
		large    bool
		action   plan.Action
	}{
		"Small": {"Its record fits.", configMap, "", v1alpha1.ChildUpdateInPlace, false, plan.Create},
		"LargestMerged": {
			"The annotation is as long as it may be, with room for those of others.", child("a", strings.Repeat("x", longest-overhead)), "",
			v1alpha1.ChildUpdateInPlace, false, plan.Create,
		},
		"SmallestApplied": {
			"It would be longer.", child("a", strings.Repeat("x", longest-overhead+1)), "", v1alpha1.ChildUpdateInPlace, true, plan.Create,
		},
		"QuotesCountAsTheyAreRecorded": {
			"JSON has two bytes for each.", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":%q}}`,
				strings.Repeat(`"`, 128<<10)), "", v1alpha1.ChildUpdateInPlace, true, plan.Create,
		},
		"AnnotationsOfTheHookCountTwice": {"They are there, and in the record.", commented("v", kib(128)), "", v1alpha1.ChildUpdateInPlace, true, plan.Create},
		"Secret": {
			"Its record has hashes.", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":%q}}`, kib(600)), "",
			v1alpha1.ChildUpdateInPlace, false, plan.Create,
		},
		"AdoptedWithLargeAnnotations": {
			"Those of others count, too.", child("a", kib(100)), placedIn(commented(kib(100), kib(160))),
			v1alpha1.ChildUpdateInPlace, true, plan.Update,
		},
		"AnnotationThatTheHookDrops": {
			"It goes with the same write.", child("a", kib(100)), droppedAnnotation, v1alpha1.ChildUpdateInPlace,
			false, plan.Update,
		},
		"Grows":             {"It is moved and applied.", child("a", kib(300)), annotated(t, placed, applied), v1alpha1.ChildUpdateInPlace, true, plan.Update},
		"GrowsWithRecreate": {"The new one is applied.", child("a", kib(300)), annotated(t, placed, applied), v1alpha1.ChildUpdateRecreate, true, plan.Recreate},
		"GrowsWithOnDelete": {"It stays.", child("a", kib(300)), annotated(t, placed, applied), v1alpha1.ChildUpdateOnDelete, true, plan.Leave},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(tc.method)
			s.Manager = ourManager
			if tc.observed != "" {
				s.see(t, tc.observed)
				s.trial = func(d plan.Doubt) plan.Trial {
					body, err := d.Body(d.Paths)
					if err != nil {
						t.Fatal(err)
					}
					return plan.Trial{Result: s.parse(t, string(body)), Whole: s.Observed[0]}
				}
			}
			s.want(t, tc.desired)
			step := s.step(t)
			if step.Action != tc.action || step.Large != tc.large || tc.large != (step.Manager == ourManager) || step.Large != step.Force {
				t.Errorf("%s large %t by %q, force %t. %s", step.Action, step.Large, step.Manager, step.Force, tc.reason)
			}
			if step.Body == nil {
				return
			}
			written := sent(t, step)
			if _, recorded := written.Metadata.Annotations[merge.Annotation]; recorded == tc.large {
				t.Errorf("it has a record: %t. %s", recorded, tc.reason)
			}
			if err := validation.ValidateAnnotationsSize(written.Metadata.Annotations); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAChildThatPassesTheLimitLosesWhatTheHookDrops has a child grow over the limit and shrink below it.
func TestAChildThatPassesTheLimitLosesWhatTheHookDrops(t *testing.T) {
	both := func(value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":%q,"dropped":"1"}}`, value)
	}
	const byUpdate = `"managedFields":[{"manager":"metacontroller","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:data":{"f:k":{},"f:dropped":{}},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"parent\"}":{}}}}}],`
	for name, restarts := range map[string]bool{"Known": false, "AfterARestart": true} {
		t.Run("Grows/"+name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			s.Manager = ourManager
			s.want(t, both("1"))
			s.accept(t, nil)
			if restarts {
				s.restart()
			}
			whole := managed(t, strings.Replace(string(s.Observed[0].JSON()), `"name":"a"`, byUpdate+`"name":"a"`, 1))
			s.trial = func(d plan.Doubt) plan.Trial {
				if !d.Whole || d.Manager != ourManager {
					t.Errorf("tried by %q, whole %t", d.Manager, d.Whole)
				}
				return plan.Trial{Result: whole, Whole: whole}
			}
			s.want(t, child("a", kib(300)))
			step := s.step(t)
			if !strings.Contains(string(step.Migration), "f:dropped") || !strings.Contains(string(step.Migration), ourManager) {
				t.Errorf("what the hook drops does not become our manager's, which would take it away: %s", step.Migration)
			}
			if strings.Contains(string(step.Migration), merge.Annotation) || strings.Contains(string(step.Body), "dropped") {
				t.Error("the record stays, or what is dropped")
			}
		})
		t.Run("Shrinks/"+name, func(t *testing.T) {
			s := newScene(v1alpha1.ChildUpdateInPlace)
			s.Manager = ourManager
			s.want(t, both(kib(300)))
			step := s.accept(t, nil)
			if !step.Large {
				t.Fatal("it is merged")
			}
			if restarts {
				s.restart()
			}
			s.Observed = []*object.Object{managed(t, strings.Replace(strings.Replace(string(s.Observed[0].JSON()), `"name":"a"`,
				strings.NewReplacer(`"metacontroller"`, `"`+ourManager+`"`, "Update", "Apply").Replace(byUpdate)+`"name":"a"`, 1), `"dropped":"1"`, `"dropped":"1","theirs":"2"`, 1))}
			s.want(t, child("a", "2"))
			step = s.step(t)
			written := sent(t, step)
			if step.Manager != "" || written.Data["k"] != "2" || written.Data["theirs"] != "2" || len(written.Data) != 2 || written.Metadata.Annotations[merge.Annotation] == "" {
				t.Errorf("%s by %q of %v with annotations %v", step.Action, step.Manager, written.Data, written.Metadata.Annotations)
			}
			if !slices.ContainsFunc(step.Changed, func(c plan.Change) bool { return c.Path == "data.dropped" }) {
				t.Errorf("changed %s", pathsOf(step.Changed))
			}
		})
	}
}
