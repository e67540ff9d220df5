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

package related

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/hooks"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controller/parent"
)

var controller = []byte(`{"metadata":{"name":"c"}}`)

type subject struct {
	uid                 types.UID
	generation          int64
	version, json       string
	labels, annotations map[string]string
}

// object returns the parent as informers have it.
func (p *subject) object() *object.Object {
	content := map[string]any{}
	if err := json.Unmarshal([]byte(cmp.Or(p.json, "{}")), &content); err != nil {
		panic(err)
	}
	metadata, _ := content["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{"resourceVersion": p.version, "labels": p.labels, "annotations": p.annotations}
	}
	metadata["name"], metadata["uid"], metadata["generation"] = "p", p.uid, p.generation
	content["metadata"] = metadata
	encoded, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	o, err := object.Parse(encoded, object.ParseOptions{})
	if err != nil {
		panic(err)
	}
	return o
}

// memory is a customizer of which only the memory is used, with short names of parents.
type memory struct {
	*Customizer

	parents map[parent.Key]*Parent
}

func newMemory() memory {
	parents := map[parent.Key]*Parent{}
	return memory{New(Config{Hook: &hooks.Hook{}, Parents: maps.All(parents)}), parents}
}

func named(name string) parent.Key { return parent.NewKey(schema.GroupResource{}, "", name) }

func (m memory) of(name string) *Parent {
	if m.parents[named(name)] == nil {
		m.parents[named(name)] = &Parent{}
	}
	return m.parents[named(name)]
}

func (m memory) get(name string, controller []byte, p *subject) (Rules, bool) {
	return m.remembered(Asked{Known: m.of(name), Controller: controller, Parent: p.object()})
}

func (m memory) put(name string, p *subject, rules Rules) {
	m.remember(Asked{Known: m.of(name), Controller: controller, Parent: p.object()}, rules)
}

func (m memory) forget(name string) { m.Forget(named(name), m.of(name)) }

func TestResponsesAreValidUntilTheParentChanges(t *testing.T) {
	custom := subject{uid: "u", generation: 1, version: "7", labels: map[string]string{"a": "b"}, annotations: map[string]string{"c": "d"}, json: `{"status":1}`}
	plain := subject{uid: "u", version: "7", json: `{"metadata":{"resourceVersion":"7","annotations":{"a":"\"resourceVersion\":\"7\""}},"data":1}`}
	cases := map[string]struct {
		reason string
		given  subject
		change func(*subject)
		want   bool
	}{
		"Same":        {"Nothing changed.", custom, func(*subject) {}, true},
		"Status":      {"Own status writes must not ask the hook again.", custom, func(p *subject) { p.version, p.json = "8", `{"status":2}` }, true},
		"Spec":        {"The generation tells of the spec.", custom, func(p *subject) { p.generation = 2 }, false},
		"Default":     {"The kind got a default.", custom, func(p *subject) { p.json = `{"spec":{"a":1},"status":1}` }, false},
		"Label":       {"Labels have no generation.", custom, func(p *subject) { p.labels = map[string]string{"a": "c"} }, false},
		"LabelMoved":  {"A label that became an annotation is a change.", custom, func(p *subject) { p.labels, p.annotations = p.annotations, p.labels }, false},
		"Annotation":  {"Annotations have no generation.", custom, func(p *subject) { p.annotations = nil }, false},
		"OtherObject": {"Another object of the same name starts anew.", custom, func(p *subject) { p.uid = "v" }, false},
		"NoGeneration": {"Only the resourceVersion changed.", plain, func(p *subject) {
			p.version, p.json = "8", `{"metadata":{"resourceVersion":"8","annotations":{"a":"\"resourceVersion\":\"7\""}},"data":1}`
		}, true},
		"NoGenerationNew": {"Without a generation any change counts.", plain, func(p *subject) { p.version, p.json = "8", `{"metadata":{"resourceVersion":"8"},"data":2}` }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newMemory()
			before := tc.given
			a.put("k", &before, mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "nodes"}))
			after := tc.given
			tc.change(&after)
			rules, ok := a.get("k", controller, &after)
			if ok != tc.want || len(rules) > 0 != tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
}

