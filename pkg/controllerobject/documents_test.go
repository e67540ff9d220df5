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

package controllerobject

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentsAreSplitAsKubectlDoes(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
		fail bool
	}{
		"nothing":                        {text: ""},
		"one of YAML":                    {text: "a: 1\n", want: []string{"a: 1\n"}},
		"two of YAML":                    {text: "a: 1\n---\nb: 2\n", want: []string{"a: 1\n", "b: 2\n"}},
		"one of JSON":                    {text: `{"a": 1}`, want: []string{`{"a": 1}`}},
		"JSON, one after the other":      {text: "{\"a\": 1}\n{\"b\": 2}\n", want: []string{`{"a": 1}`, `{"b": 2}`}},
		"JSON in several lines":          {text: "{\n\"a\": 1\n}{\n\"b\": 2\n}", want: []string{"{\n\"a\": 1\n}", "{\n\"b\": 2\n}"}},
		"JSON between lines":             {text: "{\"a\": 1}\n---\nb: 2\n", want: []string{`{"a": 1}`, "b: 2\n"}},
		"YAML in flow style":             {text: "{a: 1}\n", want: []string{"{a: 1}\n"}},
		"JSON of which the end is wrong": {text: "{\"a\": 1}\n{\"b\"", fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := Documents(strings.NewReader(test.text))
			if (err != nil) != test.fail {
				t.Fatal(err)
			}
			var got []string
			for _, document := range documents {
				got = append(got, string(document))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}
