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
	"fmt"
	"strconv"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/pkg/cluster/object"
)

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
