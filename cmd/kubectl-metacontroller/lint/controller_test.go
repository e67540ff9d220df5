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

package lint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheControllerOfAFile(t *testing.T) {
	const (
		composite = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\nmetadata: {name: a}\n"
		decorator = "apiVersion: metacontroller.k8s.io/v1alpha1\nkind: DecoratorController\nmetadata: {name: b}\n"
		service   = "apiVersion: v1\nkind: Service\nmetadata: {name: c}\n"
	)
	list := func(objects ...string) string {
		text := "apiVersion: v1\nkind: List\nitems:\n"
		for _, o := range objects {
			text += "- " + strings.ReplaceAll(strings.TrimSpace(o), "\n", "\n  ") + "\n"
		}
		return text
	}
	asJSON := func(kind, name string) string {
		return `{"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "` + kind + `", "metadata": {"name": "` + name + "\"}}\n"
	}
	for what, tc := range map[string]struct{ text, want, err string }{
		"a composite":           {composite, "cc/a", ""},
		"beside other objects":  {service + "---\n" + decorator + "---\n", "dc/b", ""},
		"with unknown fields":   {composite + "spec: {unknown: true}\n", "cc/a", ""},
		"two":                   {composite + "---\n" + decorator, "", "holds cc/a and dc/b"},
		"two, as JSON":          {asJSON("CompositeController", "a") + asJSON("DecoratorController", "b"), "", "holds cc/a and dc/b"},
		"none":                  {service, "", "holds neither"},
		"in a list":             {list(service, decorator), "dc/b", ""},
		"in a list of lists":    {list(service, list(composite)), "cc/a", ""},
		"two in a list":         {list(composite, decorator), "", "holds cc/a and dc/b"},
		"none in a list":        {list(service), "", "holds neither"},
		"a list of nothing":     {list(), "", "holds neither"},
		"a list that is none":   {"apiVersion: v1\nkind: List\nitems: {a: b}\n", "", "items must be an array: see 'kubectl metacontroller lint -f"},
		"in a list of its kind": {"apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeControllerList\nitems: [{metadata: {name: a}}]\n", "cc/a", ""},
		"another kind":          {strings.ReplaceAll(composite, "Composite", "Other"), "", "holds neither"},
		"no name":               {"apiVersion: metacontroller.k8s.io/v1alpha1\nkind: CompositeController\n", "", "metadata.name is missing"},
		"no YAML":               {"a: b: c", "", "lint -f"},
		"a field of other type": {composite + "spec: {parentResource: 1}\n", "", "lint -f"},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Controller(path, nil)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || got.Argument() != tc.want || !json.Valid(got.Encoded) {
				t.Errorf("got %v, error %v", got.Object, err)
			}
			again, err := Controller("-", strings.NewReader(tc.text))
			if err != nil || again.Argument() != tc.want {
				t.Errorf("from the standard input: %v, error %v", again.Object, err)
			}
		})
	}
}
