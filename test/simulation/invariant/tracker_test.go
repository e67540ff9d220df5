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
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

var start = time.Unix(1_000_000, 0)

// script tells a tracker what happened.
type script struct {
	*Tracker

	t        *testing.T
	revision int64
	versions map[string]string
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{t: t, versions: map[string]string{}}
	s.Tracker = NewTracker(Options{Start: start, Engine: func(user string) (int, bool) { return 0, user == "engine" }, Workers: 2})
	return s
}

func (s *script) decode(text string) map[string]any {
	s.t.Helper()
	o, err := value.Decode([]byte(text))
	if err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return o
}

// write writes an object; an empty text deletes the one with the UID.
func (s *script) write(who, verb, resource, uid, text string, after time.Duration) {
	s.t.Helper()
	s.revision++
	resource, subresource, _ := strings.Cut(resource, "/")
	w := apiserver.Write{
		Revision: s.revision, At: start.Add(after), User: who, Verb: verb, Resource: resource, Subresource: subresource, UID: uid, Group: hooks.Group,
	}
	if resource == "configmaps" {
		w.Group = ""
	}
	if before := s.versions[uid]; before != "" {
		w.Before = s.decode(before)
	}
	if text != "" {
		o := s.decode(text)
		meta, _ := o["metadata"].(map[string]any)
		meta["uid"], meta["resourceVersion"] = uid, fmt.Sprint(s.revision)
		w.Name, _ = meta["name"].(string)
		w.After = o
	}
	s.versions[uid] = ""
	if w.After != nil {
		s.versions[uid] = string(value.Encode(w.After))
	}
	s.Write(w)
}

// call calls a hook with the present state of objects; of those named in old it shows an older version.
func (s *script) call(name hook.Name, parent string, children []string, old string, response *hooks.Response, after time.Duration) {
	s.t.Helper()
	shown := func(uid string) map[string]any {
		o := s.decode(s.versions[uid])
		if uid == strings.TrimSuffix(old, withStatus) {
			o["metadata"].(map[string]any)["resourceVersion"] = "0"
			if uid == old {
				delete(o, "status")
			}
		}
		return o
	}
	r := &hooks.Request{Controller: s.definition("c0"), Parent: shown(parent), Children: hooks.Objects{"ConfigMap.v1": {}}, Finalizing: name == hook.Finalize}
	for _, uid := range children {
		r.Children["ConfigMap.v1"][uid] = shown(uid)
	}
	s.Call(&Call{At: after, Controller: "c0", Hook: name, Request: r, Response: response, Pure: true, InFlight: 1})
}

// withStatus is appended to what a call shows in a former version, but with the status that was written since.
const withStatus = " with its status"

const (
	composite = `{"kind":"CompositeController","metadata":{"name":"c0","uid":"c","generation":1},"spec":{
		"parentResource":{"apiVersion":"sim.example.com/v1","resource":"things"},
		"childResources":[{"apiVersion":"v1","resource":"configmaps","updateStrategy":{"method":"%s"}}],"hooks":{"sync":{}%s}}}`
	thing = `{"apiVersion":"sim.example.com/v1","kind":"Thing","metadata":{"name":"t0","namespace":"ns0"%s},"spec":{"selector":{"matchLabels":{"app":"t0"}}}%s}`
	child = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"t0-c0-m0","namespace":"ns0","labels":{"app":"t0"%s},
		"ownerReferences":[{"apiVersion":"sim.example.com/v1","kind":"Thing","name":"t0","uid":"t","controller":true}]},"data":{%s}}`
	gadget    = `{"apiVersion":"sim.example.com/v1","kind":"Gadget","metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"n","uid":"n","controller":true}]},"spec":{%s}}`
	finalizer = `,"finalizers":["metacontroller.io/compositecontroller-c0"]`
)

func (s *script) define(method, finalize string) {
	s.t.Helper()
	s.write("user", "create", "compositecontrollers", "c", fmt.Sprintf(composite, method, finalize), 0)
}

func (s *script) thing(who, meta, rest string, after time.Duration) {
	s.t.Helper()
	s.write(who, "update", "things", "t", fmt.Sprintf(thing, meta, rest), after)
}

// status has an engine write a status of c0.
func (s *script) status(after time.Duration) {
	s.t.Helper()
	s.write("engine", "update", "things/status", "t", fmt.Sprintf(thing, "", `,"status":{"by":"c0"}`), after)
}

