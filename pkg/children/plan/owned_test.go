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

package plan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
	"github.com/metacontroller/metacontroller-apiserver/test/slope"
)

const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","labels":{"ours":"1","theirs":"2"},"annotations":{}},
"spec":{"clusterIP":"10.0.0.1","ports":[{"port":53,"protocol":"UDP","name":"u","targetPort":53},{"port":53,"protocol":"TCP","name":"t"},
{"port":80,"protocol":"TCP"}],"externalIPs":["1.1.1.1","2.2.2.2"]}}`

func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// ownedOf returns what of an object FieldsV1 say is owned.
func ownedOf(content map[string]any, fields string, leaf func(any) any) (map[string]any, error) {
	set, err := setOf("a manager", []byte(fields))
	if err != nil {
		return nil, err
	}
	return owned(content, set, leaf), nil
}

func TestWhatIsOwned(t *testing.T) {
	for name, test := range map[string]struct {
		reason, fields, want string
	}{
		"Nothing":     {"A manager may own a field that is gone.", `{"f:data":{"f:a":{}}}`, `{}`},
		"Field":       {"Of a map only the fields that are named.", `{"f:metadata":{"f:labels":{"f:ours":{}}}}`, `{"metadata":{"labels":{"ours":"1"}}}`},
		"Map":         {"An empty map is a value.", `{"f:metadata":{"f:annotations":{}}}`, `{"metadata":{"annotations":{}}}`},
		"Atomic":      {"A leaf is owned as a whole.", `{"f:spec":{"f:externalIPs":{}}}`, `{"spec":{"externalIPs":["1.1.1.1","2.2.2.2"]}}`},
		"SetItem":     {"Items of sets are named by value.", `{"f:spec":{"f:externalIPs":{"v:\"2.2.2.2\"":{}}}}`, `{"spec":{"externalIPs":["2.2.2.2"]}}`},
		"IndexedItem": {"Items may be named by place.", `{"f:spec":{"f:externalIPs":{"i:0":{}}}}`, `{"spec":{"externalIPs":["1.1.1.1"]}}`},
		"KeyedItems": {
			"Keys may be fields that the API server defaulted, which are not owned.",
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}`,
			`{"spec":{"ports":[{"name":"t","port":53},{"port":80}]}}`,
		},
		"Strange": {"Elements of no known kind own nothing.", `{"f:spec":{"f:ports":{"q:1":{},"i:7":{}}}}`, `{"spec":{"ports":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ownedOf(parsed(t, service), test.fields, whole)
			if err != nil || !reflect.DeepEqual(got, parsed(t, test.want)) {
				t.Errorf("%s\ngot %v, %v, want %s", test.reason, got, err, test.want)
			}
		})
	}
}

func TestOutlineLeavesValuesThatAreOwnedAsAWholeEmpty(t *testing.T) {
	const fields = `{"f:metadata":{"f:labels":{}},"f:spec":{"f:externalIPs":{},"f:clusterIP":{},"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}}}}}`
	const want = `{"metadata":{"labels":{}},"spec":{"externalIPs":[],"clusterIP":"10.0.0.1","ports":[{"port":80}]}}`
	got, err := ownedOf(parsed(t, service), fields, outline)
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
			content := parsed(t, pod)
			got, err := ownedOf(content, test.fields, outline)
			if err != nil || !reflect.DeepEqual(got, parsed(t, test.want)) {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
			if !reflect.DeepEqual(content, parsed(t, pod)) {
				t.Error("the object was changed")
			}
		})
	}
}

func TestWhatIsNoFieldSetIsRefused(t *testing.T) {
	for _, fields := range []string{"", "[]", "1", "{", `{"x":{}}`, `{"f:a":{"k:[]":{}}}`, `{"f:a":{"i:x":{}}}`} {
		if got, err := ownedOf(parsed(t, service), fields, whole); err == nil {
			t.Errorf("%q: got %v, want an error", fields, got)
		}
	}
}

func FuzzOwned(f *testing.F) {
	f.Add(`{"f:spec":{"f:ports":{"k:{\"port\":53}":{".":{},"f:name":{}},"v:1":{},"i:2":{}}}}`)
	f.Fuzz(func(t *testing.T, fields string) {
		content := parsed(t, service)
		if _, err := ownedOf(content, fields, whole); err == nil && !reflect.DeepEqual(content, parsed(t, service)) {
			t.Error("the object was changed")
		}
	})
}

