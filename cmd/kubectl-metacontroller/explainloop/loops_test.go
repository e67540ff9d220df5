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

package explainloop

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/test/connectiontest"
)

// now is when the tests are.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// deployment is a child.
var deployment = v1alpha1.SyncObject{Group: "apps", Resource: "deployments", Kind: "Deployment", Namespace: "shop", Name: "web"}

// syncOf is a sync that a cause had write a place of the child, so many seconds ago.
func syncOf(ago int, cause v1alpha1.SyncReason, path string, by ...string) v1alpha1.ControllerSync {
	return v1alpha1.ControllerSync{
		ParentReference: v1alpha1.ParentReference{Group: "example.com", Resource: "things", Namespace: "shop", Name: "a"},
		Time:            metav1.NewMicroTime(now.Add(-time.Duration(ago) * time.Second)),
		Triggers:        []v1alpha1.SyncTrigger{{Reason: cause}},
		Children:        []v1alpha1.SyncChild{{SyncObject: deployment, Action: v1alpha1.ChildUpdate, Fields: []string{path}, ChangedBackBy: by}},
	}
}

func TestLoopsAreFoundInSyncs(t *testing.T) {
	parent := syncOf(1, v1alpha1.SyncStatusChanged, "x")
	parent.Children, parent.Fields, parent.ChangedBackBy = nil, []string{"status.phase"}, []string{"CompositeController other"}
	// of is a sync that a cause had write the status of the parent.
	of := func(cause ...v1alpha1.SyncReason) v1alpha1.ControllerSync {
		s := syncOf(1, cause[0], "x")
		s.Children, s.Fields, s.Triggers = nil, []string{"status.ready"}, nil
		for _, each := range cause {
			s.Triggers = append(s.Triggers, v1alpha1.SyncTrigger{Reason: each})
		}
		return s
	}
	dropping := syncOf(1, v1alpha1.SyncSpecChanged, "x")
	dropping.Children, dropping.Dropped = nil, []string{"status.x[].y"}
	timer, status, gone := v1alpha1.SyncTimer, v1alpha1.SyncStatusChanged, v1alpha1.SyncChildDeleted
	flapping := syncOf(1, v1alpha1.SyncTimer, "spec.replicas")
	flapping.Children[0].Action, flapping.Children[0].Reason = v1alpha1.ChildLeave, reasonFlapping
	onDelete := syncOf(1, v1alpha1.SyncTimer, "spec.replicas")
	onDelete.Children[0].Action, onDelete.Children[0].Reason = v1alpha1.ChildLeave, "OnDelete"
	child, spec, resync := v1alpha1.SyncChildChanged, v1alpha1.SyncSpecChanged, v1alpha1.SyncResyncRequested
	// done is a sync that a cause had do something with the child as a whole.
	done := func(action v1alpha1.ChildAction, cause v1alpha1.SyncReason) v1alpha1.ControllerSync {
		s := syncOf(1, cause, "x")
		s.Children[0].Action, s.Children[0].Fields = action, nil
		return s
	}
	missing := done(v1alpha1.ChildLeave, gone)
	missing.Children[0].Reason = reasonFlapping
	created, replaced := done(v1alpha1.ChildCreate, gone), done(v1alpha1.ChildRecreate, timer)
	for name, tc := range map[string]struct {
		reason string
		syncs  []v1alpha1.ControllerSync
		want   []string
	}{
		"nothing":       {"", nil, nil},
		"a known enemy": {"Somebody is known.", []v1alpha1.ControllerSync{syncOf(1, child, "spec.replicas", "kubectl"), syncOf(2, spec, "spec.replicas")}, []string{"Deployment shop/web spec.replicas 2 kubectl"}},
		"three writes that nobody asked for": {
			"Nobody is known.",
			[]v1alpha1.ControllerSync{syncOf(1, child, "a"), syncOf(2, child, "a"), syncOf(3, v1alpha1.SyncOwnWrite, "a")},
			[]string{"Deployment shop/web a 3 "},
		},
		"writes that were asked for": {
			"Each change of the parent may be written.", []v1alpha1.ControllerSync{syncOf(1, spec, "a"), syncOf(2, spec, "a"), syncOf(3, spec, "a"), syncOf(4, child, "a")}, nil,
		},
		"changes of the hook": {
			"Its author asks for a sync after each.",
			[]v1alpha1.ControllerSync{syncOf(1, resync, "a"), syncOf(2, resync, "a"), syncOf(3, resync, "a"), syncOf(4, child, "a")},
			nil,
		},
		"the annotation beside what it is written with": {
			"It says nothing that the other place does not say.",
			[]v1alpha1.ControllerSync{syncOf(1, child, "a"), syncOf(2, child, "a"), syncOf(3, child, "a"), syncOf(1, child, lastApplied), syncOf(2, child, lastApplied), syncOf(3, child, lastApplied)},
			[]string{"Deployment shop/web a 3 "},
		},
		"the annotation alone": {
			"Somebody takes it away.",
			[]v1alpha1.ControllerSync{syncOf(1, child, lastApplied), syncOf(2, child, lastApplied), syncOf(3, child, lastApplied)},
			[]string{"Deployment shop/web " + lastApplied + " 3 "},
		},
		"places of their own": {"One correction each is none.", []v1alpha1.ControllerSync{syncOf(1, child, "a"), syncOf(2, child, "b"), syncOf(3, child, "c")}, nil},
		"the parent":          {"", []v1alpha1.ControllerSync{parent}, []string{"Thing shop/a status.phase 1 CompositeController other"}},
		"a status that follows the children": {
			"It counts those that are ready.",
			[]v1alpha1.ControllerSync{of(v1alpha1.SyncChildChanged), of(gone), of(status, v1alpha1.SyncChildChanged), of(v1alpha1.SyncChildChanged)},
			nil,
		},
		"a status that follows nothing": {
			"Nobody is known.",
			[]v1alpha1.ControllerSync{of(status), of(timer), of(v1alpha1.SyncChildChanged), of(status)},
			[]string{"Thing shop/a status.ready 4 "},
		},
		"a field that is dropped":             {"The API server does not store it.", []v1alpha1.ControllerSync{dropping}, []string{"Thing shop/a status.x[].y 1 "}},
		"a child that is left":                {"It was written too often before.", []v1alpha1.ControllerSync{flapping}, []string{"Deployment shop/web spec.replicas 0 "}},
		"a child that is not to be updated":   {"Nothing is written.", []v1alpha1.ControllerSync{onDelete, onDelete, onDelete}, nil},
		"a child that somebody deletes":       {"Nobody is known.", []v1alpha1.ControllerSync{created, created, created}, []string{"Deployment shop/web  3 "}},
		"a child that somebody deleted twice": {"That is none yet.", []v1alpha1.ControllerSync{created, created, done(v1alpha1.ChildCreate, spec)}, nil},
		"a child that is not created":         {"It was created too often before.", []v1alpha1.ControllerSync{missing, created}, []string{"Deployment shop/web  1 "}},
		"a child that is replaced":            {"The controller deletes it itself.", []v1alpha1.ControllerSync{created, replaced, created, replaced, created, replaced}, nil},
		"the most frequent first": {
			"",
			[]v1alpha1.ControllerSync{syncOf(1, child, "a", "x"), syncOf(2, child, "b", "x", "y"), syncOf(3, child, "b", "y")},
			[]string{"Deployment shop/web b 2 x y", "Deployment shop/web a 1 x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range loopsOf(tc.syncs, "Thing") {
				got = append(got, fmt.Sprintf("%s %s %d %s", nameOf(l.object), l.path, l.writes, strings.Join(l.by, " ")))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nloops (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParentsOfOneNameAreNotTakenForOne(t *testing.T) {
	a := v1alpha1.ParentReference{Group: "example.com", Resource: "things", Namespace: "shop", Name: "a"}
	b := a
	b.Resource = "others"
	err := several("shop/a", []v1alpha1.ControllerParent{{ParentReference: a}, {ParentReference: b}})
	for _, part := range []string{`"shop/a"`, "things.example.com/shop/a, others.example.com/shop/a", "--resource"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no %q in %v", part, err)
		}
	}
}

func TestObjectsOfAKindThatIsGoneAreLeftOut(t *testing.T) {
	objects, err := read(t.Context(), meta.NewDefaultRESTMapper(nil), nil, []loop{{object: deployment, path: "spec.replicas"}})
	if o, read := objects[deployment]; err != nil || !read || o != nil {
		t.Errorf("got %v, error %v", objects, err)
	}
}

// managed is the child with field managers of spec.replicas, the latest first.
func managed(managers ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	var entries []metav1.ManagedFieldsEntry
	for i, name := range managers {
		at := metav1.NewTime(now.Add(-time.Duration(i) * time.Minute))
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`),
		})
	}
	o.SetManagedFields(entries)
	return o
}

func TestBothSidesOfALoopAreNamed(t *testing.T) {
	child := v1alpha1.SyncChildChanged
	dropping := syncOf(1, child, "x")
	dropping.Children, dropping.Dropped = nil, []string{"status.phase"}
	created, missing := syncOf(1, v1alpha1.SyncChildDeleted, "x"), syncOf(1, v1alpha1.SyncChildDeleted, "x")
	created.Children[0].Action, created.Children[0].Fields = v1alpha1.ChildCreate, nil
	missing.Children[0].Action, missing.Children[0].Fields, missing.Children[0].Reason = v1alpha1.ChildLeave, nil, reasonFlapping
	for name, tc := range map[string]struct {
		syncs  []v1alpha1.ControllerSync
		object *unstructured.Unstructured
		want   []string
	}{
		"nobody, beside an inline hook": {
			[]v1alpha1.ControllerSync{syncOf(1, child, "spec.replicas"), syncOf(2, child, "spec.replicas"), syncOf(3, child, "spec.replicas")},
			nil,
			[]string{"Nobody else is known to write it. The inline hook returns the same to the same request: either an expression reads"},
		},
		"a user": {
			[]v1alpha1.ControllerSync{syncOf(5, child, "spec.replicas", "kubectl")}, managed("metacontroller"), []string{
				"spec.replicas of Deployment shop/web is changed back and forth.",
				"CompositeController web wrote it in 1 of the last 1 sync, the last time 5s ago.",
				"The field manager kubectl changes it back.", "Field managers of it now, the latest first: metacontroller.",
				"Change the parent in place of the object", "See the syncs with: kubectl metacontroller syncs cc/web shop/a",
			},
		},
		"another controller": {
			[]v1alpha1.ControllerSync{syncOf(5, child, "spec.replicas", "DecoratorController scale")},
			nil,
			[]string{"DecoratorController scale changes it back.", "Let only one of the two controllers write it"},
		},
		"the controller of an owner": {
			[]v1alpha1.ControllerSync{syncOf(5, child, "spec.replicas", "the controller of Thing b")}, nil, []string{"The controller of Thing b changes it back."},
		},
		"a field manager that the syncs do not know": {
			[]v1alpha1.ControllerSync{syncOf(1, child, "spec.replicas"), syncOf(2, child, "spec.replicas"), syncOf(3, child, "spec.replicas")},
			managed("autoscaler", "metacontroller"),
			[]string{"The field manager autoscaler changes it back.", "the latest first: autoscaler, metacontroller.", "so that it belongs to autoscaler"},
		},
		"nobody": {
			[]v1alpha1.ControllerSync{syncOf(1, child, "spec.replicas"), syncOf(2, child, "spec.replicas"), syncOf(3, child, "spec.replicas")},
			managed("metacontroller"),
			[]string{"Nobody else is known to write it.", "'kubectl metacontroller record cc/web shop/a -o DIRECTORY'"},
		},
		"a child that is deleted": {
			[]v1alpha1.ControllerSync{missing, created, created}, nil, []string{
				"Deployment shop/web is deleted by somebody else and created again.",
				"CompositeController web created it in 2 of the last 3 syncs, the last time 1s ago.",
				"does not create Deployment shop/web for a while", "The API server's audit log says who deletes it",
			},
		},
		"a field that is dropped": {
			[]v1alpha1.ControllerSync{dropping}, nil, []string{
				"status.phase of Thing shop/a is not stored: the API server drops it.", "CompositeController web wrote it in 1 of the last 1 sync, the last time 1s ago.",
				"Declare it in the schema of things.example.com, or have the hook not return it.",
			},
		},
		"no loop": {
			[]v1alpha1.ControllerSync{syncOf(1, child, "spec.replicas")},
			nil,
			[]string{"No field is changed back and forth, and no child is deleted and created again, by what the server remembers: 1 sync of shop/a."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := report{
				controller: controllerobject.Object{Composite: &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "web"}}},
				parent:     "shop/a", syncs: len(tc.syncs), loops: loopsOf(tc.syncs, "Thing"), now: now,
				objects: map[v1alpha1.SyncObject]*unstructured.Unstructured{deployment: tc.object},
			}
			if strings.HasSuffix(name, "an inline hook") {
				r.controller.Composite.Spec.Hooks = &v1alpha1.CompositeControllerHooks{Sync: &v1alpha1.Hook{Inline: &v1alpha1.InlineHook{}}}
			}
			var out strings.Builder
			r.print(&out)
			for _, part := range tc.want {
				if !strings.Contains(out.String(), part) {
					t.Errorf("no %q in\n%s", part, out.String())
				}
			}
			d := r.document()
			if d.Controller != "cc/web" || d.Parent != "shop/a" || d.Syncs != len(tc.syncs) || len(d.Loops) != len(r.loops) {
				t.Errorf("the document is %+v", d)
			}
			for _, l := range d.Loops {
				if !strings.Contains(out.String(), l.Advice) || !strings.Contains(out.String(), l.Field) || l.Writes == 0 && !l.LeftAlone {
					t.Errorf("%+v is not what is printed:\n%s", l, out.String())
				}
			}
		})
	}
}

// The server names the other controller in the syncs of one side: those of the other side are looked at.
func TestTheOtherControllerIsNamedOnBothSides(t *testing.T) {
	s := syncOf(1, v1alpha1.SyncTimer, "metadata.labels.guarded")
	written := loop{object: deployment, path: "metadata.labels.guarded"}
	if !written.writtenBy(s) {
		t.Error("a write of a child is not found")
	}
	other := loop{object: deployment, path: "spec.replicas"}
	if other.writtenBy(s) {
		t.Error("a write of another place is found")
	}
	s.Children, s.Fields = nil, []string{"metadata.labels.guarded"}
	s.ParentReference = v1alpha1.ParentReference{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}
	if !written.writtenBy(s) {
		t.Error("a write of a parent is not found")
	}
	const group = "/apis/metacontroller.k8s.io/v1alpha1/"
	list, err := json.Marshal(v1alpha1.ControllerSyncList{Items: []v1alpha1.ControllerSync{s}})
	if err != nil {
		t.Fatal(err)
	}
	c := connectiontest.New(t, connectiontest.Documents{
		group + "compositecontrollers":             `{"kind":"CompositeControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"web"}}]}`,
		group + "decoratorcontrollers":             `{"kind":"DecoratorControllerList","apiVersion":"metacontroller.k8s.io/v1alpha1","items":[{"metadata":{"name":"guard"}}]}`,
		group + "decoratorcontrollers/guard/syncs": strings.Replace(string(list), "{", `{"kind":"ControllerSyncList","apiVersion":"metacontroller.k8s.io/v1alpha1",`, 1),
	}, genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	loops := []loop{written, other, {object: deployment, path: "metadata.labels.guarded", by: []string{"kubectl"}}}
	web := controllerobject.Object{Composite: &v1alpha1.CompositeController{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	if err := nameOthers(t.Context(), c, web, loops); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"DecoratorController guard", "", "kubectl"} {
		if got := strings.Join(loops[i].by, " "); got != want {
			t.Errorf("%s is written by %q, want %q", loops[i].path, got, want)
		}
	}
}