func (s *script) child(who, labels, data string, after time.Duration) {
	s.t.Helper()
	s.write(who, "update", "configmaps", "m", fmt.Sprintf(child, labels, data), after)
}

// shownAfterItsDeletion has an engine delete the child, which the hook does not want, and show it to the hook before and after.
func (s *script) shownAfterItsDeletion() {
	s.t.Helper()
	s.call(hook.Sync, "t", []string{"m"}, "", &hooks.Response{}, 0)
	shown := s.versions["m"]
	s.write("engine", "delete", "configmaps", "m", "", time.Second)
	s.versions["m"] = shown
	s.call(hook.Sync, "t", []string{"m"}, "", &hooks.Response{}, 2*time.Second)
}

// applied writes the child with the data that managers own by server-side apply.
func (s *script) applied(owners string) {
	s.t.Helper()
	o := s.decode(fmt.Sprintf(child, "", `"color":"red","size":"1"`))
	entries := []any{}
	for manager, fields := range s.decode(owners) {
		entries = append(entries, map[string]any{"manager": manager, "operation": "Apply", "fieldsV1": map[string]any{"f:data": fields}})
	}
	o["metadata"].(map[string]any)["managedFields"] = entries
	s.write("user", "update", "configmaps", "m", string(value.Encode(o)), 0)
}

func wants(data map[string]any) *hooks.Response {
	return &hooks.Response{Children: []map[string]any{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "t0-c0-m0", "labels": map[string]any{"app": "t0"}}, "data": data,
	}}}
}