// TestOfALongListIsOwnedWhatOfAShortOneIs compares what is found in long lists, where it is looked up, with what is found in short ones.
func TestOfALongListIsOwnedWhatOfAShortOneIs(t *testing.T) {
	for name, test := range map[string]struct {
		list, fields, want string
	}{
		"by keys":            {`[{"name":"a","x":1},{"name":"b"}]`, `"k:{\"name\":\"a\"}":{".":{},"f:name":{}}`, `[{"name":"a"}]`},
		"by several keys":    {`[{"port":1,"protocol":"TCP"},{"port":1,"protocol":"UDP"}]`, `"k:{\"port\":1,\"protocol\":\"UDP\"}":{"f:port":{}}`, `[{"port":1}]`},
		"a key is missing":   {`[{"port":1},{"port":2}]`, `"k:{\"port\":1,\"protocol\":\"UDP\"}":{"f:port":{}}`, `[]`},
		"by other keys":      {`[{"port":1,"name":"a"}]`, `"k:{\"name\":\"a\"}":{"f:name":{}},"k:{\"port\":1}":{"f:port":{}}`, `[{"name":"a"}]`},
		"a number by value":  {`[{"port":1.0}]`, `"k:{\"port\":1}":{"f:port":{}}`, `[{"port":1}]`},
		"a large number":     {`[{"id":9007199254740993}]`, `"k:{\"id\":9007199254740993}":{"f:id":{}}`, `[{"id":9007199254740993}]`},
		"by value":           {`["a","b",1,{"x":2,"y":3}]`, `"v:\"b\"":{},"v:1":{},"v:{\"y\":3,\"x\":2}":{}`, `["b",1,{"x":2,"y":3}]`},
		"by place":           {`["a","b"]`, `"i:1":{}`, `["b"]`},
		"the first one wins": {`[{"name":"a","x":1}]`, `"i:0":{"f:x":{}},"k:{\"name\":\"a\"}":{"f:name":{}}`, `[{"x":1}]`},
		"no object":          {`["a",1]`, `"k:{\"name\":\"a\"}":{}`, `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, more := range []int{0, 100} {
				// These are of no kind of item that is there.
				var others strings.Builder
				for i := range more {
					fmt.Fprintf(&others, `,"k:{\"other\":%d}":{},"v:\"other-%d\"":{},"i:%d":{}`, i, i, 1000+i)
				}
				content := parsed(t, `{"list":`+test.list+`}`)
				got, err := ownedOf(content, `{"f:list":{`+test.fields+others.String()+`}}`, whole)
				if want := parsed(t, `{"list":`+test.want+`}`); err != nil || !merge.Equal(got, want) {
					t.Errorf("beside %d others: got %v, %v, want %v", more, got, err, want)
				}
			}
		})
	}
}

// keyedItems prepares to find out which items of a list with keys are owned: all are.
func keyedItems(tb testing.TB, n int) func() {
	tb.Helper()
	list, fields := make([]any, n), map[string]any{}
	for i := range n {
		list[i] = map[string]any{"port": int64(i), "protocol": "TCP", "name": fmt.Sprint("port-", i)}
		fields[fmt.Sprintf(`k:{"port":%d,"protocol":"TCP"}`, i)] = map[string]any{".": map[string]any{}, "f:name": map[string]any{}}
	}
	encoded, err := utiljson.Marshal(map[string]any{"f:ports": fields})
	if err != nil {
		tb.Fatal(err)
	}
	return func() {
		part, err := ownedOf(map[string]any{"ports": list}, string(encoded), whole)
		if ports, _ := part["ports"].([]any); err != nil || len(ports) != n {
			tb.Fatal(part, err)
		}
	}
}

func TestWhatIsOwnedOfAListCostsItsItemsAndNotTheirSquare(t *testing.T) {
	slope.Check(t, 500, slope.Linear, keyedItems)
}

func BenchmarkOwnedKeyedItems(b *testing.B) { slope.Benchmark(b, keyedItems) }

func TestAnObjectShowsTheFieldsThatItHas(t *testing.T) {
	const object = `{"spec":{"a":{"b":1},"ports":[{"port":80,"protocol":"TCP","name":"web"}],"set":["x",2]}}`
	for set, want := range map[string]bool{
		`{"f:spec":{"f:a":{"f:b":{}}}}`:         true,
		`{"f:spec":{"f:a":{"f:c":{}}}}`:         false,
		`{"f:spec":{"f:a":{"f:b":{"f:c":{}}}}}`: false,
		`{"f:other":{}}`:                        false,
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:name":{}}}}}`:  true,
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:other":{}}}}}`: false,
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"UDP\"}":{}}}}`:             false,
		`{"f:spec":{"f:set":{"v:\"x\"":{}}}}`:                                            true,
		`{"f:spec":{"f:set":{"v:2":{}}}}`:                                                true,
		`{"f:spec":{"f:set":{"v:\"y\"":{}}}}`:                                            false,
	} {
		var content map[string]any
		if err := utiljson.Unmarshal([]byte(object), &content); err != nil {
			t.Fatal(err)
		}
		var paths fieldpath.Set
		if err := paths.FromJSON(strings.NewReader(set)); err != nil {
			t.Fatal(err)
		}
		paths.Leaves().Iterate(func(path fieldpath.Path) {
			if got := shows(content, path); got != want {
				t.Errorf("%s is shown: %t, want %t", path, got, want)
			}
		})
	}
}

// A child that surely fits is not looked at: nothing would be tried for one that has to move.
func TestNoJSONIsLongerThanTheLongest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"", "a", `"`, `\`, "<", "&", "\n", "\x01", "\x7f", "\xff", "é", "\u2028", "😀", "x-y/z"}
	text := func() string {
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := random.IntN(8); {
		case n < 2 && depth > 0:
			fields := map[string]any{}
			for range random.IntN(5) {
				fields[text()] = value(depth - 1)
			}
			return fields
		case n < 3 && depth > 0:
			list := make([]any, random.IntN(5))
			for i := range list {
				list[i] = value(depth - 1)
			}
			return list
		case n == 4:
			return random.Int64() - random.Int64()
		case n == 5:
			return random.NormFloat64() * 1e300
		case n == 6:
			return []any{nil, true, false}[random.IntN(3)]
		}
		return text()
	}
	for range 20000 {
		for _, kind := range []string{"ConfigMap", "Secret"} {
			content := map[string]any{"apiVersion": "v1", "kind": kind, "data": value(3), "stringData": value(1), "spec": value(4)}
			encoded, err := merge.Encode(content)
			if err != nil {
				t.Fatal(err)
			}
			if longest := longestJSON(content); longest < len(encoded) {
				t.Fatalf("%d, and %s has %d", longest, encoded, len(encoded))
			}
		}
	}
}
