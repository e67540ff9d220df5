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

package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/children"
	"github.com/metacontroller/metacontroller-apiserver/pkg/inspection"
)

type revisionObject = v1alpha1.ControllerRevision

func decode(t *testing.T, s string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func plannerOf(paths ...string) *Planner {
	return New(Config{
		Resource:   schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"},
		FieldPaths: paths, Namespace: "server", Rules: map[schema.GroupKind]strategy{pods: {}},
	})
}

const parentHead = `{"apiVersion":"example.com/v1","kind":"Set","metadata":{"name":"web","namespace":"home","uid":"uid-1"},`

func TestPatchHoldsTheFieldPaths(t *testing.T) {
	cases := map[string]struct {
		reason string
		paths  []string
		parent string
		want   string
	}{
		"Default":      {"Without paths the spec is the revision.", nil, `{"spec":{"a":1},"status":{}}`, `{"spec":{"a":1}}`},
		"Nested":       {"Only the field at the path.", []string{"spec.template"}, `{"spec":{"template":{"x":1},"replicas":3}}`, `{"spec":{"template":{"x":1}}}`},
		"Missing":      {"Missing fields are left out.", []string{"spec.a", "spec.b.c", "data"}, `{"spec":{"b":{}}}`, `{}`},
		"Null":         {"A null is a value.", []string{"spec.a"}, `{"spec":{"a":null}}`, `{"spec":{"a":null}}`},
		"ThroughList":  {"Paths do not lead into lists.", []string{"spec.list.0"}, `{"spec":{"list":[1]}}`, `{}`},
		"ThroughValue": {"Paths do not lead into values.", []string{"spec.a.b"}, `{"spec":{"a":"x"}}`, `{}`},
		"Overlap":      {"Overlapping paths are one field.", []string{"spec.a", "spec", "spec.b"}, `{"spec":{"a":1,"b":2}}`, `{"spec":{"a":1,"b":2}}`},
		"EmptyPath":    {"An empty name is no field.", []string{"", "spec..a"}, `{"spec":{"a":1}}`, `{}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			parent := decode(t, tc.parent)
			got := extract(parent, plannerOf(tc.paths...).paths)
			if diff := cmp.Diff(decode(t, tc.want), got); diff != "" {
				t.Errorf("%s\npatch (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(decode(t, tc.parent), parent); diff != "" {
				t.Errorf("the parent was modified (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOlderRevisionsShowTheParentAsItWas(t *testing.T) {
	cases := map[string]struct {
		reason   string
		paths    []string
		recorded string
		spec     string
		patch    string
		want     string
	}{
		"Replaced": {
			reason: "The field is as it was; others are as they are.",
			paths:  []string{"spec.template"}, recorded: `["spec.template"]`,
			spec: `{"template":{"x":2,"new":1},"replicas":5}`, patch: `{"spec":{"template":{"x":1}}}`,
			want: `{"template":{"x":1},"replicas":5}`,
		},
		"WasMissing": {
			reason: "A field that the parent did not have is removed.",
			paths:  []string{"spec.template"}, recorded: `["spec.template"]`,
			spec: `{"template":{"x":2},"replicas":5}`, patch: `{}`,
			want: `{"replicas":5}`,
		},
		"WasNotRecorded": {
			reason: "A field that the revision did not record stays.",
			paths:  []string{"spec.template", "spec.image"}, recorded: `["spec.template"]`,
			spec: `{"template":{"x":2},"image":"b"}`, patch: `{"spec":{"template":{"x":1}}}`,
			want: `{"template":{"x":1},"image":"b"}`,
		},
		"RecordedByALargerField": {
			reason: "A field below a recorded one was recorded too.",
			paths:  []string{"spec.template", "spec.image"}, recorded: `["spec"]`,
			spec: `{"template":{"x":2},"image":"b","replicas":5}`, patch: `{"spec":{"template":{"x":1},"replicas":1}}`,
			want: `{"template":{"x":1},"replicas":5}`,
		},
		"RecordedBySmallerFields": {
			reason: "Of a field of which only parts were recorded, the others stay, and parts that the parent did not have are removed.",
			paths:  []string{"spec"}, recorded: `["spec.template","spec.image"]`,
			spec: `{"template":{"x":2},"image":"b","replicas":5}`, patch: `{"spec":{"template":{"x":1}}}`,
			want: `{"template":{"x":1},"replicas":5}`,
		},
		"RecordedByASmallerFieldAndWhole": {
			reason: "A revision that recorded the whole field is the whole field.",
			paths:  []string{"spec"}, recorded: `["spec","spec.template"]`,
			spec: `{"template":{"x":2},"replicas":5}`, patch: `{"spec":{"template":{"x":1}}}`,
			want: `{"template":{"x":1}}`,
		},
		"NothingIsKnown": {
			reason: "Revisions written by Metacontroller say nothing of missing fields.",
			paths:  []string{"spec.template", "spec.image"}, recorded: ``,
			spec: `{"template":{"x":2},"image":"b"}`, patch: `{"spec":{"template":{"x":1}}}`,
			want: `{"template":{"x":1},"image":"b"}`,
		},
		"SpecWhole": {
			reason: "The whole spec is replaced, not merged.",
			paths:  nil, recorded: `["spec"]`,
			spec: `{"a":1,"b":2}`, patch: `{"spec":{"a":0}}`,
			want: `{"a":0}`,
		},
		"NoObjectOnTheWay": {
			reason: "What stands in the way gives way.",
			paths:  []string{"spec.a.b"}, recorded: `["spec.a.b"]`,
			spec: `{"a":"text"}`, patch: `{"spec":{"a":{"b":1}}}`,
			want: `{"a":{"b":1}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plannerOf(tc.paths...)
			source := parentHead + `"spec":` + tc.spec + `}`
			parent := decode(t, source)
			old := revision("old", tc.patch)
			if tc.recorded != "" {
				old.Annotations = map[string]string{AnnotationFieldPaths: tc.recorded}
			}
			revisions, err := p.Revisions(parent, []*revisionObject{old})
			if err != nil || len(revisions) != 2 {
				t.Fatalf("%d revisions, %v", len(revisions), err)
			}
			encoded, err := revisions[1].ParentJSON()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, parentHead+`"spec":`+tc.want+`}`), decode(t, string(encoded))); diff != "" {
				t.Errorf("%s\nparent (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(decode(t, source), parent); diff != "" {
				t.Errorf("the parent was modified (-want +got):\n%s", diff)
			}
		})
	}
}

