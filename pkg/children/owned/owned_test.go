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

package owned_test

import (
	"reflect"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/owned"
)

const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","labels":{"ours":"1","theirs":"2"},"annotations":{}},
"spec":{"clusterIP":"10.0.0.1","ports":[{"port":53,"protocol":"UDP","name":"u","targetPort":53},{"port":53,"protocol":"TCP","name":"t"},
{"port":80,"protocol":"TCP"}],"externalIPs":["1.1.1.1","2.2.2.2"]}}`

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

func TestExtractReturnsWhatIsOwned(t *testing.T) {
	for name, test := range map[string]struct {
		reason, fields, want string
	}{
		"Nothing":     {"A manager may own a field that is gone.", `{"f:data":{"f:a":{}}}`, `{}`},
		"Field":       {"Of a map only the fields that are named.", `{"f:metadata":{"f:labels":{"f:ours":{}}}}`, `{"metadata":{"labels":{"ours":"1"}}}`},
		"Map":         {"An empty map is a value.", `{"f:metadata":{"f:annotations":{}}}`, `{"metadata":{"annotations":{}}}`},
		"MapItself":   {"The map is owned, not what is in it.", `{"f:metadata":{"f:labels":{".":{}}}}`, `{"metadata":{"labels":{}}}`},
		"Atomic":      {"A leaf is owned as a whole.", `{"f:spec":{"f:externalIPs":{}}}`, `{"spec":{"externalIPs":["1.1.1.1","2.2.2.2"]}}`},
		"SetItem":     {"Items of sets are named by value.", `{"f:spec":{"f:externalIPs":{"v:\"2.2.2.2\"":{}}}}`, `{"spec":{"externalIPs":["2.2.2.2"]}}`},
		"IndexedItem": {"Items may be named by place.", `{"f:spec":{"f:externalIPs":{"i:0":{}}}}`, `{"spec":{"externalIPs":["1.1.1.1"]}}`},
		"KeyedItems": {
			"Keys may be fields that the API server defaulted, which are not owned.",
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}`,
			`{"spec":{"ports":[{"name":"t","port":53},{"port":80}]}}`,
		},
		"Strange": {"Elements of no known kind own nothing.", `{"x":{},"f:spec":{"f:ports":{"k:[]":{},"q:1":{},"i:x":{}}}}`, `{"spec":{"ports":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := owned.Extract(parsed(t, service), []byte(test.fields))
			if err != nil || !reflect.DeepEqual(got, parsed(t, test.want)) {
				t.Errorf("%s\ngot %v, %v, want %s", test.reason, got, err, test.want)
			}
		})
	}
}

func TestOutlineLeavesValuesThatAreOwnedAsAWholeEmpty(t *testing.T) {
	const fields = `{"f:metadata":{"f:labels":{}},"f:spec":{"f:externalIPs":{},"f:clusterIP":{},"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}}}}}`
	const want = `{"metadata":{"labels":{}},"spec":{"externalIPs":[],"clusterIP":"10.0.0.1","ports":[{"port":80}]}}`
	got, err := owned.Outline(parsed(t, service), []byte(fields))
	if err != nil || !reflect.DeepEqual(got, parsed(t, want)) {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
}

// TestOutlineKeepsWhatNamesAnItem is about items that are owned as a whole: of a keyed list with atomic elements, and of sets of objects.
func TestOutlineKeepsWhatNamesAnItem(t *testing.T) {
	const pod = `{"spec":{"imagePullSecrets":[{"name":"a"},{"name":"b"},{"name":"theirs"}],"owners":[{"uid":"u","kind":"K","controller":true}],` +
		`"pairs":[{"x":1,"y":2},{"x":3,"y":4}],"rows":[{"x":1}]}}`
	for name, test := range map[string]struct {
		fields, want string
	}{
		"the key is all that there is": {
			`{"f:spec":{"f:imagePullSecrets":{"k:{\"name\":\"a\"}":{},"k:{\"name\":\"b\"}":{}}}}`, `{"spec":{"imagePullSecrets":[{"name":"a"},{"name":"b"}]}}`,
		},
		"there is more than the key": {`{"f:spec":{"f:owners":{"k:{\"uid\":\"u\"}":{}}}}`, `{"spec":{"owners":[{"uid":"u"}]}}`},
		"two keys":                   {`{"f:spec":{"f:owners":{"k:{\"kind\":\"K\",\"uid\":\"u\"}":{}}}}`, `{"spec":{"owners":[{"uid":"u","kind":"K"}]}}`},
		"an object in a set":         {`{"f:spec":{"f:pairs":{"v:{\"x\":3,\"y\":4}":{}}}}`, `{"spec":{"pairs":[{"x":3,"y":4}]}}`},
		"by its place":               {`{"f:spec":{"f:rows":{"i:0":{}}}}`, `{"spec":{"rows":[{}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			whole := parsed(t, pod)
			got, err := owned.Outline(whole, []byte(test.fields))
			if err != nil || !reflect.DeepEqual(got, parsed(t, test.want)) {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
			if !reflect.DeepEqual(whole, parsed(t, pod)) {
				t.Error("the object was changed")
			}
		})
	}
}

func TestExtractRefusesWhatIsNoFieldSet(t *testing.T) {
	for _, fields := range []string{"", "[]", "1", "{"} {
		if got, err := owned.Extract(parsed(t, service), []byte(fields)); err == nil {
			t.Errorf("%q: got %v, want an error", fields, got)
		}
	}
}

func FuzzExtract(f *testing.F) {
	f.Add(`{"f:spec":{"f:ports":{"k:{\"port\":53}":{".":{},"f:name":{}},"v:1":{},"i:2":{}}}}`)
	f.Fuzz(func(t *testing.T, fields string) {
		whole := parsed(t, service)
		if _, err := owned.Extract(whole, []byte(fields)); err == nil && !reflect.DeepEqual(whole, parsed(t, service)) {
			t.Error("the object was changed")
		}
	})
}
