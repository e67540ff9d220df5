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
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

type parent struct {
	uid                 types.UID
	generation          int64
	version, json       string
	labels, annotations map[string]string
}

func (p *parent) UID() types.UID                 { return p.uid }
func (p *parent) Generation() int64              { return p.generation }
func (p *parent) ResourceVersion() string        { return p.version }
func (p *parent) Labels() map[string]string      { return p.labels }
func (p *parent) Annotations() map[string]string { return p.annotations }
func (p *parent) JSON() []byte                   { return []byte(p.json) }

func TestResponsesAreValidUntilTheParentChanges(t *testing.T) {
	custom := parent{uid: "u", generation: 1, version: "7", labels: map[string]string{"a": "b"}, annotations: map[string]string{"c": "d"}, json: `{"status":1}`}
	plain := parent{uid: "u", version: "7", json: `{"metadata":{"resourceVersion":"7","annotations":{"a":"\"resourceVersion\":\"7\""}},"data":1}`}
	cases := map[string]struct {
		reason string
		given  parent
		change func(*parent)
		want   bool
	}{
		"Same":        {"Nothing changed.", custom, func(*parent) {}, true},
		"Status":      {"Own status writes must not ask the hook again.", custom, func(p *parent) { p.version, p.json = "8", `{"status":2}` }, true},
		"Spec":        {"The generation tells of the spec.", custom, func(p *parent) { p.generation = 2 }, false},
		"Label":       {"Labels have no generation.", custom, func(p *parent) { p.labels = map[string]string{"a": "c"} }, false},
		"LabelMoved":  {"A label that became an annotation is a change.", custom, func(p *parent) { p.labels, p.annotations = p.annotations, p.labels }, false},
		"Annotation":  {"Annotations have no generation.", custom, func(p *parent) { p.annotations = nil }, false},
		"OtherObject": {"Another object of the same name starts anew.", custom, func(p *parent) { p.uid = "v" }, false},
		"NoGeneration": {"Only the resourceVersion changed.", plain, func(p *parent) {
			p.version, p.json = "8", `{"metadata":{"resourceVersion":"8","annotations":{"a":"\"resourceVersion\":\"7\""}},"data":1}`
		}, true},
		"NoGenerationNew": {"Without a generation any change counts.", plain, func(p *parent) { p.version, p.json = "8", `{"metadata":{"resourceVersion":"8"},"data":2}` }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := NewResponses[string]()
			before := tc.given
			a.Put("k", &before, mustCompile(t, v2Inside, relatedRule{APIVersion: "v1", Resource: "nodes"}))
			after := tc.given
			tc.change(&after)
			rules, ok := a.Get("k", &after)
			if ok != tc.want || rules.Empty() == tc.want {
				t.Errorf("%s\nvalid: %t, want %t", tc.reason, ok, tc.want)
			}
		})
	}
}

func TestResponsesGoWithTheParent(t *testing.T) {
	a, p := NewResponses[string](), &parent{uid: "u", generation: 1}
	a.Put("k", p, Rules{})
	a.Put("l", p, Rules{})
	a.Remove("k")
	if _, ok := a.Get("k", p); ok || a.Len() != 1 {
		t.Errorf("after Remove: valid=%t, %d responses; want false and 1", ok, a.Len())
	}
	if _, ok := a.Get("l", p); !ok {
		t.Error("the response of another parent went as well")
	}
}
