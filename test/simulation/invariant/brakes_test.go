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

// script tells a tracker what happened.
type script struct {
	*Tracker

	t        *testing.T
	revision int64
	versions map[string]string
}

// braked writes the controller in a generation with further fields of its spec, of which the engine has seen another generation, or the
// same, and which has a condition.
func (s *script) braked(meta, spec string, generation, seen int, condition string, after time.Duration) {
	s.t.Helper()
	s.write("user", "update", "compositecontrollers", "c", fmt.Sprintf(`{"kind":"CompositeController","metadata":{"name":"c0","uid":"c","generation":%d%s},
		"spec":{"parentResource":{"apiVersion":"sim.example.com/v1","resource":"things"},"childResources":[{"apiVersion":"v1","resource":"configmaps"}],
		"hooks":{"sync":{}}%s},"status":{"observedGeneration":%d,"conditions":[{"type":"%s","status":"True","message":"metacontroller.k8s.io/confirm-deletions=then"}]}}`,
		generation, meta, spec, seen, condition), after)
}

const (
	paused   = `,"paused":true`
	none     = `,"deletionGuard":{"maxDeletions":0}`
	one      = `,"deletionGuard":{"maxDeletions":1}`
	half     = `,"deletionGuard":{"maxDeletions":"50%"}`
	deletes  = `,"annotations":{"metacontroller.k8s.io/confirm-deletions":"then"}`
	deleting = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
)

// deletion has a hook asked about the parent with a new child, which wants nothing, and the engine delete the child.
func (s *script) deletion(called, done time.Duration) {
	s.t.Helper()
	uid := fmt.Sprint("m", s.revision)
	s.write("user", "create", "configmaps", uid, fmt.Sprintf(child, "", `"color":"red"`), called)
	s.call(hook.Sync, "t", []string{uid}, &hooks.Response{}, called)
	s.write("engine", "delete", "configmaps", uid, "", done)
}