// revision is one of the parent of these tests, with the digest of its patch behind the name.
func revision(name, patch string) *revisionObject {
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(patch), &content); err != nil {
		return named(name, patch)
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return named(name, patch)
	}
	return named(name+digestSuffix("uid-1", encoded), patch)
}

// named is a revision of that name, whatever its patch is.
func named(name, patch string) *revisionObject {
	yes := true
	r := &revisionObject{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "home", Labels: map[string]string{LabelAPIGroup: "example.com", LabelResource: "sets"},
		OwnerReferences: []metav1.OwnerReference{{UID: "uid-1", Controller: &yes}},
	}}
	r.ParentPatch.Raw = []byte(patch)
	r.Children = []v1alpha1.ControllerRevisionChildren{{Kind: pods.Kind, Names: []string{"on-it"}}}
	return r
}

func TestNewRevision(t *testing.T) {
	spec := `"spec":{"b":"<","a":1,"template":{"metadata":{"labels":{"app":"web","bad value":"x","n":1,"long":"` + strings.Repeat("x", 64) + `","metacontroller.k8s.io/resource":"stolen"}}}}}`
	cases := map[string]struct {
		reason string
		change func(c *Config)
		parent string
		want   *revisionObject
	}{
		"Namespaced": {
			reason: "It lives beside the parent, with the template's labels.",
			change: func(*Config) {}, parent: parentHead + spec,
			want: &revisionObject{ObjectMeta: metav1.ObjectMeta{
				Name: "sets.example.com-cc1a88fdc19c533cc7bc64908e1bdaa42fd17c50", Namespace: "home",
				Labels: map[string]string{"app": "web", LabelAPIGroup: "example.com", LabelResource: "sets"},
			}},
		},
		"ClusterScopedCore": {
			reason: "It lives in the server's namespace; the core group has a name here.",
			change: func(c *Config) { c.Resource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"} },
			parent: strings.Replace(parentHead, `"namespace":"home",`, "", 1) + spec,
			want: &revisionObject{ObjectMeta: metav1.ObjectMeta{
				Name: "nodes.core-cc1a88fdc19c533cc7bc64908e1bdaa42fd17c50", Namespace: "server",
				Labels: map[string]string{"app": "web", LabelAPIGroup: "", LabelResource: "nodes"},
			}},
		},
		"GeneratedSelector": {
			reason: "With generated selectors the label is the parent's UID.",
			change: func(c *Config) { c.GenerateSelector = true }, parent: parentHead + spec,
			want: &revisionObject{ObjectMeta: metav1.ObjectMeta{
				Name: "sets.example.com-cc1a88fdc19c533cc7bc64908e1bdaa42fd17c50", Namespace: "home",
				Labels: map[string]string{"controller-uid": "uid-1", LabelAPIGroup: "example.com", LabelResource: "sets"},
			}},
		},
		"LongGroup": {
			reason: "Name and labels are cut to what is allowed.",
			change: func(c *Config) { c.Resource.Group = strings.Repeat("a", 206) + ".example.com" }, parent: parentHead + spec,
			want: &revisionObject{ObjectMeta: metav1.ObjectMeta{
				Name: "sets." + strings.Repeat("a", 206) + "-cc1a88fdc19c533cc7bc64908e1bdaa42fd17c50", Namespace: "home",
				Labels: map[string]string{"app": "web", LabelAPIGroup: strings.Repeat("a", 63), LabelResource: "sets"},
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := plannerOf("spec.a", "spec.b").config
			tc.change(&config)
			revisions, err := New(config).Revisions(decode(t, tc.parent), nil)
			if err != nil || len(revisions) != 1 || revisions[0].Exists {
				t.Fatalf("%d revisions, %v; want the latest, which does not exist", len(revisions), err)
			}
			yes := true
			tc.want.Annotations = map[string]string{AnnotationFieldPaths: `["spec.a","spec.b"]`}
			tc.want.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "example.com/v1", Kind: "Set", Name: "web", UID: "uid-1", Controller: &yes, BlockOwnerDeletion: &yes,
			}}
			tc.want.ParentPatch.Raw = json.RawMessage(`{"spec":{"a":1,"b":"\u003c"}}`)
			if diff := cmp.Diff(tc.want, revisions[0].Object); diff != "" {
				t.Errorf("%s\nrevision (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRevisionsOfTheParent(t *testing.T) {
	no := false
	parent := decode(t, parentHead+`"spec":{"a":2}}`)
	revisions, err := plannerOf().Revisions(parent, nil)
	if err != nil {
		t.Fatal(err)
	}
	latestName := revisions[0].Object.Name
	cases := map[string]struct {
		reason string
		given  func() []*revisionObject
		latest bool
		older  []string
	}{
		"None": {"The latest revision is to be created.", func() []*revisionObject { return nil }, false, nil},
		"Latest": {"The same patch is the same revision, whatever its name and the order of its fields.", func() []*revisionObject {
			return []*revisionObject{revision("other-name", `{ "spec" : {"a":2} }`)}
		}, true, nil},
		"NewestFirst": {"Older revisions come from the newest to the oldest.", func() []*revisionObject {
			a, b, c := revision("a", `{"spec":{"a":0}}`), revision("b", `{"spec":{"a":1}}`), revision("c", `{"spec":{"a":3}}`)
			b.CreationTimestamp = metav1.NewTime(time.Unix(9, 0))
			return []*revisionObject{c, a, b}
		}, false, []string{"b", "a", "c"}},
		"OtherOwner": {"Revisions of others are ignored.", func() []*revisionObject {
			r := revision("a", `{"spec":{"a":1}}`)
			r.OwnerReferences[0].UID = "uid-2"
			return []*revisionObject{r}
		}, false, nil},
		"OtherResource": {"Revisions of another controller's parents of the same UID are ignored.", func() []*revisionObject {
			r := revision("a", `{"spec":{"a":1}}`)
			r.Labels[LabelResource] = "others"
			return []*revisionObject{r}
		}, false, nil},
		"NoLabels": {"Both labels are needed.", func() []*revisionObject {
			r := revision("a", `{"spec":{"a":1}}`)
			r.Labels = nil
			return []*revisionObject{r}
		}, false, nil},
		"OtherNamespace": {"Revisions live beside the parent.", func() []*revisionObject {
			r := revision("a", `{"spec":{"a":1}}`)
			r.Namespace = "away"
			return []*revisionObject{r}
		}, false, nil},
		"TemplateLabelsDoNotMatter": {"A revision belongs to its parent even if its labels do not match the parent's selector.", func() []*revisionObject {
			r := revision("a", `{"spec":{"a":1}}`)
			r.Labels["app"] = "something else"
			return []*revisionObject{r}
		}, false, []string{"a"}},
		"OrphanOfOurName": {"A revision that lost its owner is known by its name, which holds the parent's UID.", func() []*revisionObject {
			r := named(latestName, `{"spec":{"a":2}}`)
			r.OwnerReferences[0].Controller = &no
			return []*revisionObject{r}
		}, true, nil},
		"OrphanOfOtherName": {"Any other orphan is a stranger's.", func() []*revisionObject {
			r := named("sets.example.com-0", `{"spec":{"a":2}}`)
			r.OwnerReferences = nil
			return []*revisionObject{r}
		}, false, nil},
		"OrphanUnreadable": {"An orphan that nobody can read is a stranger's.", func() []*revisionObject {
			r := named(latestName, `[]`)
			r.OwnerReferences = nil
			return []*revisionObject{r}
		}, false, nil},
		"Damaged": {"The latest revision is known by its name even if its patch was changed.", func() []*revisionObject {
			return []*revisionObject{named(latestName, `{"spec":{"a":77}}`)}
		}, true, nil},
		"DamagedBeyondReading": {"The latest revision is known by its name even if its patch is none.", func() []*revisionObject {
			return []*revisionObject{named(latestName, `null`)}
		}, true, nil},
		"NameWins": {"Of two revisions with the same patch the one with the right name is the latest.", func() []*revisionObject {
			return []*revisionObject{revision("twin", `{"spec":{"a":2}}`), named(latestName, `{"spec":{"a":2}}`), revision("twin2", `{"spec":{"a":2}}`)}
		}, true, []string{"twin", "twin2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plannerOf()
			revisions, err := p.Revisions(parent, tc.given())
			if err != nil {
				t.Fatal(err)
			}
			var older []string
			for _, r := range revisions[1:] {
				name, _, _ := strings.Cut(r.Object.Name, "-")
				older = append(older, name)
			}
			if diff := cmp.Diff(tc.older, older); revisions[0].Exists != tc.latest || diff != "" {
				t.Errorf("%s\nlatest exists: %t, want %t; older (-want +got):\n%s", tc.reason, revisions[0].Exists, tc.latest, diff)
			}
			if diff := cmp.Diff(parent, revisions[0].Parent); diff != "" {
				t.Errorf("the latest revision's parent is not the parent (-want +got):\n%s", diff)
			}
			checkRepaired(t, p, revisions)
		})
	}
}

// checkRepaired plans with the revisions, and checks that the latest one is right after the writes.
func checkRepaired(t *testing.T, p *Planner, revisions []Revision) {
	t.Helper()
	plan, err := p.Plan(Input{Revisions: revisions, Responses: make([]Response, len(revisions))})
	if err != nil {
		t.Fatal(err)
	}
	latest := revisions[0].Object
	if len(plan.Writes) > 0 && plan.Writes[0].Revision.Name == latest.Name {
		latest = plan.Writes[0].Revision
	}
	patch, err := decodePatch(latest)
	if diff := cmp.Diff(revisions[0].patch, patch); err != nil || diff != "" {
		t.Errorf("patch of the latest revision after the writes: %v (-want +got):\n%s", err, diff)
	}
	if owner := metav1.GetControllerOf(latest); owner == nil || owner.UID != "uid-1" {
		t.Errorf("owner of the latest revision after the writes: %v", owner)
	}
}

func TestUnreadableRevisionStopsTheRollout(t *testing.T) {
	parent := decode(t, parentHead+`"spec":{"a":2}}`)
	for name, patch := range map[string]string{
		"Empty": ``, "Null": `null`, "List": `[]`, "Cut": `{"spec":`, "Forged": `{"spec":{"a":1}}`, "ForgedToBeTheLatest": `{"spec":{"a":2}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plannerOf().Revisions(parent, []*revisionObject{named("broken", patch)})
			unreadable, ok := errors.AsType[*UnreadableError](err)
			if !ok || unreadable.Name != "broken" || !strings.Contains(err.Error(), "ControllerRevision home/broken") {
				t.Errorf("got %v; want an UnreadableError that names the revision", err)
			}
		})
	}
}

func TestDeletingRevisionIsNotDeletedAgain(t *testing.T) {
	parent := decode(t, parentHead+`"spec":{"a":2}}`)
	old := revision("old", `{"spec":{"a":1}}`)
	for _, deleting := range []bool{false, true} {
		if deleting {
			old.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		revisions, err := plannerOf().Revisions(parent, []*revisionObject{old})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := plannerOf().Plan(Input{Revisions: revisions, Responses: make([]Response, 2)})
		if err != nil {
			t.Fatal(err)
		}
		var got []Operation
		for _, w := range plan.Writes {
			got = append(got, w.Operation)
		}
		want := []Operation{Create, Delete}
		if deleting {
			want = want[:1]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deleting %t: writes (-want +got):\n%s", deleting, diff)
		}
	}
}

func FuzzRevisions(f *testing.F) {
	f.Add(parentHead+`"spec":{"a":2}}`, `{"spec":{"a":1}}`, "spec.a", `["spec"]`)
	f.Add(`{"metadata":7}`, `{"spec":[]}`, "spec..", `[`)
	f.Fuzz(func(t *testing.T, parent, patch, path, recorded string) {
		var content map[string]any
		if err := utiljson.Unmarshal([]byte(parent), &content); err != nil || content == nil {
			return
		}
		old := revision("old", patch)
		old.Annotations = map[string]string{AnnotationFieldPaths: recorded}
		p := plannerOf(path)
		revisions, err := p.Revisions(content, []*revisionObject{old})
		if err != nil {
			return
		}
		if _, err := p.Plan(Input{Revisions: revisions, Responses: make([]Response, len(revisions))}); err != nil {
			t.Errorf("planning with %d revisions: %v", len(revisions), err)
		}
	})
}

// syncWith syncs a parent with three children that never become ready, and returns the revisions with those that the writes leave. A child of
// them moves with each change of the parent.
func syncWith(t *testing.T, paths []string, spec string, stored []*revisionObject) ([]*revisionObject, *Plan) {
	t.Helper()
	p := plannerOf(paths...)
	revisions, err := p.Revisions(decode(t, parentHead+`"spec":`+spec+`}`), stored)
	if err != nil {
		t.Fatal(err)
	}
	responses := make([]Response, len(revisions))
	for n := range responses {
		for _, name := range names(2, 0) {
			responses[n].Desired = append(responses[n].Desired, children.Desired{Key: children.Key{Kind: "Pod", Namespace: "home", Name: name}})
		}
	}
	plan, err := p.Plan(Input{
		Revisions: revisions, Responses: responses,
		Observed:  func(children.Key) (Child, bool) { return &pod{}, true },
		Unchanged: func(children.Desired) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range plan.Writes {
		stored = slices.DeleteFunc(slices.Clone(stored), func(r *revisionObject) bool { return r.Name == w.Revision.Name })
		if w.Operation != Delete {
			stored = append(stored, w.Revision)
		}
	}
	return stored, plan
}

func TestOlderRevisionsShowTheParentAsItWasAfterAnEditOfTheFieldPaths(t *testing.T) {
	few, more, all := []string{"spec.template"}, []string{"spec.template", "spec.extra"}, []string{"spec"}
	type state struct {
		paths []string
		spec  string
	}
	cases := map[string]struct {
		reason string
		states []state
		// want is the oldest revision's.
		want string
	}{
		"AddedBeforeTheParentHasTheField": {
			"The latest revision was the parent without the field.",
			[]state{{few, `{"template":1}`}, {more, `{"template":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1}`,
		},
		"AddedTogetherWithTheField": {
			"Whether the parent had the field before is not known.",
			[]state{{few, `{"template":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
		"TakenOutForAWhile": {
			"The field reached all children meanwhile.",
			[]state{{more, `{"template":1}`}, {few, `{"template":1,"extra":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
		"AddedInTheMiddleOfARollout": {
			"The children of the older revision were made without the field, too.",
			[]state{{few, `{"template":1}`}, {few, `{"template":2}`}, {more, `{"template":2}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1}`,
		},
		"WidenedToTheFieldAbove": {
			"Of the other parts of that field it is not known what they were.",
			[]state{{few, `{"template":1,"extra":1}`}, {all, `{"template":1,"extra":1}`}, {all, `{"template":2,"extra":2}`}},
			`{"template":1,"extra":2}`,
		},
		"WidenedInTheMiddleOfARollout": {
			"The children of the older revision were made with the other parts.",
			[]state{{few, `{"template":1,"extra":1}`}, {few, `{"template":2,"extra":1}`}, {all, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
		"AddedInTheMiddleOfARolloutOfAParentWithTheField": {
			"The children of the older revision have the field.",
			[]state{{few, `{"template":1,"extra":1}`}, {few, `{"template":2,"extra":1}`}, {more, `{"template":2,"extra":1}`}},
			`{"template":1,"extra":1}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var stored []*revisionObject
			for _, s := range tc.states {
				stored, _ = syncWith(t, s.paths, s.spec, stored)
				if _, again := syncWith(t, s.paths, s.spec, stored); len(again.Writes) > 0 {
					t.Errorf("with %s: %d writes while nothing changes", s.spec, len(again.Writes))
				}
			}
			last := tc.states[len(tc.states)-1]
			revisions, err := plannerOf(last.paths...).Revisions(decode(t, parentHead+`"spec":`+last.spec+`}`), stored)
			if err != nil || len(revisions) < 2 {
				t.Fatalf("%d revisions, %v", len(revisions), err)
			}
			first := slices.IndexFunc(revisions, func(r Revision) bool { return cmp.Equal(r.patch["spec"], map[string]any{"template": int64(1)}) })
			if first < 1 {
				t.Fatal("the first revision is gone")
			}
			if diff := cmp.Diff(decode(t, tc.want), revisions[first].Parent["spec"]); diff != "" {
				t.Errorf("%s\nthe first revision's spec (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRevisionsOfMetacontrollerAreNotWrittenForWhatTheyDoNotSay(t *testing.T) {
	stored, _ := syncWith(t, []string{"spec.template"}, `{"template":1}`, nil)
	stored[0].Annotations = nil
	for _, paths := range [][]string{{"spec.template"}, {"spec.template", "spec.extra"}} {
		if _, plan := syncWith(t, paths, `{"template":1}`, stored); len(plan.Writes) > 0 {
			t.Errorf("with the paths %v: %d writes, want none", paths, len(plan.Writes))
		}
	}
	stored[0].OwnerReferences[0].Controller = new(false)
	if _, plan := syncWith(t, []string{"spec.template"}, `{"template":1}`, stored); len(plan.Writes) != 1 || metav1.GetControllerOf(plan.Writes[0].Revision) == nil ||
		plan.Writes[0].Revision.Annotations[AnnotationFieldPaths] != `["spec.template"]` {
		t.Errorf("of the latest revision that is written for another reason: %v, want the annotation", plan.Writes)
	}
}

func TestFormerRevisions(t *testing.T) {
	parent := decode(t, parentHead+`"spec":{"a":2}}`)
	latest, old := revision("latest", `{"spec":{"a":2}}`), revision("old", `{"spec":{"a":1}}`)
	for name, tc := range map[string]struct {
		given []*revisionObject
		name  string
		want  any
		err   error
	}{
		"previous":                       {[]*revisionObject{latest, old}, v1alpha1.RevisionPrevious, int64(1), nil},
		"none named":                     {[]*revisionObject{latest, old}, "", int64(1), nil},
		"a name":                         {[]*revisionObject{latest, old}, old.Name, int64(1), nil},
		"the latest":                     {[]*revisionObject{latest, old}, latest.Name, int64(2), nil},
		"a name that is none":            {[]*revisionObject{latest, old}, "x", nil, inspection.ErrNoRevision},
		"no former one":                  {[]*revisionObject{latest}, "", nil, errNoFormer},
		"a latest that is not there yet": {[]*revisionObject{old}, latest.Name, nil, inspection.ErrNoRevision},
	} {
		t.Run(name, func(t *testing.T) {
			revisions, err := plannerOf().Revisions(parent, tc.given)
			if err != nil {
				t.Fatal(err)
			}
			former, err := plannerOf().Former(revisions, tc.name)
			if !errors.Is(err, tc.err) {
				t.Fatalf("the error is %v, want %v", err, tc.err)
			}
			if err != nil {
				return
			}
			if got, _ := field(former.Parent, []string{"spec", "a"}); got != tc.want {
				t.Errorf("spec.a is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFormerRevisionsAreKeptUpToTheLimit rolls a parent through versions, one after the other to the end.
func TestFormerRevisionsAreKeptUpToTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		limit    int
		versions []string
		// kept are the versions of the revisions that are left, the latest first, and previous is what the parent is rolled back to.
		kept     []string
		previous string
	}{
		"none":                               {0, []string{"v2", "v3"}, []string{"v3"}, ""},
		"all":                                {10, []string{"v2", "v3"}, []string{"v3", "v2", "v1"}, "v2"},
		"the newest":                         {2, []string{"v2", "v3", "v4", "v5"}, []string{"v5", "v4", "v3"}, "v4"},
		"one that is the latest again":       {2, []string{"v2", "v3", "v2"}, []string{"v2", "v3", "v1"}, "v3"},
		"one that was the latest again":      {2, []string{"v2", "v3", "v1", "v4"}, []string{"v4", "v1", "v3"}, "v1"},
		"back and forth between two of them": {2, []string{"v2", "v1", "v2", "v1"}, []string{"v1", "v2"}, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, "home", strategy{Method: inPlace}, 3)
			s.planner.config.HistoryLimit = tc.limit
			for _, version := range append([]string{"v1"}, tc.versions...) {
				s.set("spec.template.version", version)
				for range 10 {
					s.sync()
					s.settle()
				}
			}
			if plan := s.sync(); len(plan.Writes) > 0 || plan.Outdated > 0 {
				t.Fatalf("at rest there are %d writes", len(plan.Writes))
			}
			revisions, err := s.planner.Revisions(s.parent, s.candidates())
			if err != nil || len(Live(revisions)) != 1 {
				t.Fatalf("the hook is called for %d revisions, error %v", len(Live(revisions)), err)
			}
			var kept []string
			for _, r := range revisions {
				patch, err := decodePatch(r.Object)
				if err != nil {
					t.Fatal(err)
				}
				version, _ := field(patch, []string{"spec", "template", "version"})
				kept = append(kept, fmt.Sprint(version))
			}
			if !slices.Equal(kept, tc.kept) {
				t.Errorf("revisions %q are kept, want %q", kept, tc.kept)
			}
			former, err := s.planner.Former(revisions, "")
			if tc.previous == "" {
				if !errors.Is(err, errNoFormer) {
					t.Errorf("rolling back: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := field(former.Parent, []string{"spec", "template", "version"}); got != tc.previous {
				t.Errorf("it is rolled back to %v, want %s", got, tc.previous)
			}
		})
	}
}

// TestARevisionThatNoChildIsOnHoldsNothingUp has one that was changed since it was written: the hook is shown nothing of it, and nobody is rolled
// back to it.
func TestARevisionThatNoChildIsOnHoldsNothingUp(t *testing.T) {
	latest, broken := revision("latest", `{"spec":{"a":2}}`), revision("old", `{"spec":{"a":1}}`)
	broken.Children, broken.ParentPatch.Raw = nil, []byte(`{"spec":{"a":3}}`)
	revisions, err := plannerOf().Revisions(decode(t, parentHead+`"spec":{"a":2}}`), []*revisionObject{broken, latest})
	if err != nil || len(revisions) != 2 || len(Live(revisions)) != 1 {
		t.Fatalf("%d revisions, error %v", len(revisions), err)
	}
	if _, err := plannerOf().Former(revisions, broken.Name); !errors.As(err, new(*UnreadableError)) {
		t.Errorf("rolling back to it: %v", err)
	}
}
