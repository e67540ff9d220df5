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

package parent

import (
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestOnlyWhatARestorationMayWriteIsTakenOfWhatWasWritten(t *testing.T) {
	const before = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","resourceVersion":"7","labels":{"a":"1"}},"spec":{"a":1},"status":{"b":1}}`
	const written = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","resourceVersion":"8","generation":2,"annotations":{"c":"1"}},"spec":{"a":2},` +
		`"status":{"b":2}}`
	for hasStatus, want := range map[bool]string{
		true:  `{"apiVersion":"v1","kind":"Thing","metadata":{"annotations":{"c":"1"},"name":"a","resourceVersion":"7"},"spec":{"a":2},"status":{"b":1}}`,
		false: `{"apiVersion":"v1","kind":"Thing","metadata":{"annotations":{"c":"1"},"name":"a","resourceVersion":"7"},"spec":{"a":2},"status":{"b":2}}`,
	} {
		after, err := Restored(parse(t, before), parse(t, written), hasStatus)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := utiljson.Marshal(after); err != nil || string(got) != want {
			t.Errorf("with a status of its own %t: %s, error %v, want %s", hasStatus, got, err, want)
		}
	}
}

func TestRestorationWritesTheFieldsOfARevision(t *testing.T) {
	const head = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","resourceVersion":"7"`
	for name, tc := range map[string]struct {
		before, former string
		want           string
		err            string
	}{
		"the same":               {head + `},"spec":{"a":1}}`, head + `},"spec":{"a":1}}`, ``, ""},
		"a field":                {head + `},"spec":{"a":1,"b":2}}`, head + `},"spec":{"a":0,"b":2}}`, `{"op":"add","path":"/spec","value":{"a":0,"b":2}}`, ""},
		"a field that was not":   {head + `},"spec":{"a":1}}`, head + `}}`, `{"op":"remove","path":"/spec","value":null}`, ""},
		"a field that is not":    {head + `}}`, head + `},"data":{"a":1}}`, `{"op":"add","path":"/data","value":{"a":1}}`, ""},
		"a null":                 {head + `},"a":1}`, head + `},"a":null}`, `{"op":"add","path":"/a","value":null}`, ""},
		"a name with a slash":    {head + `},"a/b~":1}`, head + `},"a/b~":2}`, `{"op":"add","path":"/a~1b~0","value":2}`, ""},
		"labels":                 {head + `,"labels":{"a":"1"}}}`, head + `}}`, `{"op":"remove","path":"/metadata/labels","value":null}`, ""},
		"annotations":            {head + `}}`, head + `,"annotations":{"a":"1"}}}`, `{"op":"add","path":"/metadata/annotations","value":{"a":"1"}}`, ""},
		"finalizers":             {head + `}}`, head + `,"finalizers":["a"]}}`, ``, "another metadata.finalizers"},
		"a status of its own":    {head + `},"status":{"a":1}}`, head + `},"status":{"a":2}}`, ``, "another status"},
		"a kind is no such case": {head + `}}`, strings.Replace(head, "Thing", "Other", 1) + `}}`, ``, "another kind"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Restoration(parse(t, tc.before), decode(t, tc.former), true)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("the error is %v, want %q", err, tc.err)
			}
			want := ""
			if tc.want != "" {
				want = `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},` + tc.want + `]`
			}
			if string(got) != want {
				t.Errorf("the patch is %s, want %s", got, want)
			}
		})
	}
}

func TestObjectsEndWithTheirLastFinalizer(t *testing.T) {
	for metadata, want := range map[string]bool{
		`"deletionTimestamp":"2026-01-01T00:00:00Z"`:                                    true,
		`"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0`:     true,
		`"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30`:    false,
		`"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["example.com/other"]`: false,
		`"labels":{"a":"b"}`: false,
	} {
		if got := Ended(parse(t, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a",`+metadata+`}}`)); got != want {
			t.Errorf("with %s it has ended: %t, want %t", metadata, got, want)
		}
	}
	for spec, want := range map[string]bool{``: true, `,"spec":{}`: true, `,"spec":{"finalizers":[]}`: true, `,"spec":{"finalizers":["kubernetes"]}`: false} {
		o := parse(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"}`+spec+`}`)
		if got := Ended(o); got != want {
			t.Errorf("a Namespace with %s has ended: %t, want %t", spec, got, want)
		}
	}
}