func TestEveryStep(t *testing.T) {
	red := map[string]any{"color": "red"}
	for name, tc := range map[string]struct {
		happens func(*script)
		want    string
	}{
		"ParentShownAsBeforeItsOwnStatusWrite": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.status(time.Second)
			s.call(hook.Sync, "t", nil, "t", wants(red), 2*time.Second)
		}, KnowledgeIsFresh},
		"ParentShownWithItsOwnStatusBeforeThatIsWritten": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.status(time.Second)
			s.call(hook.Sync, "t", nil, "t"+withStatus, wants(red), 2*time.Second)
		}, ""},
		"ParentShownAsWritten": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.status(time.Second)
			s.call(hook.Sync, "t", nil, "", wants(red), 2*time.Second)
		}, ""},
		"StatusAboutAGenerationThatNoHookWasShown": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", `,"generation":1`, "", 0)
			s.call(hook.Sync, "t", nil, "", wants(red), time.Second)
			s.thing("user", `,"generation":2`, "", 2*time.Second)
			s.thing("engine", `,"generation":2`, `,"status":{"observedGeneration":2}`, 3*time.Second)
		}, GenerationShown},
		"StatusAboutTheGenerationThatTheHookWasShown": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", `,"generation":1`, "", 0)
			s.call(hook.Sync, "t", nil, "", wants(red), time.Second)
			s.thing("user", `,"generation":2`, "", 2*time.Second)
			s.thing("engine", `,"generation":2`, `,"status":{"observedGeneration":1}`, 3*time.Second)
		}, ""},
		"OldAfterTheLimit": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.status(time.Second)
			s.call(hook.Sync, "t", nil, "t", wants(red), 12*time.Second)
		}, ""},
		"OldAfterALostResponse": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.status(time.Second)
			s.Unacknowledged(s.Written() - 1)
			s.call(hook.Sync, "t", nil, "t", wants(red), 2*time.Second)
		}, ""},
		"WrittenByAnotherController": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.thing("engine", `,"labels":{"by-d2":"red"}`, "", time.Second)
			s.call(hook.Sync, "t", nil, "t", wants(red), 2*time.Second)
		}, ""},
		"StatusPrunedByAWriteOfAnotherController": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", `,"status":{"by":"c0","note":"x"}`, 0)
			s.thing("engine", `,"labels":{"by-d2":"red"}`, `,"status":{"by":"c0"}`, time.Second)
			s.call(hook.Sync, "t", nil, "t", wants(red), 2*time.Second)
		}, ""},
		"CreatedChildNotShown": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.call(hook.Sync, "t", nil, "", wants(red), 0)
			s.child("engine", "", `"color":"red"`, time.Second)
			s.call(hook.Sync, "t", nil, "", wants(red), 2*time.Second)
		}, KnowledgeIsFresh},
		"CreatedChildDeletedMeanwhile": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("engine", "", `"color":"red"`, time.Second)
			s.write("user", "delete", "configmaps", "m", "", time.Second)
			s.call(hook.Sync, "t", nil, "", wants(red), 2*time.Second)
		}, ""},
		"AttachmentClaimedByACompositeTooIsDeletedByItsDecorator": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("engine", `},"annotations":{"metacontroller.k8s.io/decorator-controller":"d2"`, `"color":"blue"`, 0)
			s.shownAfterItsDeletion()
		}, ""},
		"AttachmentOfAGoneParentIsDeletedByAComposite": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("engine", `},"annotations":{"metacontroller.k8s.io/decorator-controller":"c0"`, `"color":"red"`, 0)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("user", "delete", "things", "t", "", time.Second)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, ""},
		"DeletedChildShown": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("engine", "", `"color":"blue"`, 0)
			s.shownAfterItsDeletion()
		}, KnowledgeIsFresh},
		"WantedChildDeleted": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"color":"red"`, 0)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, WantedStays},
		"UnwantedChildDeleted": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"color":"red"`, 0)
			s.call(hook.Sync, "t", []string{"m"}, "", &hooks.Response{}, 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, ""},
		"RecreatedThoughAsWanted": {func(s *script) {
			s.define("Recreate", "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"color":"red"`, 0)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, WantedStays},
		"RecreatedBecauseItDiffers": {func(s *script) {
			s.define("Recreate", "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"color":"green"`, 0)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, ""},
		"RecreatedForOwnedFieldNoLongerWanted": {func(s *script) {
			s.define("Recreate", "")
			s.thing("user", "", "", 0)
			s.applied(`{"metacontroller/compositecontroller/c0":{"f:color":{},"f:size":{}}}`)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, ""},
		"RecreatedForFieldOfAnotherController": {func(s *script) {
			s.define("Recreate", "")
			s.thing("user", "", "", 0)
			s.applied(`{"metacontroller/compositecontroller/c0":{"f:color":{}},"metacontroller/compositecontroller/c1":{"f:size":{}}}`)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, WantedStays},
		"RecreatedForFieldThatAnotherManagerOwnsToo": {func(s *script) {
			s.define("Recreate", "")
			s.thing("user", "", "", 0)
			s.applied(`{"metacontroller/compositecontroller/c0":{"f:color":{},"f:size":{}},"kubectl":{"f:size":{}}}`)
			s.call(hook.Sync, "t", []string{"m"}, "", wants(red), 0)
			s.write("engine", "delete", "configmaps", "m", "", time.Second)
		}, WantedStays},
		"FieldOfOthersLost": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"f-x":"1"`, 0)
			s.child("engine", "", `"color":"red"`, time.Second)
		}, StrangersUntouched},
		"ChildUpdated": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("user", "", `"f-x":"1"`, 0)
			s.child("engine", "", `"f-x":"1","color":"red"`, time.Second)
		}, ""},
		"StrangerWritten": {func(s *script) {
			s.write("user", "create", "configmaps", "x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, 0)
			s.write("engine", "update", "configmaps", "x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"b"}}`, 0)
		}, StrangersUntouched},
		"SpecOfStrangersChildChanged": {func(s *script) {
			s.write("user", "create", "gadgets", "x", fmt.Sprintf(gadget, ""), 0)
			s.write("engine", "patch", "gadgets", "x", fmt.Sprintf(gadget, `"color":"red"`), 0)
		}, StrangersUntouched},
		"SpecOfStrangersChildDefaulted": {func(s *script) {
			s.write("user", "create", "gadgets", "x", fmt.Sprintf(gadget, ""), 0)
			s.write("engine", "patch", "gadgets", "x", fmt.Sprintf(gadget, `"grade":"b"`), 0)
		}, ""},
		"StrangerDeleted": {func(s *script) {
			s.write("user", "create", "configmaps", "x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, 0)
			s.write("engine", "delete", "configmaps", "x", "", 0)
		}, StrangersUntouched},
		"SyncWithoutFinalizer": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", "", "", 0)
			s.call(hook.Sync, "t", nil, "", wants(red), 0)
		}, FinalizerFirst},
		"SyncWithFinalizer": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.call(hook.Sync, "t", nil, "", wants(red), 0)
		}, ""},
		"FinalizerTakenOffWithoutAsking": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.thing("engine", "", "", 0)
		}, FinalizeAsked},
		"FinalizerTakenOffAfterAsking": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.call(hook.Finalize, "t", nil, "", &hooks.Response{Finalized: true}, 0)
			s.thing("engine", "", "", 0)
		}, ""},
		"FinalizerTakenOffBeforeAChildThatIsNotWanted": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.child("user", "", `"color":"red"`, 0)
			s.call(hook.Finalize, "t", []string{"m"}, "", &hooks.Response{Finalized: true}, 0)
			s.thing("engine", "", "", 0)
		}, ChildrenFirst},
		"FinalizerTakenOffAfterAChildThatIsNotWanted": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.child("user", "", `"color":"red"`, 0)
			s.call(hook.Finalize, "t", []string{"m"}, "", &hooks.Response{Finalized: true}, 0)
			s.write("engine", "delete", "configmaps", "m", "", 0)
			s.thing("engine", "", "", 0)
		}, ""},
		"FinalizerTakenOffBesideAChildThatIsWanted": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.child("user", "", `"color":"red"`, 0)
			response := wants(red)
			response.Finalized = true
			s.call(hook.Finalize, "t", []string{"m"}, "", response, 0)
			s.thing("engine", "", "", 0)
		}, ""},
		"FinalizerTakenOffAParentInDeletionBeforeAChildThatIsNotWanted": {func(s *script) {
			const deleted = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer+deleted, "", 0)
			s.child("user", "", `"color":"red"`, 0)
			s.call(hook.Finalize, "t", []string{"m"}, "", &hooks.Response{Finalized: true}, 0)
			s.thing("engine", `,"finalizers":["x"]`+deleted, "", 0)
		}, ""},
		"FinalizerOfNoHookTakenOff": {func(s *script) {
			s.define("InPlace", `,"finalize":{}`)
			s.thing("user", finalizer, "", 0)
			s.write("user", "update", "compositecontrollers", "c", fmt.Sprintf(composite, "InPlace", `},"x":{`), 0)
			s.thing("engine", "", "", 0)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			tc.happens(s)
			got := ""
			if v := s.Violation(); v != nil {
				got = v.Invariant
				if v.Source == "" {
					t.Errorf("%s has no source", v.Invariant)
				}
			}
			if got != tc.want {
				t.Errorf("violates %q, want %q: %v", got, tc.want, s.Violation())
			}
		})
	}
}

