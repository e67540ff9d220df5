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

func TestWhatAPIServersMakeOfValues(t *testing.T) {
	for _, test := range []struct {
		name              string
		observed, desired string
		// differs are the places that count as somebody else's change.
		differs string
	}{
		{"an empty string is dropped", `{}`, `{"a":""}`, ""},
		{"an empty list is dropped", `{}`, `{"a":[]}`, ""},
		{"an object of empty things is dropped", `{}`, `{"a":{"b":{},"c":null}}`, ""},
		{"false is dropped", `{}`, `{"a":false}`, ""},
		{"a value is not dropped", `{}`, `{"a":{"b":1}}`, "a"},
		{"an empty list is stored as null", `{"rules":null}`, `{"rules":[]}`, ""},
		{"null gets a default", `{"spec":{"mode":"M"}}`, `{"spec":{"mode":null}}`, ""},
		{"an empty string gets a default", `{"spec":{"type":"T"}}`, `{"spec":{"type":""}}`, ""},
		{"data of a ConfigMap gets none", `{"data":{"a":"b"}}`, `{"data":{"a":""}}`, "data.a"},
		{"an empty entry of a ConfigMap is not dropped", `{"data":{}}`, `{"data":{"a":""}}`, "data.a"},
		{"an empty label is not dropped", `{"metadata":{"labels":{}}}`, `{"metadata":{"labels":{"a":""}}}`, "metadata.labels.a"},
		{"an empty annotation is not dropped", `{"metadata":{}}`, `{"metadata":{"annotations":{"a":""}}}`, "metadata.annotations"},
		{"empty labels are dropped", `{"metadata":{}}`, `{"metadata":{"labels":{}}}`, ""},
		{"an entry that is null is stored empty", `{"data":{"a":""}}`, `{"data":{"a":null}}`, ""},
		{
			"a variable gets none", `{"spec":{"env":[{"name":"A","value":"b"}]}}`, `{"spec":{"env":[{"name":"A","value":""}]}}`,
			"spec.env[A].value",
		},
		{"a quantity", `{"limits":{"cpu":"500m"}}`, `{"limits":{"cpu":0.5}}`, ""},
		{"another quantity", `{"limits":{"cpu":"501m"}}`, `{"limits":{"cpu":0.5}}`, "limits.cpu"},
		{"text that looks like a quantity", `{"data":{"limits":"1"}}`, `{"data":{"limits":"1000m"}}`, "data.limits"},
		{"a duration", `{"spec":{"every":"1m0s"}}`, `{"spec":{"every":"60s"}}`, ""},
		{"another duration", `{"spec":{"every":"1m1s"}}`, `{"spec":{"every":"60s"}}`, "spec.every"},
		{"text that looks like a duration", `{"data":{"every":"1m0s"}}`, `{"data":{"every":"60s"}}`, "data.every"},
		{"a time", `{"spec":{"at":"2026-01-02T02:04:05Z"}}`, `{"spec":{"at":"2026-01-02T03:04:05+01:00"}}`, ""},
		{"another time", `{"spec":{"at":"2026-01-02T03:04:05Z"}}`, `{"spec":{"at":"2026-01-02T03:04:05+01:00"}}`, "spec.at"},
		{"base64 in lines", `{"binaryData":{"a":"AAEC"}}`, `{"binaryData":{"a":"AA\nEC\n"}}`, ""},
		{"other base64", `{"binaryData":{"a":"AAED"}}`, `{"binaryData":{"a":"AA\nEC\n"}}`, "binaryData.a"},
		{"defaults within elements of an atomic list", `{"l":[{"a":1,"d":2}]}`, `{"l":[{"a":1}]}`, ""},
		{"another value within elements", `{"l":[{"a":2,"d":2}]}`, `{"l":[{"a":1}]}`, "l"},
		{"another order", `{"l":[2,1]}`, `{"l":[1,2]}`, "l"},
		{"another element", `{"l":[{"a":1},{"b":1}]}`, `{"l":[{"a":1}]}`, "l"},
		{"an element less", `{"l":[{"a":1}]}`, `{"l":[{"a":1},{"b":1}]}`, "l"},
		{"tolerations that admission adds", `{"tolerations":[{"key":"x"},{"key":"a"}]}`, `{"tolerations":[{"key":"a"}]}`, ""},
		{"a toleration that is gone", `{"tolerations":[{"key":"x"},{"key":"b"}]}`, `{"tolerations":[{"key":"a"}]}`, "tolerations"},
		{
			"sorted addresses", `{"subsets":[{"addresses":[{"ip":"1"},{"ip":"2"}]}]}`, `{"subsets":[{"addresses":[{"ip":"2"},{"ip":"1"}]}]}`,
			"",
		},
		{"another text", `{"a":"b"}`, `{"a":"c"}`, "a"},
		{"another type", `{"a":"1"}`, `{"a":1}`, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			desired := decode(t, test.desired)
			result, err := merge.Objects(decode(t, test.observed), desired, desired, nil, merge.Normalized)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(result.Changed, " "); got != test.differs {
				t.Errorf("differs at %q, want %q", got, test.differs)
			}
		})
	}
}

func TestRemovedFieldsAreNeverNormalized(t *testing.T) {
	result, err := merge.Objects(decode(t, `{"a":""}`), decode(t, `{"a":""}`), decode(t, `{}`), nil, merge.Normalized)
	if err != nil || len(result.Changed) != 1 {
		t.Errorf("changed %v, error %v", result.Changed, err)
	}
}
