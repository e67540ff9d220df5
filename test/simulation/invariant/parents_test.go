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
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/hooks"
)

const (
	selecting = `{"kind":"CompositeController","metadata":{"name":"c0","uid":"c","generation":1},"spec":{
		"parentResource":{"apiVersion":"sim.example.com/v1","resource":"things","labelSelector":{"matchLabels":{"on":"yes"}}},
		"childResources":[],"hooks":{"sync":{}}}}`
	// held is a ConfigMap that a Namespace controls.
	held = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"ns0"%s,
		"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"ns0","uid":"n","controller":true}]},"data":{"color":"%s"}}`
	// marked is a ConfigMap that a decorator attached to a Thing.
	marked = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"ns0",
		"annotations":{"metacontroller.k8s.io/decorator-controller":"d2"}%s}}`
	ownedBy = `,"ownerReferences":[{"apiVersion":"sim.example.com/v1","kind":"Thing","name":"t","uid":"`
)

// asked has the hook asked about the parent while its engine waits for the response to a write.
func (s *script) asked(w Writing) {
	s.t.Helper()
	s.Call(&Call{Controller: "c0", Hook: hook.Sync, InFlight: 1, AboutParent: 1, Writing: []Writing{w}, Request: &hooks.Request{
		Controller: s.definition("c0"), Parent: s.decode(s.versions["t"]),
	}})
}

func TestParentsAndOwners(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*script)
		want    string
	}{
		"SelectedParent": {func(s *script) {
			s.write("user", "create", "compositecontrollers", "c", selecting, 0)
			s.thing("user", `,"labels":{"on":"yes"}`, "", 0)
			s.call(hook.Sync, "t", nil, "", nil, 0)
		}, ""},
		"DeselectedParent": {func(s *script) {
			s.write("user", "create", "compositecontrollers", "c", selecting, 0)
			s.thing("user", "", "", 0)
			s.call(hook.Sync, "t", nil, "", nil, 0)
		}, ParentsAsSelected},
		"DeselectedParentWithFinalizer": {func(s *script) {
			s.write("user", "create", "compositecontrollers", "c", selecting, 0)
			s.thing("user", finalizer, "", 0)
			s.call(hook.Finalize, "t", nil, "", nil, 0)
		}, ""},
		"TwoCallsAboutOneParent": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.Call(&Call{Controller: "c0", Hook: hook.Sync, InFlight: 2, AboutParent: 2, Request: &hooks.Request{
				Controller: s.definition("c0"), Parent: s.decode(s.versions["t"]),
			}})
		}, OneSyncAtATime},
		"AskedWhileAChildIsWritten": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.asked(Writing{[]byte(fmt.Sprintf(child, "", ""))})
		}, OneSyncAtATime},
		"AskedWhileADecoratorAppliesAnObjectOfItsName": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.child("engine", "", "", 0)
			s.asked(Writing{[]byte(strings.Replace(fmt.Sprintf(marked, ownedBy+`t","controller":true}]`), `"name":"x"`, `"name":"t0-c0-m0"`, 1))})
		}, ""},
		"AskedWhileTheChildOfAnotherParentIsCreated": {func(s *script) {
			s.define("InPlace", "")
			s.thing("user", "", "", 0)
			s.asked(Writing{[]byte(strings.Replace(fmt.Sprintf(child, "", ""), `"uid":"t"`, `"uid":"other"`, 1))})
		}, ""},
		"AttachmentDeletedThatOthersControl": {func(s *script) {
			s.write("user", "create", "configmaps", "x", fmt.Sprintf(marked, strings.NewReplacer("Thing", "Namespace", "sim.example.com/", "").Replace(ownedBy)+`n","controller":true}]`), 0)
			s.write("engine", "delete", "configmaps", "x", "", 0)
		}, StrangersUntouched},
		"AttachmentDeleted": {func(s *script) {
			s.write("user", "create", "configmaps", "x", fmt.Sprintf(marked, ownedBy+`a","controller":true}]`), 0)
			s.write("engine", "delete", "configmaps", "x", "", 0)
		}, ""},
		"ChildOfOthersChanged": {func(s *script) {
			s.write("user", "create", "configmaps", "x", fmt.Sprintf(held, "", "red"), 0)
			s.write("engine", "update", "configmaps", "x", fmt.Sprintf(held, "", "green"), 0)
		}, StrangersUntouched},
		"ChildOfOthersDecorated": {func(s *script) {
			s.write("user", "create", "configmaps", "x", fmt.Sprintf(held, "", "red"), 0)
			s.write("engine", "update", "configmaps", "x", fmt.Sprintf(held, `,"labels":{"by-d2":"red"}`, "red"), 0)
		}, ""},
		"ChildTakenFromAnotherParent": {func(s *script) {
			s.write("user", "create", "configmaps", "x", fmt.Sprintf(marked, ownedBy+`a","controller":true}]`), 0)
			s.write("engine", "update", "configmaps", "x", fmt.Sprintf(marked, ownedBy+`b","controller":true}]`), 0)
		}, StrangersUntouched},
		"AttachmentReleased": {func(s *script) {
			s.write("user", "create", "configmaps", "x", fmt.Sprintf(marked, ownedBy+`a","controller":true}]`), 0)
			s.write("engine", "update", "configmaps", "x", fmt.Sprintf(marked, ""), 0)
		}, StrangersUntouched},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
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

