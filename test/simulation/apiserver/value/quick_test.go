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

package value_test

import (
	"reflect"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// documents are JSON objects, and texts that are none.
var documents = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":-1,"b":[],"c":{},"d":null,"e":true,"f":false}`, `{"a":[1,"x",{"b":[[]]}], "c" : [ ] }`,
	`{"a":0}`, `{"a":-0}`, `{"a":01}`, `{"a":1.5}`, `{"a":1e3}`, `{"a":2.0}`, `{"a":9223372036854775807}`, `{"a":9223372036854775808}`,
	`{"a":123456789012345678}`, `{"a":1234567890123456789}`, `{"a":+1}`, `{"a":-}`, `{"a":.5}`, `{"a":1.}`,
	`{"a":"\"\\\/\b\f\n\r\t"}`, `{"a":"\u0041\u003c\u00e9\u20ac"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`, `{"a":"\u00"}`, `{"a":"\u+123"}`, `{"a":"\x"}`,
	`{"a":"é€😀"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\\n\xff\"}", "{\"a\":\"\n\"}", "{\"a\":\"\\n\n\"}", `{"a":"`, `{"a":"\`, `{"a":"\"`,
	`{"a":1,"a":2}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1 "b":2}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":tru}`, `{"a":truex}`, `{"a":nul`,
	`{"a":1}x`, `{"a":1} {}`, `[]`, `null`, `1`, ``, ` `, `{`, `{"`, `{"a":[`, `{"a":{`, "{\"\\u0061\":1}", `{'a':1}`, `{"a":"b"  , "c":[ 1 , 2 ]}`,
}

func checkDecode(t *testing.T, text string) {
	t.Helper()
	var want map[string]any
	failure := utiljson.Unmarshal([]byte(text), &want)
	got, err := value.Decode([]byte(text))
	if (err == nil) != (failure == nil && want != nil) {
		t.Fatalf("%q: the error is %v, and that of the library %v", text, err, failure)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%q is decoded as %#v, not as %#v", text, got, want)
	}
}

func TestDecodeAgreesWithTheLibrary(t *testing.T) {
	for _, text := range documents {
		checkDecode(t, text)
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range documents {
		f.Add(text)
	}
	f.Fuzz(checkDecode)
}