func TestBrakes(t *testing.T) {
	const s1, minute = time.Second, time.Minute
	for name, tc := range map[string]struct {
		happens func(*script)
		want    string
	}{
		"StatusOfAParentWrittenDuringAPause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.status(2 * s1)
		}, PausedRests},
		"FinalizerOfAnotherControllerAndTheFormOfTheStatusWrittenDuringAPause": {func(s *script) {
			s.thing("user", "", `,"status":{"by":"c0","note":"x"}`, 0)
			s.braked("", paused, 2, 2, "Paused", s1)
			s.thing("engine", `,"finalizers":["metacontroller.io/decoratorcontroller-d2"]`, `,"status":{"by":"c0"}`, 2*s1)
		}, ""},
		"HookCalledDuringAPause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.call(hook.Sync, "t", nil, &hooks.Response{}, 2*s1)
		}, PausedRests},
		"ChildCreatedDuringAPause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.child("engine", "", `"color":"red"`, 2*s1)
		}, PausedRests},
		"FinalizerTakenOffDuringAPause": {func(s *script) {
			s.thing("user", finalizer, "", 0)
			s.braked("", paused, 2, 2, "Paused", s1)
			s.thing("engine", "", "", 2*s1)
		}, PausedRests},
		"RevisionCreatedDuringAPause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.write("engine", "create", "controllerrevisions", "r", `{"kind":"ControllerRevision","metadata":{"name":"r",
				"ownerReferences":[{"apiVersion":"sim.example.com/v1","kind":"Thing","name":"t0","uid":"t","controller":true}]}}`, 2*s1)
		}, PausedRests},
		"WrittenAfterAnEditThatDoesNotEndThePause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.braked("", paused+none, 3, 2, "Paused", s1)
			s.status(2 * s1)
		}, PausedRests},
		"WrittenByAnEngineThatStartsDuringAPause": {func(s *script) {
			s.braked("", paused, 2, 1, "Ready", s1)
			s.Starts(s1)
			s.status(2 * s1)
		}, PausedRests},
		"WrittenBeforeThePauseIsReported": {func(s *script) {
			s.braked("", paused, 2, 1, "Paused", s1)
			s.status(2 * s1)
		}, ""},
		"WrittenAfterThePause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.braked("", "", 3, 2, "Paused", s1)
			s.status(2 * s1)
		}, ""},
		"WrittenByAPausedControllerThatIsDeleted": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.braked(deleting, paused, 3, 2, "Paused", s1)
			s.status(2 * s1)
		}, ""},
		"WrittenByAnotherControllerDuringAPause": {func(s *script) {
			s.braked("", paused, 2, 2, "Paused", s1)
			s.thing("engine", `,"labels":{"by-d2":"red"}`, "", 2*s1)
		}, ""},
		"LastFinalizerTakenOffByAnotherControllerDuringAPause": {func(s *script) {
			held := `"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["metacontroller.io/compositecontroller-c1"],"ownerReferences"`
			s.write("user", "create", "configmaps", "m", strings.Replace(fmt.Sprintf(child, "", ""), `"ownerReferences"`, held, 1), 0)
			s.braked("", paused, 2, 2, "Paused", s1)
			s.write("engine", "patch", "configmaps", "m", "", 2*s1)
		}, ""},
		"ArrivesFromAnEngineThatIsGone": {func(s *script) {
			s.Starts(0)
			s.braked("", paused, 2, 2, "Paused", s1)
			s.Starts(s1)
			s.status(2 * s1)
		}, ""},

		"OneDeletionTooMany": {func(s *script) {
			s.braked("", one, 2, 2, "Ready", s1)
			s.deletion(2*s1, 3*s1)
			s.deletion(4*s1, 50*s1)
		}, DeletionsGuarded},
		"ADeletionThoughNoneIsAllowed": {func(s *script) {
			s.braked("", none, 2, 2, "Ready", s1)
			s.deletion(2*s1, 3*s1)
		}, DeletionsGuarded},
		"AsManyDeletionsAsAreAllowed": {func(s *script) {
			s.braked("", one, 2, 2, "Ready", s1)
			s.deletion(2*s1, 3*s1)
			s.deletion(4*s1, 63*s1)
		}, ""},
		"OneDeletionMoreThanTheShare": {func(s *script) {
			s.braked("", half, 2, 2, "Ready", s1)
			s.child("user", "", `"color":"red"`, s1)
			s.deletion(2*s1, 3*s1)
			s.deletion(4*s1, 50*s1)
		}, DeletionsGuarded},
		"TheShareOfTheChildrenThatThereWere": {func(s *script) {
			s.braked("", half, 2, 2, "Ready", s1)
			s.child("user", "", `"color":"red"`, s1)
			s.write("user", "create", "configmaps", "gone", fmt.Sprintf(child, "", `"color":"red"`), s1)
			s.write("user", "delete", "configmaps", "gone", "", s1)
			s.deletion(2*s1, 3*s1)
			s.deletion(4*s1, 50*s1)
		}, ""},
		"TheShareOfTheChildrenBeforeOneWasOrphaned": {func(s *script) {
			s.braked("", half, 2, 2, "Ready", s1)
			s.child("user", "", `"color":"red"`, s1)
			s.write("user", "create", "configmaps", "left", fmt.Sprintf(child, "", `"color":"red"`), s1)
			s.write("user", "patch", "configmaps", "left", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"left","namespace":"ns0"}}`, s1)
			s.deletion(2*s1, 3*s1)
			s.deletion(4*s1, 50*s1)
		}, ""},
		"TheShareOfTheChildrenOfLongAgo": {func(s *script) {
			s.braked("", half, 2, 2, "Ready", s1)
			s.child("user", "", `"color":"red"`, s1)
			s.write("user", "create", "configmaps", "gone", fmt.Sprintf(child, "", `"color":"red"`), s1)
			s.write("user", "delete", "configmaps", "gone", "", s1)
			s.deletion(10*minute, 10*minute)
			s.deletion(10*minute+s1, 10*minute+s1)
		}, DeletionsGuarded},
		"ADeletionThatWasDecidedBeforeTheGuardIsKnown": {func(s *script) {
			s.deletion(s1, 0)
			s.braked("", none, 2, 1, "Ready", s1)
			s.deletion(2*s1, 3*s1)
		}, ""},
		"AConfirmedDeletion": {func(s *script) {
			s.braked("", none, 2, 2, "DeletionsHeld", s1)
			s.braked(deletes, none, 2, 2, "DeletionsHeld", 2*s1)
			s.deletion(minute, minute)
		}, ""},
		"ADeletionLongAfterAConfirmation": {func(s *script) {
			s.braked("", none, 2, 2, "DeletionsHeld", s1)
			s.braked(deletes, none, 2, 2, "DeletionsHeld", 2*s1)
			s.deletion(30*minute, 30*minute)
		}, DeletionsGuarded},
		"DeletionsOfTwoEngines": {func(s *script) {
			s.braked("", one, 2, 2, "Ready", s1)
			s.deletion(2*s1, 3*s1)
			s.Starts(4 * s1)
			s.deletion(5*s1, 6*s1)
		}, ""},
		"ATargetDeletedByADecorator": {func(s *script) {
			s.braked("", none, 2, 2, "Ready", s1)
			s.child("user", "", `"color":"red"`, 2*s1)
			s.call(hook.Sync, "t", []string{"m"}, &hooks.Response{}, 2*s1)
			s.Call(&Call{At: 2 * s1, Controller: "d2", Hook: hook.Sync, Response: &hooks.Response{Delete: true}, InFlight: 1, Request: &hooks.Request{
				Controller: map[string]any{"spec": map[string]any{"resources": []any{map[string]any{"apiVersion": "v1", "resource": "configmaps"}}}},
				Parent:     s.decode(s.versions["m"]),
			}})
			s.write("engine", "delete", "configmaps", "m", "", 3*s1)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.braked("", "", 1, 1, "Ready", 0)
			s.thing("user", "", "", 0)
			tc.happens(s)
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

func TestBrakesAtRest(t *testing.T) {
	served := make([]*hooks.Edition, len(hooks.Kinds))
	for i := range served {
		served[i] = &hooks.Edition{}
	}
	for name, tc := range map[string]struct {
		happens func(*script)
		want    string
	}{
		"Paused":                        {func(s *script) { s.braked("", paused, 2, 2, "Paused", 0) }, ""},
		"PausedAndSaysNothing":          {func(s *script) { s.braked("", paused, 2, 2, "Other", 0) }, PausedRests},
		"PausedAndSaysItIsReady":        {func(s *script) { s.braked("", paused, 2, 2, "Ready", 0) }, PausedRests},
		"PausedAndHasNotSeenIt":         {func(s *script) { s.braked("", paused, 2, 1, "Paused", 0) }, PausedRests},
		"HoldsDeletionsThatNobodyWants": {func(s *script) { s.braked("", none, 2, 2, "DeletionsHeld", 0) }, DeletionsGuarded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.thing("user", "", "", 0)
			tc.happens(s)
			got := ""
			if v := s.controllerAtRest(Cluster{Served: served}, "c0", s.definition("c0")); v != nil {
				got = v.Invariant
			}
			if tc.want == "" && got != "" || tc.want != "" && got != tc.want {
				t.Errorf("violates %q, want %q", got, tc.want)
			}
			if v := s.Held(Cluster{Served: served}); (v != nil) != (tc.want == DeletionsGuarded) {
				t.Errorf("what is held violates: %v", v)
			}
		})
	}
}

func TestAChangeOfAKindHasItsEffectAfterAPause(t *testing.T) {
	served := make([]*hooks.Edition, len(hooks.Kinds))
	for i := range served {
		served[i] = &hooks.Edition{}
	}
	for spec, want := range map[string]bool{"": true, paused: false} {
		s := newScript(t)
		s.braked("", "", 1, 1, "Ready", 0)
		s.thing("user", "", "", 0)
		s.child("user", "", `"color":"red"`, 0)
		s.call(hook.Sync, "t", []string{"m"}, &hooks.Response{}, time.Second)
		s.braked("", spec, 2, 2, "Paused", time.Second)
		s.write("user", "update", "customresourcedefinitions", "d", `{"kind":"CustomResourceDefinition","metadata":{"name":"d"}}`, 2*time.Second)
		if v := s.Upgraded(Cluster{Served: served}); (v != nil) != want {
			t.Errorf("with %q in the spec, it is violated: %v, want %v: %v", spec, v != nil, want, v)
		}
	}
}

func TestHeldDeletionsOfAResponseAreWhatIsWanted(t *testing.T) {
	served := make([]*hooks.Edition, len(hooks.Kinds))
	for i := range served {
		served[i] = &hooks.Edition{}
	}
	for want, response := range map[bool]*hooks.Response{true: {}, false: wants(map[string]any{"color": "red"})} {
		s := newScript(t)
		s.braked("", none, 2, 2, "DeletionsHeld", 0)
		s.thing("user", "", "", 0)
		s.child("user", "", `"color":"red"`, 0)
		s.call(hook.Sync, "t", []string{"m"}, response, time.Second)
		if v := s.holdsAtRest(Cluster{Served: served}, "c0", s.definition("c0")); (v == nil) != want {
			t.Errorf("deletions may be held: %v, want %v: %v", v == nil, want, v)
		}
		if got := s.Confirmation("c0"); got != "then" {
			t.Errorf("the confirmation is %q", got)
		}
	}
}

func TestTemplatesOfPods(t *testing.T) {
	const wanted = `{"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"own-main","image":"x:1","env":[{"name":"own-a","value":"1"}]}]}}}}`
	deployment := func(containers string) string {
		return `{"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"dnsPolicy":"ClusterFirst","containers":[` + containers + `]}}}}`
	}
	const main = `{"name":"own-main","image":"x:1","imagePullPolicy":"Always","env":[{"name":"own-a","value":"1"},{"name":"f-a","value":"2"}]}`
	s := newScript(t)
	for name, tc := range map[string]struct {
		containers      string
		differs, isLost bool
	}{
		"AsWanted":                  {main, false, false},
		"WithASidecar":              {main + `,{"name":"f-side","image":"y:1"}`, false, false},
		"WithAnotherImage":          {`{"name":"own-main","image":"x:2","env":[{"name":"own-a","value":"1"},{"name":"f-a","value":"2"}]}`, true, false},
		"WithAnotherVariable":       {`{"name":"own-main","image":"x:1","env":[{"name":"own-a","value":"2"},{"name":"f-a","value":"2"}]}`, true, false},
		"WithTheVariableOfBefore":   {`{"name":"own-main","image":"x:1","env":[{"name":"own-a","value":"1"},{"name":"own-b","value":"1"},{"name":"f-a","value":"2"}]}`, true, false},
		"WithAContainerOfBefore":    {main + `,{"name":"own-more","image":"y:1"}`, true, false},
		"WithoutAStrangersVariable": {`{"name":"own-main","image":"x:1","env":[{"name":"own-a","value":"1"}]}`, false, true},
		"WithoutTheContainer":       {`{"name":"f-side","image":"x:1"}`, true, false},
	} {
		have := object(s.decode(deployment(tc.containers)))
		if d := difference(s.decode(wanted), have, hooks.Edition{}); (d != "") != tc.differs {
			t.Errorf("%s: the difference is %q", name, d)
		}
		if d := lost(s.decode(deployment(main)), have); (d != "") != tc.isLost {
			t.Errorf("%s: %q is lost", name, d)
		}
	}
	if d := lost(s.decode(deployment(`{"name":"f-side","image":"y:1"}`)), s.decode(deployment(main))); d == "" {
		t.Error("nothing is said of the container of a stranger that is gone")
	}
}

var start = time.Unix(1_000_000, 0)

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

// call calls a hook with the present state of objects.
func (s *script) call(name hook.Name, parent string, children []string, response *hooks.Response, after time.Duration) {
	s.t.Helper()
	r := &hooks.Request{
		Controller: s.definition("c0"), Parent: s.decode(s.versions[parent]), Children: hooks.Objects{"ConfigMap.v1": {}}, Finalizing: name == hook.Finalize,
	}
	for _, uid := range children {
		r.Children["ConfigMap.v1"][uid] = s.decode(s.versions[uid])
	}
	s.Call(&Call{At: after, Controller: "c0", Hook: name, Request: r, Response: response, Pure: true, InFlight: 1})
}

const (
	thing = `{"apiVersion":"sim.example.com/v1","kind":"Thing","metadata":{"name":"t0","namespace":"ns0"%s},"spec":{"selector":{"matchLabels":{"app":"t0"}}}%s}`
	child = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"t0-c0-m0","namespace":"ns0","labels":{"app":"t0"%s},
		"ownerReferences":[{"apiVersion":"sim.example.com/v1","kind":"Thing","name":"t0","uid":"t","controller":true}]},"data":{%s}}`
	finalizer = `,"finalizers":["metacontroller.io/compositecontroller-c0"]`
)

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

func wants(data map[string]any) *hooks.Response {
	return &hooks.Response{Children: []map[string]any{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "t0-c0-m0", "labels": map[string]any{"app": "t0"}}, "data": data,
	}}}
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