func TestWhoHasWrittenAnAttachment(t *testing.T) {
	s := newScript(t)
	s.thing("user", "", "", 0)
	attachment := s.decode(fmt.Sprintf(marked, ownedBy+`t","controller":true}]`))
	if by, parent := s.writerOf(attachment); by != "d2" || parent != "t" {
		t.Errorf("an attachment was written by %q for %q, want d2 for t", by, parent)
	}
	s.write("user", "delete", "things", "t", "", 0)
	if by, _ := s.writerOf(attachment); by != "" {
		t.Errorf("the attachment of a parent that is gone was written by %q, want nobody that is known", by)
	}
}

// ready is a composite that says so in its status, to which more may be added.
const ready = `{"kind":"CompositeController","metadata":{"name":"c0","uid":"c","generation":1},
	"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]%s},"spec":{
	"parentResource":{"apiVersion":"sim.example.com/v1","resource":"things"},
	"childResources":[{"apiVersion":"v1","resource":"configmaps"}],"hooks":{"sync":{}}}}`

// failed says in the status of the composite that the last sync of the parent failed.
func (s *script) failed(message string) {
	s.t.Helper()
	s.write("engine", "update", "compositecontrollers/status", "c", fmt.Sprintf(ready,
		`,"lastErrors":[{"group":"sim.example.com","resource":"things","namespace":"ns0","name":"t0","message":"`+message+`"}]`), time.Minute)
}

// rested tells what is true at rest after a composite with a status was asked about its parent.
func rested(t *testing.T, c Cluster, happens func(*script)) string {
	t.Helper()
	s := newScript(t)
	s.write("user", "create", "compositecontrollers", "c", fmt.Sprintf(ready, ""), 0)
	happens(s)
	c.Served = []*hooks.Edition{{}, {}, {}, {}}
	if v := s.AtRest(c); v != nil {
		return v.Invariant
	}
	return ""
}

// revisions has the hook asked for the latest revision of a parent, and for a former one. The first response is that of package hooks if pure.
func revisions(s *script, pure bool, latest, former *hooks.Response) {
	s.thing("user", `,"generation":1`, `,"status":{"observedGeneration":1}`, 0)
	for i, response := range []*hooks.Response{latest, former} {
		shown := s.decode(s.versions["t"])
		if i > 0 {
			shown["spec"] = map[string]any{"color": "former"}
		}
		s.Call(&Call{
			At: time.Minute, Controller: "c0", Hook: hook.Sync, Response: response, Pure: pure || i > 0, InFlight: 1,
			Request: &hooks.Request{Controller: s.definition("c0"), Parent: shown, Children: hooks.Objects{}},
		})
	}
}