func TestResponsesGoWithTheParent(t *testing.T) {
	a, p := newMemory(), &subject{uid: "u", generation: 1}
	a.put("k", p, Rules{})
	a.put("l", p, Rules{})
	a.forget("k")
	if _, ok := a.get("k", controller, p); ok || a.Len() != 1 {
		t.Errorf("after Remove: valid=%t, %d responses; want false and 1", ok, a.Len())
	}
	if _, ok := a.get("l", controller, p); !ok {
		t.Error("the response of another parent went as well")
	}
}

// TestAHookIsAskedAgain: it may have changed, and a call that was under way may have asked it as it was.
func TestAHookIsAskedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		happen func(call func(respond bool), again func())
		want   bool
	}{
		"Never":           {"Nobody asked for it.", func(call func(bool), _ func()) { call(true) }, true},
		"AfterTheCall":    {"The response is that of the hook as it was.", func(call func(bool), again func()) { call(true); again() }, false},
		"BeforeTheCall":   {"The call was the one that was asked for.", func(call func(bool), again func()) { again(); call(true) }, true},
		"BeforeAFailure":  {"What was there before is not valid again.", func(call func(bool), again func()) { call(true); again(); call(false) }, false},
		"BeforeTheSecond": {"The second call succeeds.", func(call func(bool), again func()) { call(true); again(); call(false); call(true) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, p := newMemory(), &subject{uid: "u", generation: 1}
			tc.happen(func(respond bool) {
				a.asking(a.of("k"))
				if respond {
					a.put("k", p, Rules{})
				}
			}, func() { a.AskAgain(a.of("k")) })
			if _, ok := a.get("k", controller, p); ok != tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
	a, p := newMemory(), &subject{uid: "u", generation: 1}
	a.asking(a.of("k"))
	a.AskAgain(a.of("k"))
	if a.put("k", p, Rules{}); a.Len() != 1 {
		t.Errorf("something is remembered of %d parents, want 1", a.Len())
	}
	if _, ok := a.get("k", controller, p); ok {
		t.Error("the response to a call that began before the hook was to be asked again is valid")
	}
	if a.forget("k"); a.Len() != 0 {
		t.Error("something is remembered of a parent that is gone")
	}
}

func TestResponsesAreValidForTheControllerOfTheirRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		now    []byte
		want   bool
	}{
		"Same":    {"Nothing changed.", controller, true},
		"Copy":    {"What counts is what the hook is shown.", bytes.Clone(controller), true},
		"Changed": {"The hook is shown another controller.", []byte(`{"metadata":{"name":"c","annotations":{"a":"b"}}}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			a, p := newMemory(), &subject{uid: "u", generation: 1}
			a.put("k", p, Rules{})
			if _, ok := a.get("k", tc.now, p); ok != tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
}

func TestTheResourcesOfAllResponsesAreNamed(t *testing.T) {
	a, p := newMemory(), &subject{uid: "u", generation: 1}
	a.put("a", p, mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "nodes"}, relatedRule{APIVersion: "v1", Resource: "configmaps"}))
	a.put("b", p, mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "nodes"}))
	if got, want := a.Resources(), sets.New(nodes.GroupResource(), configMaps.GroupResource()); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	a.forget("a")
	if got, want := a.Resources(), sets.New(nodes.GroupResource()); !got.Equal(want) {
		t.Errorf("one of the parents is gone: got %v, want %v", got, want)
	}
	a.AskAgain(a.of("b"))
	if a.asking(a.of("b")); len(a.Resources()) != 0 {
		t.Errorf("the hook is being asked again: got %v", a.Resources())
	}
}
