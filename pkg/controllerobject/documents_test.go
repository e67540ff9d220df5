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
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
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

func TestListsAreTakenApart(t *testing.T) {
	const (
		ours = `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeController"}`
		pod  = `{"apiVersion":"v1","kind":"Pod"}`
	)
	list := func(items ...string) string {
		return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + "]}"
	}
	ofOurs := func(items string) string {
		return `{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"CompositeControllerList","items":` + items + "}"
	}
	for name, test := range map[string]struct {
		text string
		// want are the number of the document, the kind, and what was read or is wrong.
		want []string
	}{
		"an object":                   {"apiVersion: v1\nkind: Pod\n", []string{"1 Pod " + pod}},
		"what is no object":           {"text\n---\n- 1\n---\n# nothing\n", []string{`1  "text"`, "2  [1]", "3  null"}},
		"a list":                      {pod + "\n" + list(pod, ours), []string{"1 Pod " + pod, "2 Pod " + pod, "2 CompositeController " + ours}},
		"a list of lists":             {list(list(ours), list()), []string{"1 CompositeController " + ours}},
		"a list with what is none":    {list("1", "null"), []string{"1  1", "1  null"}},
		"a list of our kind":          {ofOurs("[{}," + ours + "]"), []string{"1 CompositeController " + ours, "1 CompositeController " + ours}},
		"a list of another kind":      {`{"apiVersion":"v1","kind":"PodList","items":[]}`, []string{`1 PodList {"apiVersion":"v1","items":[],"kind":"PodList"}`}},
		"a list of another group":     {`{"apiVersion":"v2","kind":"List","items":[]}`, []string{`1 List {"apiVersion":"v2","items":[],"kind":"List"}`}},
		"a list of our kind, of text": {ofOurs("1"), []string{"1 CompositeControllerList: items must be an array"}},
		"a list of text in a list":    {list(pod, `{"apiVersion":"v1","kind":"List","items":{}}`), []string{"1 Pod " + pod, "1 List: items must be an array"}},
		"no YAML, and an object":      {"a: b: c\n---\n" + pod, []string{"1 : error converting YAML to JSON: yaml: mapping values are not allowed in this context", "2 Pod " + pod}},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, err := Manifests(strings.NewReader(test.text), yaml.YAMLToJSON)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range manifests {
				said := fmt.Sprintf("%d %s %s", m.Document, m.Kind, m.JSON)
				if m.Err != nil {
					said = fmt.Sprintf("%d %s: %v", m.Document, m.Kind, m.Err)
				}
				got = append(got, said)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}