func TestParentsAtRest(t *testing.T) {
	settled := func(s *script) {
		s.thing("user", `,"generation":1`, `,"status":{"observedGeneration":1}`, 0)
		s.call(hook.Sync, "t", nil, "", &hooks.Response{}, time.Minute)
	}
	notReleased := func(s *script) {
		settled(s)
		s.write("user", "create", "configmaps", "x", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"%s}}`,
			ownedBy+`t","controller":true}]`), 0)
	}
	// finalizedByFirst has the first of some engines put the finalizer of a controller on a parent.
	finalizedByFirst := func(engines int, by, controller string) func(*script) {
		return func(s *script) {
			for range engines {
				s.Starts(0)
			}
			settled(s)
			s.thing(by, `,"generation":1,"finalizers":["metacontroller.io/compositecontroller-`+controller+`"]`, `,"status":{"observedGeneration":1}`, 0)
			s.call(hook.Sync, "t", nil, "", &hooks.Response{}, time.Minute)
		}
	}
	for name, tc := range map[string]struct {
		cluster Cluster
		happens func(*script)
		want    string
	}{
		"FinalizerOfAControllerThatIsGone":              {Cluster{}, finalizedByFirst(1, "engine", "gone"), FinalizersAsDefined},
		"FinalizerThatAKilledEngineAddsLate":            {Cluster{}, finalizedByFirst(2, "engine", "gone"), ""},
		"FinalizerThatAUserAdds":                        {Cluster{}, finalizedByFirst(2, "user", "gone"), FinalizersAsDefined},
		"FinalizerOfAControllerThatDoesNotFinalize":     {Cluster{}, finalizedByFirst(1, "engine", "c0"), FinalizersAsDefined},
		"FinalizerThatAKilledEngineAddsLateAfterAnEdit": {Cluster{}, finalizedByFirst(2, "engine", "c0"), ""},
		"Settled":     {Cluster{}, settled, ""},
		"Resynced":    {Cluster{Resynced: time.Second}, settled, ""},
		"NotResynced": {Cluster{Resynced: time.Hour}, settled, ResyncAsks},
		"OldGeneration": {Cluster{}, func(s *script) {
			s.thing("user", `,"generation":2`, `,"status":{"observedGeneration":1}`, 0)
			s.call(hook.Sync, "t", nil, "", &hooks.Response{}, 0)
		}, ParentAsWanted},
		"FormerRevisionAskedLast": {Cluster{}, func(s *script) {
			revisions(s, true, &hooks.Response{}, wants(nil))
		}, ""},
		"LatestRevisionAskedFirst": {Cluster{}, func(s *script) {
			revisions(s, true, wants(nil), &hooks.Response{})
		}, ChildrenAsWanted},
		"LatestRevisionAskedOfAFaultyHook": {Cluster{}, func(s *script) {
			revisions(s, false, wants(nil), &hooks.Response{})
		}, ""},
		"StatusOfAFormerRevisionAskedLast": {Cluster{}, func(s *script) {
			s.thing("user", `,"generation":1`, `,"status":{"observedGeneration":1,"color":"green"}`, 0)
			s.call(hook.Sync, "t", nil, "", &hooks.Response{Status: map[string]any{"color": "green"}}, 0)
			former := s.decode(s.versions["t"])
			former["spec"] = map[string]any{"color": "red"}
			s.Call(&Call{
				Controller: "c0", Hook: hook.Sync, InFlight: 1, AboutParent: 1, Pure: true,
				Request:  &hooks.Request{Controller: s.definition("c0"), Parent: former},
				Response: &hooks.Response{Status: map[string]any{"color": "red"}},
			})
		}, ""},
		"ChildNotReleased": {Cluster{}, notReleased, ChildrenAsWanted},
		"ChildNotReleasedInASyncThatFailedLater": {Cluster{}, func(s *script) {
			notReleased(s)
			s.failed("creating ConfigMap ns0/a: it exists")
		}, ChildrenAsWanted},
		"ChildWhoseReleaseFailed": {Cluster{}, func(s *script) {
			notReleased(s)
			s.failed("can't claim ConfigMap children: releasing ConfigMap x: refused")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rested(t, tc.cluster, tc.happens); got != tc.want {
				t.Errorf("violates %q, want %q", got, tc.want)
			}
		})
	}
}

