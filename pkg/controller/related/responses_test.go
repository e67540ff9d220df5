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
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var controller = []byte(`{"metadata":{"name":"c"}}`)

type subject struct {
	uid                 types.UID
	generation          int64
	version, json       string
	labels, annotations map[string]string
}

func (p *subject) UID() types.UID                 { return p.uid }
func (p *subject) Generation() int64              { return p.generation }
func (p *subject) ResourceVersion() string        { return p.version }
func (p *subject) Labels() map[string]string      { return p.labels }
func (p *subject) Annotations() map[string]string { return p.annotations }
func (p *subject) JSON() []byte                   { return []byte(p.json) }

func (p *subject) Members() iter.Seq2[string, []byte] {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(p.json), &members); p.json != "" && err != nil {
		panic(err)
	}
	return func(yield func(string, []byte) bool) {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if !yield(name, members[name]) {
				return
			}
		}
	}
}

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
			a := NewResponses[string]()
			before := tc.given
			a.Put("k", controller, &before, mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "nodes"}))
			after := tc.given
			tc.change(&after)
			rules, ok := a.Get("k", controller, &after)
			if ok != tc.want || rules.Empty() == tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
}

func TestResponsesGoWithTheParent(t *testing.T) {
	a, p := NewResponses[string](), &subject{uid: "u", generation: 1}
	a.Put("k", controller, p, Rules{})
	a.Put("l", controller, p, Rules{})
	a.Remove("k")
	if _, ok := a.Get("k", controller, p); ok || a.Len() != 1 {
		t.Errorf("after Remove: valid=%t, %d responses; want false and 1", ok, a.Len())
	}
	if _, ok := a.Get("l", controller, p); !ok {
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
			a, p := NewResponses[string](), &subject{uid: "u", generation: 1}
			tc.happen(func(respond bool) {
				a.Asking("k")
				if respond {
					a.Put("k", controller, p, Rules{})
				}
			}, func() { a.AskAgain("k") })
			if _, ok := a.Get("k", controller, p); ok != tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
	a, p := NewResponses[string](), &subject{uid: "u", generation: 1}
	a.Asking("k")
	a.AskAgain("k")
	if a.Put("k", controller, p, Rules{}); a.Len() != 1 {
		t.Errorf("something is remembered of %d parents, want 1", a.Len())
	}
	if _, ok := a.Get("k", controller, p); ok {
		t.Error("the response to a call that began before the hook was to be asked again is valid")
	}
	if a.Remove("k"); a.Len() != 0 {
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
			a, p := NewResponses[string](), &subject{uid: "u", generation: 1}
			a.Put("k", controller, p, Rules{})
			if _, ok := a.Get("k", tc.now, p); ok != tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
}

func TestResponsesAreDroppedByTheTypesThatTheirRulesName(t *testing.T) {
	of := func(resource schema.GroupVersionResource) relatedRule {
		return relatedRule{APIVersion: resource.GroupVersion().String(), Resource: resource.Resource}
	}
	deployment, node := Type{Resource: deploys, Kind: "Deployment", Namespaced: true}, Type{Resource: nodes, Kind: "Node", Namespaced: false}
	moved := Type{Resource: deploys, Kind: "Deployment", Namespaced: false}
	for name, tc := range map[string]struct {
		reason string
		types  []Type
		want   []string
	}{
		"None":       {"Most changes are about other types.", nil, nil},
		"One":        {"The other rules of a response do not keep it.", []Type{deployment}, []string{"both", "deployments"}},
		"Two":        {"Each parent is named once.", []Type{deployment, node}, []string{"both", "deployments", "nodes"}},
		"OtherScope": {"A type is named as it was when the rule was read.", []Type{moved}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, p := NewResponses[string](), &subject{uid: "u", generation: 1}
			for key, rules := range map[string][]relatedRule{"both": {of(deploys), of(nodes)}, "deployments": {of(deploys)}, "nodes": {of(nodes)}, "nothing": nil} {
				a.Put(key, controller, p, mustCompile(t, v2Inside, rules...))
			}
			if types := a.Types(); len(types) != 2 || !slices.Contains(types, deployment) || !slices.Contains(types, node) {
				t.Errorf("the types are %v, want each once", types)
			}
			types := map[Type]struct{}{}
			for _, one := range tc.types {
				types[one] = struct{}{}
			}
			dropped := a.Drop(types)
			if slices.Sort(dropped); !slices.Equal(dropped, tc.want) {
				t.Errorf("%s\nDropped: %v, want %v", tc.reason, dropped, tc.want)
			}
			for _, key := range []string{"both", "deployments", "nodes", "nothing"} {
				if _, ok := a.Get(key, controller, p); ok == slices.Contains(tc.want, key) {
					t.Errorf("%s\nThe response of %s is remembered: %t", tc.reason, key, ok)
				}
			}
		})
	}
}
