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

package merge_test

import (
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/children/merge"
)

func TestEncodeSortsKeys(t *testing.T) {
	text, err := merge.Encode(decode(t, `{"kind":"ConfigMap","apiVersion":"v1","data":{"b":"<","a":null}}`))
	if want := `{"apiVersion":"v1","data":{"a":null,"b":"\u003c"},"kind":"ConfigMap"}`; err != nil || text != want {
		t.Errorf("%s, error %v, want %s", text, err, want)
	}
}

func TestValuesOfSecretsAreHashed(t *testing.T) {
	const secret = `{"apiVersion":"v1","data":{"a":"aHVudGVyMg==","n":null},"kind":"Secret","stringData":{"b":"hunter2"}}`
	text, err := merge.Encode(decode(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") {
		t.Errorf("a value is there in clear: %s", text)
	}
	last := merge.Decode(text)
	for _, field := range []string{"data", "stringData"} {
		values, ok := last[field].(map[string]any)
		if !ok || len(values) == 0 {
			t.Errorf("the keys of %s are not there: %s", field, text)
		}
	}
	other, err := merge.Encode(decode(t, strings.Replace(secret, "hunter2", "hunter3", 1)))
	if err != nil || other == text {
		t.Errorf("another value has the same hash, error %v", err)
	}
	if again, err := merge.Encode(decode(t, secret)); err != nil || again != text {
		t.Errorf("the same value has another hash, error %v", err)
	}
	if content := decode(t, secret); encode(t, content) != secret {
		t.Error("the desired object was changed")
	}
}

func TestOtherKindsAreNotHashed(t *testing.T) {
	text, err := merge.Encode(decode(t, `{"apiVersion":"example.com/v1","data":{"a":"b"},"kind":"Secret"}`))
	if err != nil || !strings.Contains(text, `"a":"b"`) {
		t.Errorf("%s, error %v", text, err)
	}
}

func TestDamagedAnnotationsCountAsNothingApplied(t *testing.T) {
	for _, text := range []string{"", "{", "null", "[]", `"a"`, "\x00"} {
		if last := merge.Decode(text); last != nil {
			t.Errorf("%q is decoded to %v", text, last)
		}
	}
}

func TestStringDataBecomesData(t *testing.T) {
	shown := merge.Observable(decode(t, `{"apiVersion":"v1","data":{"a":"QQ\n==\n","b":"Qg=="},"kind":"Secret","stringData":{"b":"C"}}`))
	if got, want := encode(t, shown), `{"apiVersion":"v1","data":{"a":"QQ==","b":"Qw=="},"kind":"Secret"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add(`{"metadata":{"annotations":{"a":"b"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		last := merge.Decode(text)
		if last == nil {
			return
		}
		encoded, err := merge.Encode(last)
		if err != nil {
			t.Fatal(err)
		}
		if again := merge.Decode(encoded); !merge.IsSecret(last) && !merge.Equal(last, again) {
			t.Errorf("%s became %s", text, encoded)
		}
	})
}