// TestParentsThatAreAskedAboutAgain is about the parents of which nothing can be said before their hooks are asked again.
func TestParentsThatAreAskedAboutAgain(t *testing.T) {
	at := func(kind int, edition *hooks.Edition) Cluster {
		c := Cluster{Served: make([]*hooks.Edition, len(hooks.Kinds))}
		for i := range c.Served {
			c.Served[i] = &hooks.Edition{}
		}
		c.Served[kind] = edition
		return c
	}
	ignoring := strings.Replace(composite, `"resource":"things"`, `"resource":"things","ignoreStatusChanges":true`, 1)
	for name, tc := range map[string]struct {
		definition string
		parent     func(*script)
		kind       int
		edition    *hooks.Edition
		want       int
	}{
		"AsItIs":                             {composite, func(s *script) { s.thing("user", "", "", 0) }, hooks.Thing, &hooks.Edition{}, 0},
		"StatusThatIsIgnored":                {ignoring, func(s *script) { s.thing("user", "", `,"status":{"by":"user"}`, 0) }, hooks.Thing, &hooks.Edition{}, 1},
		"StatusThatIsIgnoredOfAKindThatWent": {ignoring, func(s *script) { s.thing("user", "", `,"status":{"by":"user"}`, 0) }, hooks.Thing, nil, 0},
		"ShownWithoutADefault": {composite, func(s *script) {
			s.write("user", "create", "gadgets", "t", fmt.Sprintf(gadget, ""), 0)
		}, hooks.Gadget, &hooks.Edition{Graded: true}, 1},
		"ShownWithADefault": {composite, func(s *script) {
			s.write("user", "create", "gadgets", "t", fmt.Sprintf(gadget, `"grade":"b"`), 0)
		}, hooks.Gadget, &hooks.Edition{Graded: true}, 0},
		"ShownWithADefaultThatWent": {composite, func(s *script) {
			s.write("user", "create", "gadgets", "t", fmt.Sprintf(gadget, `"grade":"b"`), 0)
		}, hooks.Gadget, &hooks.Edition{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.write("user", "create", "compositecontrollers", "c", fmt.Sprintf(tc.definition, "InPlace", ""), 0)
			tc.parent(s)
			s.call(hook.Sync, "t", nil, "", &hooks.Response{Status: map[string]any{"by": "c0"}}, time.Second)
			if got := s.Impure(at(tc.kind, tc.edition)); len(got) != tc.want {
				t.Errorf("%v are to be asked about again, want %d", got, tc.want)
			}
		})
	}
}

// TestStatusesThatWereDeferred is about statuses that are shown to a hook before they are written.
func TestStatusesThatWereDeferred(t *testing.T) {
	shown := func(kind int, status map[string]any) object {
		k := hooks.Kinds[kind]
		return object{"apiVersion": k.Group + "/" + k.Versions[0], "kind": k.Name, "status": status}
	}
	noted := func() map[string]any { return map[string]any{"by": "c0", "note": "x"} }
	for name, tc := range map[string]struct {
		shown   object
		written map[string]any
		want    bool
	}{
		"Same":                  {shown(hooks.Thing, map[string]any{"by": "c0"}), map[string]any{"by": "c0"}, true},
		"Another":               {shown(hooks.Thing, map[string]any{"by": "c1"}), map[string]any{"by": "c0"}, false},
		"None":                  {shown(hooks.Thing, nil), map[string]any{"by": "c0"}, false},
		"PrunedNote":            {shown(hooks.Realm, noted()), map[string]any{"by": "c0"}, true},
		"KeptNote":              {shown(hooks.Realm, noted()), noted(), true},
		"FormerNote":            {shown(hooks.Realm, map[string]any{"by": "c0"}), noted(), false},
		"NoteOfAnotherKind":     {shown(hooks.Thing, noted()), map[string]any{"by": "c0"}, false},
		"PrunedNoteOfAnotherBy": {shown(hooks.Realm, noted()), map[string]any{"by": "c1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deferred(tc.shown, tc.written); got != tc.want {
				t.Errorf("%v and then %v: %v, want %v", tc.shown, tc.written, got, tc.want)
			}
		})
	}
}