func TestTooManyCalls(t *testing.T) {
	s := newScript(t)
	s.define("InPlace", "")
	s.thing("user", "", "", 0)
	for inFlight, want := range map[int]bool{2: false, 3: true} {
		s.violation = nil
		s.Call(&Call{Controller: "c0", Hook: hook.Customize, InFlight: inFlight, Request: &hooks.Request{
			Controller: s.definition("c0"), Parent: s.decode(s.versions["t"]),
		}})
		if got := s.Violation() != nil; got != want {
			t.Errorf("%d calls under way violate: %v, want %v", inFlight, got, want)
		}
	}
}

func TestAHookThatBehavesIsNotBlamed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// misled is when the hook responded otherwise than its function says, zero for never, and told when the Warning comes.
		misled, told time.Duration
		violated     bool
	}{
		"ItBehaves":           {reason: "ResponseDiffers", told: time.Hour, violated: true},
		"ItDidNotAtThatTime":  {reason: "ResponseDiffers", misled: time.Hour, told: time.Hour + time.Minute},
		"ItDidNotLongAgo":     {reason: "ResponseDiffers", misled: time.Minute, told: time.Hour, violated: true},
		"SomethingElseIsTold": {reason: "SyncError", told: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			if tc.misled > 0 {
				s.misled["p"] = tc.misled
			}
			s.Write(apiserver.Write{
				At: start.Add(tc.told), Resource: "events", Verb: "create",
				After: s.decode(`{"type":"Warning","reason":"` + tc.reason + `","message":"m","involvedObject":{"kind":"Thing","name":"t0","uid":"p"}}`),
			})
			if v := s.Violation(); (v != nil) != tc.violated || v != nil && v.Invariant != HooksNotBlamed {
				t.Errorf("violated: %v, want one: %v", v, tc.violated)
			}
		})
	}
}

func TestTheCallsOfTheLastTwoSyncsAreRemembered(t *testing.T) {
	call := func(color string) *Call {
		return &Call{Request: &hooks.Request{Parent: map[string]any{"spec": map[string]any{"color": color}}}}
	}
	var calls []*Call
	for range 2 * remembered {
		calls = recent(append(calls, call("latest"), call("former")))
		if len(calls) > remembered {
			t.Fatalf("%d calls are remembered", len(calls))
		}
	}
	if n := len(calls); n < 3 || latest(calls) != calls[n-2] {
		t.Errorf("of %d calls the last one for the latest revision is not that of the last sync", n)
	}
}
