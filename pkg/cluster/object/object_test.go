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

package object_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a\u0062","namespace":"ns","uid":"u-1","resourceVersion":"12",
 "generation":3,"deletionTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"x","caf\u00e9":"ü"},
 "annotations":{"k":"{\"managedFields\":[]}","e":""},"finalizers":["f/1"],
 "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u-0"},{"apiVersion":"e/v1","kind":"T","name":"t","uid":"u-2","controller":true,"blockOwnerDeletion":true}],
 "managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},"spec":{"selector":{"matchLabels":{"a":"b"}},"n":1,"x":1.5,"s":"}"},"status":null}`

func TestParseReadsWhatTheEngineNeeds(t *testing.T) {
	o, err := object.Parse([]byte(pod), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "ab", "uid": "u-1", "version": "12", "generation": int64(3),
		"labels": map[string]string{"app": "x", "café": "ü"}, "annotations": map[string]string{"k": `{"managedFields":[]}`, "e": ""},
		"finalizers": []string{"f/1"}, "deleting": true, "controller": "u-2", "owners": 2, "string": "Pod ns/ab",
		"selector": `{"matchLabels":{"a":"b"}}`,
	}
	selector, _ := o.Field("spec", "selector")
	got := map[string]any{
		"apiVersion": o.APIVersion(), "kind": o.Kind(), "namespace": o.Namespace(), "name": o.Name(), "uid": string(o.UID()),
		"version": o.ResourceVersion(), "generation": o.Generation(), "labels": o.Labels(), "annotations": o.Annotations(),
		"finalizers": o.Finalizers(), "deleting": o.Deleting(), "controller": string(o.Controller().UID),
		"owners": len(o.OwnerReferences()), "string": o.String(), "selector": string(selector),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, ok := o.Field("spec", "absent"); ok {
		t.Error("a field that is not there was found")
	}
	if value, ok := o.Annotation("e"); !ok || value != "" {
		t.Errorf("Annotation(e) = %q, %v", value, ok)
	}
}

func TestManagedFieldsAreLeftOutWhereverTheyStand(t *testing.T) {
	for name, metadata := range map[string]string{
		"Only":   `{"managedFields":[{"a":"]"}]}`,
		"First":  `{"managedFields":[{"a":"]"}],"name":"n"}`,
		"Middle": `{"name":"n" , "managedFields" : [ {} ] , "uid":"u"}`,
		"Last":   `{"name":"n","managedFields":null}`,
		"Absent": `{"name":"n"}`,
	} {
		t.Run(name, func(t *testing.T) {
			input := `{"apiVersion":"v1","metadata":` + metadata + `,"spec":{"managedFields":[1]}}`
			var want map[string]any
			if err := json.Unmarshal([]byte(input), &want); err != nil {
				t.Fatal(err)
			}
			unstructured.RemoveNestedField(want, "metadata", "managedFields")
			o, err := object.Parse([]byte(input), object.ParseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(o.JSON(), &got); err != nil {
				t.Fatalf("%s: %v", o.JSON(), err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			kept, err := object.Parse([]byte(input), object.ParseOptions{KeepManagedFields: true})
			if err != nil || string(kept.JSON()) != input {
				t.Errorf("kept: %s, %v", kept.JSON(), err)
			}
		})
	}
}

func TestParseRefusesWhatIsNoObject(t *testing.T) {
	for name, tc := range map[string]struct{ reason, data string }{
		"Empty":              {"There is nothing.", ``},
		"Array":              {"Objects are objects.", `[]`},
		"Truncated":          {"A connection may break anywhere.", `{"metadata":{"name":"n"}`},
		"TruncatedString":    {"A connection may break anywhere.", `{"kind":"a`},
		"TruncatedEscape":    {"A connection may break anywhere.", `{"kind":"\`},
		"Trailing":           {"The bytes are spliced into requests.", `{} {}`},
		"BadLiteral":         {"Parts of no interest are spliced too.", `{"spec":nul}`},
		"BadNumber":          {"JSON knows no leading zeros.", `{"spec":01}`},
		"BadExponent":        {"An exponent has digits.", `{"spec":1e}`},
		"BareMinus":          {"A number has digits.", `{"spec":-}`},
		"ControlCharacter":   {"JSON wants control characters escaped.", "{\"spec\":\"a\nb\"}"},
		"BadEscape":          {"JSON knows few escapes.", `{"spec":"\x"}`},
		"BadUnicode":         {"Four hexadecimal digits follow.", `{"spec":"\u12g4"}`},
		"ControlInUnicode":   {"A control character is no digit.", "{\"spec\":\"\\u12\x10\x114\"}"},
		"MissingComma":       {"Members are separated.", `{"a":1 "b":2}`},
		"TrailingComma":      {"JSON has no trailing commas.", `{"a":1,}`},
		"TrailingCommaArray": {"JSON has no trailing commas.", `{"a":[1,]}`},
		"MetadataType":       {"A wrong type would be read as empty.", `{"metadata":[]}`},
		"NameType":           {"A wrong type would be read as empty.", `{"metadata":{"name":1}}`},
		"LabelType":          {"Selectors match strings.", `{"metadata":{"labels":{"a":1}}}`},
		"FinalizerType":      {"Finalizers are strings.", `{"metadata":{"finalizers":[1]}}`},
		"OwnerType":          {"Owners are objects.", `{"metadata":{"ownerReferences":["a"]}}`},
		"OwnerUIDType":       {"A wrong type would be read as empty.", `{"metadata":{"ownerReferences":[{"uid":1}]}}`},
		"OwnerController":    {"A wrong type would be read as false.", `{"metadata":{"ownerReferences":[{"controller":"true"}]}}`},
		"GenerationFraction": {"Generations are integers.", `{"metadata":{"generation":1.5}}`},
		"GenerationTooLarge": {"It does not fit.", `{"metadata":{"generation":9223372036854775808}}`},
		"Timestamp":          {"It would be taken for none.", `{"metadata":{"deletionTimestamp":"soon"}}`},
		"TooDeep":            {"No input may exhaust the stack.", `{"a":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			if o, err := object.Parse([]byte(tc.data), object.ParseOptions{}); err == nil {
				t.Errorf("%s\nParsed as %s", tc.reason, o.JSON())
			}
		})
	}
}

func TestTheLastOfDuplicateFieldsCounts(t *testing.T) {
	for name, data := range map[string]string{
		"Metadata":    `{"kind":"K","metadata":{"name":"x"},"metadata":{"name":"n","labels":{"a":"b"}}}`,
		"Name":        `{"kind":"K","metadata":{"name":"x","name":"n","labels":{"a":"b"}}}`,
		"EscapedName": `{"kind":"K","metadata":{"name":"x","\u006eame":"n","labels":{"a":"b"}}}`,
		"NullFirst":   `{"kind":"K","metadata":{"name":null,"name":"n","labels":{"a":"b"}}}`,
		"Kind":        `{"kind":"X","kind":"K","metadata":{"name":"n","labels":{"a":"b"}}}`,
		"Label":       `{"kind":"K","metadata":{"name":"n","labels":{"a":"x","a":"b"}}}`,
		"Labels":      `{"kind":"K","metadata":{"labels":{"x":"x"},"name":"n","labels":{"a":"b"}}}`,
		"Managed":     `{"kind":"K","metadata":{"managedFields":[],"name":"n","managedFields":[{}],"labels":{"a":"b"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			o, err := object.Parse([]byte(data), object.ParseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if o.Kind() != "K" || o.Name() != "n" || !cmp.Equal(o.Labels(), map[string]string{"a": "b"}) {
				t.Errorf("read %s with labels %v from %s", o, o.Labels(), o.JSON())
			}
			content, err := o.Decode()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"kind": "K", "metadata": map[string]any{"name": "n", "labels": map[string]any{"a": "b"}}}
			if diff := cmp.Diff(want, content); diff != "" {
				t.Errorf("JSON does not say the same (-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseDoesNotKeepTheInput(t *testing.T) {
	data := []byte(pod)
	o, err := object.Parse(data, object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if o.Name() != "ab" || o.Namespace() != "ns" || o.Kind() != "Pod" || o.Labels()["app"] != "x" || o.Controller().Kind != "T" {
		t.Errorf("the object changed with the input: %s %v", o, o.Labels())
	}
}

func TestTheControllerIsTheFirstOwnerThatIsMarked(t *testing.T) {
	for name, test := range map[string]struct {
		owners, uid string
		controller  *object.OwnerReference
	}{
		"None":        {`[]`, "", nil},
		"OnlyOthers":  {`[null,{"uid":"a"},{"uid":"b","controller":false}]`, "", nil},
		"AmongOthers": {` [ null , {"uid":"a"}, {"kind":"T","controller":true,"uid":"b"} ]`, "b", &object.OwnerReference{Kind: "T", UID: "b", Controller: true}},
		"First":       {`[{"controller":true,"uid":"a"},{"controller":true,"uid":"b"}]`, "a", &object.OwnerReference{UID: "a", Controller: true}},
		"Escaped": {
			`[{"u\u0069d":"\u0061","name":"\u0062","controller":true}]`, "a", &object.OwnerReference{UID: "a", Name: "b", Controller: true},
		},
		"LastOfTwoUIDs": {`[{"uid":"a","controller":true,"uid":"b"}]`, "b", &object.OwnerReference{UID: "b", Controller: true}},
		"UIDOfNull":     {`[{"uid":"a","controller":true,"uid":null}]`, "", &object.OwnerReference{Controller: true}},
		"NoUID":         {`[{"controller":true}]`, "", &object.OwnerReference{Controller: true}},
	} {
		t.Run(name, func(t *testing.T) {
			// The managed fields before the owners are cut out, which moves them.
			o, err := object.Parse([]byte(`{"metadata":{"managedFields":[{}],"ownerReferences":`+test.owners+`}}`), object.ParseOptions{APIVersion: "v1", Kind: "Pod"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.controller, o.Controller()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if uid, controlled := o.ControllerUID(); string(uid) != test.uid || controlled != (test.controller != nil) {
				t.Errorf("UID %q, controlled: %t", uid, controlled)
			}
		})
	}
}

func TestAnObjectIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(object.Object{}); size > 128 {
		t.Errorf("an object has %d bytes beside its JSON; there is one for every parent, child and related object", size)
	}
}

func TestSelectorsMatchTheLabelSet(t *testing.T) {
	o, err := object.Parse([]byte(pod), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]bool{"app=x": true, "app in (x,y)": true, "app": true, "app=y": false, "!app": false, "b": false, "!b": true} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Matches(o.LabelSet()); got != want {
			t.Errorf("%q matches: %v, want %v", selector, got, want)
		}
	}
	if got := maps.Collect(o.AllLabels()); !cmp.Equal(got, o.Labels()) {
		t.Errorf("AllLabels yields %v, Labels has %v", got, o.Labels())
	}
}

func TestPrintingAnObjectHidesItsContents(t *testing.T) {
	o, err := object.Parse([]byte(`{"kind":"Secret","metadata":{"name":"n","namespace":"ns"},"data":{"k":"hidden"}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, o); text != "Secret ns/n" {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

// FuzzParse compares with a full decode: what one accepts the other does, and they read the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		pod, `{}`, `{"metadata":null}`, `{"metadata":{"labels":null}}`, `[`, `{"metadata":{"name":1}}`, "", `{"a":"\`,
		`{"metadata":{"managedFields":[{}],"name":"a","name":"b"},"kind":"A","kind":"B"}`,
		`{"metadata":{"ownerReferences":[{"uid":"a","controller":true,"controller":false}],"finalizers":["a",null]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := object.Parse(data, object.ParseOptions{})
		if err == nil != json.Valid(data) && err == nil {
			t.Fatalf("accepted invalid %q", data)
		}
		if err != nil {
			return
		}
		var want, got map[string]any
		if err := utiljson.Unmarshal(data, &want); err != nil {
			t.Fatalf("accepted %q: %v", data, err)
		}
		unstructured.RemoveNestedField(want, "metadata", "managedFields")
		if got, err = o.Decode(); err != nil {
			t.Fatalf("%q became %q: %v", data, o.JSON(), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q became %q (-want +got)\n%s", data, o.JSON(), diff)
		}
		full := unstructured.Unstructured{Object: want}
		if full.GetName() != o.Name() || full.GetNamespace() != o.Namespace() || full.GetUID() != o.UID() ||
			full.GetResourceVersion() != o.ResourceVersion() || full.GetKind() != o.Kind() || full.GetAPIVersion() != o.APIVersion() ||
			full.GetGeneration() != o.Generation() {
			t.Fatalf("%q reads as %v %v", data, o, o.ResourceVersion())
		}
		if found, ok := o.Field("metadata", "labels"); ok && !json.Valid(found) {
			t.Fatalf("%q has the labels %q", data, found)
		}
	})
}

func TestObjectsKnowWhatManagersHaveApplied(t *testing.T) {
	const managed = `[{"manager":"metacontroller/c/a","operation":"Apply","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:x":{}}}},` +
		`{"manager":"metacontroller/c/a","operation":"Apply","subresource":"status","fieldsV1":{"f:status":{}}},` +
		`{"manager":"metacontroller/c/b","operation":"Update","fieldsV1":{"f:data":{"f:y":{}}}},` +
		`{"manager":"kubectl","operation":"Apply","fieldsV1":{"f:data":{"f:z":{}}}}]`
	data := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":` + managed + `},"data":{"x":"1"}}`)
	for name, tc := range map[string]struct {
		reason        string
		managers      []string
		manager, want string
	}{
		"Ours":       {"What was applied to the object itself is known.", []string{"x", "metacontroller"}, "metacontroller/c/a", `{"f:data":{"f:x":{}}}`},
		"Updated":    {"Writes of other kinds are not applied.", []string{"metacontroller"}, "metacontroller/c/b", ""},
		"Others":     {"Managers of no interest cost no memory.", []string{"metacontroller"}, "kubectl", ""},
		"NoInterest": {"By default nothing is kept.", nil, "metacontroller/c/a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := object.Parse(data, object.ParseOptions{Managers: tc.managers})
			if err != nil {
				t.Fatal(err)
			}
			got, ok := o.AppliedFields(tc.manager)
			if string(got) != tc.want || ok != (tc.want != "") {
				t.Errorf("%s\ngot %s, %v", tc.reason, got, ok)
			}
			if strings.Contains(string(o.JSON()), "managedFields") {
				t.Errorf("the JSON has managedFields: %s", o.JSON())
			}
		})
	}
}

func TestMembersAreTheFieldsAsTheyCame(t *testing.T) {
	o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","labels":{"b":"c"}},"s\u0070ec":{"n":1},"status":null}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, value := range o.Members() {
		if names = append(names, name); name == "spec" && string(value) != `{"n":1}` {
			t.Errorf("spec is %s", value)
		}
	}
	if got := strings.Join(names, " "); got != "apiVersion kind metadata spec status" {
		t.Errorf("members %s", got)
	}
	if labels, annotations := string(o.RawLabels()), string(o.RawAnnotations()); labels != `{"b":"c"}` || annotations != "" {
		t.Errorf("labels %s, annotations %s", labels, annotations)
	}
	for name := range o.Members() {
		if name != "apiVersion" {
			t.Errorf("%s is yielded after the end", name)
		}
		break
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	const observed = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"b":"c","d":"e"}},` +
		`"data":{"text":"a \"quoted\"\nline","n\u0061me":"x"},"spec":{"replicas":3,"ratio":1.5,"on":true,"off":null,"none":{},` +
		`"list":[{"a":1},"b"],"empty":[]}}`
	o, err := object.Parse([]byte(observed), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]bool{
		`{}`:     true,
		observed: false, // For the number 1.5, which can be written in other ways.
		`{"kind":"ConfigMap","metadata":{"labels":{"d":"e"}}}`: true,
		`{"data":{"text":"a \"quoted\"\nline","name":"x"}}`:    true,
		`{"data":{"text":"a \"quoted\" line"}}`:                false,
		`{"data":{"other":"x"}}`:                               false,
		`{"data":null}`:                                        false,
		`{"missing":null}`:                                     true,
		`{"missing":{}}`:                                       false,
		`{"missing":null,"kind":"ConfigMap"}`:                  true,
		`{"missing":null,"lost":"x"}`:                          false,
		`{"spec":{"off":null}}`:                                true,
		`{"spec":{"on":true,"replicas":3}}`:                    true,
		`{"spec":{"on":false}}`:                                false,
		`{"spec":{"on":"true"}}`:                               false,
		`{"spec":{"replicas":4}}`:                              false,
		`{"spec":{"replicas":"3"}}`:                            false,
		`{"spec":{"none":{}}}`:                                 true,
		`{"spec":{"none":[]}}`:                                 false,
		`{"spec":{"none":"{}"}}`:                               false,
		`{"spec":{"list":[{"a":1},"b"]}}`:                      true,
		`{"spec":{"list":[{"a":1}]}}`:                          false,
		`{"spec":{"list":[{"a":1},"b","c"]}}`:                  false,
		`{"spec":{"list":["b",{"a":1}]}}`:                      false,
		`{"spec":{"list":[{},"b"]}}`:                           false, // Elements are not merged without a look at the schema.
		`{"spec":{"list":[{"a":1,"b":null},"b"]}}`:             false,
		`{"spec":{"list":{}}}`:                                 false,
		`{"spec":{"empty":[]}}`:                                true,
		`{"spec":{"empty":null}}`:                              false,
		`{"spec":"x"}`:                                         false,
	} {
		var decoded map[string]any
		if err := utiljson.Unmarshal([]byte(content), &decoded); err != nil {
			t.Fatal(err)
		}
		if got := o.Holds(decoded); got != want {
			t.Errorf("%s: %v", content, got)
		}
	}
}

// TestHoldsLooksAtManyFields is about maps with more fields than are compared one by one.
func TestHoldsLooksAtManyFields(t *testing.T) {
	var text strings.Builder
	want := map[string]any{}
	for i := range 40 {
		fmt.Fprintf(&text, `"k%d":"v",`, i)
		want["k"+strconv.Itoa(i)] = "v"
	}
	of := func(last string) *object.Object {
		o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"data":{`+text.String()+last+`}}`), object.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for last, holds := range map[string]bool{`"other":"v"`: true, `"k39":"v"`: false, `"k0":"v"`: false} {
		if got := of(last).Holds(map[string]any{"data": want}); got != holds {
			t.Errorf("with %s: %t, want %t", last, got, holds)
		}
	}
	want["missing"] = "v"
	if of(`"other":"v"`).Holds(map[string]any{"data": want}) {
		t.Error("it holds what is missing")
	}
}

// BenchmarkHolds compares ConfigMaps of many short keys: the time for each key does not grow with their number.
func BenchmarkHolds(b *testing.B) {
	for _, n := range []int{100, 20000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var text strings.Builder
			want := map[string]any{}
			for i := range n {
				fmt.Fprintf(&text, `"k%d":"v",`, i)
				want["k"+strconv.Itoa(i)] = "v"
			}
			o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"data":{`+text.String()+`"last":"v"}}`), object.ParseOptions{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if !o.Holds(map[string]any{"data": want}) {
					b.Fatal("it does not hold what is there")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
		})
	}
}

func TestAFieldGivenTwiceDoesNotStandForAnother(t *testing.T) {
	o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a"},"spec":{"a":1,"a":1}}`), object.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Holds(map[string]any{"spec": map[string]any{"a": int64(1), "b": int64(2)}}) {
		t.Error("it holds a field that it does not have")
	}
	content := map[string]any{"kind": "Thing", "metadata": map[string]any{"name": "a"}}
	if allocated := testing.AllocsPerRun(100, func() { o.Holds(content) }); allocated > 2 {
		t.Errorf("%v allocations", allocated)
	}
}
