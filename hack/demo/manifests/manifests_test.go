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

package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const project = `
apiVersion: v1
kind: List
items:
- {apiVersion: example.com/v1, kind: Website, metadata: {name: example, namespace: shop}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: other}}
---
# Nothing but a comment.
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: website}
spec:
  hooks:
    sync: {version: v2, webhook: {path: sync, service: {name: website, namespace: website}, clientTLS: {}, timeout: 3s}}
    finalize: {webhook: {url: "https://website.website:8443/finalize?a=b", caBundle: {}}}
    customize: {}
---
{apiVersion: metacontroller.k8s.io/v1alpha1, kind: DecoratorController, metadata: {name: more}, spec: {hooks: {sync: {webhook: {url: "http://more.elsewhere/"}}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: website}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: website, namespace: website}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: websites.example.com}}
---
{apiVersion: metacontroller.k8s.io/v1alpha1, kind: ControllerRevision, metadata: {name: website, namespace: default}}
`

func names(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind()+" "+o.GetName())
	}
	return all
}

func TestAProjectIsSortedAndItsHooksAreHere(t *testing.T) {
	objects, err := Decode([]byte(project))
	if err != nil {
		t.Fatal(err)
	}
	set, err := Sort(objects, "http://localhost:1234")
	if err != nil {
		t.Fatal(err)
	}
	got := [][]string{names(set.Definitions), names(set.Controllers), names(set.Samples), names(set.Skipped), set.Namespaces()}
	want := [][]string{
		{"CustomResourceDefinition websites.example.com"},
		{"CompositeController website", "DecoratorController more"},
		{"Website example", "Deployment other", "ControllerRevision website"},
		{"Service website", "Deployment website"},
		{"shop"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	hooks, _, err := unstructured.NestedMap(set.Controllers[0].Object, "spec", "hooks")
	wantHooks := map[string]any{
		"sync":      map[string]any{"version": "v2", "webhook": map[string]any{"url": "http://localhost:1234/sync", "timeout": "3s"}},
		"finalize":  map[string]any{"webhook": map[string]any{"url": "http://localhost:1234/finalize?a=b"}},
		"customize": map[string]any{},
	}
	if diff := cmp.Diff(wantHooks, hooks); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if first, second := Argument(set.Controllers[0]), Argument(set.Controllers[1]); first != "cc/website" || second != "dc/more" {
		t.Errorf("the plugin would be asked for %s and %s", first, second)
	}
	encoded, err := Encode(set.Controllers[0])
	if again, decodeErr := Decode([]byte(encoded)); err != nil || decodeErr != nil || !slices.Equal(names(again), names(set.Controllers[:1])) {
		t.Errorf("what is applied is %v, %v, %v", names(again), err, decodeErr)
	}
}

func TestWhatIsNoProject(t *testing.T) {
	for text, want := range map[string]string{
		"{apiVersion: v1, kind: Service, metadata: {name: a}}":                  "no CompositeController and no DecoratorController",
		"{apiVersion: apps/v1, kind: CompositeController, metadata: {name: a}}": "no CompositeController and no DecoratorController",
		"{metadata: {name: a}}":       "neither apiVersion nor kind",
		"{kind: CompositeController}": "no apiVersion or no kind",
		"a: [":                        "reading YAML",
		"{apiVersion: metacontroller.k8s.io/v1, kind: DecoratorController, spec: {hooks: 1}}": "hooks",
	} {
		objects, err := Decode([]byte(text))
		if err == nil {
			_, err = Sort(objects, "http://localhost:1234")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// A folder may be a project of JavaScript, whose files are for other programs.
func TestWhatIsForOtherPrograms(t *testing.T) {
	for _, test := range []struct {
		name, text string
		found      bool
		want       bool
	}{
		{"package.json", `{"name": "website", "type": "module"}`, true, true},
		{"tsconfig.json", "{\n  // Comments are allowed there.\n}", true, true},
		{"list.json", "[1]", true, true},
		{"pnpm-lock.yaml", "lockfileVersion: '9.0'", true, true},
		{"package.json", `{"name": "website", "type": "module"}`, false, false},
		{"controller.yaml", "{kind: CompositeController}", true, false},
		{"controller.yaml", "a: [", true, false},
	} {
		_, err := Decode([]byte(test.text))
		if got := Foreign(Source{Path: test.name, Found: test.found}, err); err == nil || got != test.want {
			t.Errorf("%s, found %t: got %t for %v", test.name, test.found, got, err)
		}
	}
}

func TestSources(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{
		"plain/b.yaml", "plain/a.json", "plain/sub/c.yaml", "plain/hook.py", "kustomized/kustomization.yaml", "kustomized/a.yaml",
		"init/example.yaml", "init/manifests/base/kustomization.yaml", "empty/hook.py",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]Source{
		"plain":        {{Path: "plain/a.json", Found: true}, {Path: "plain/b.yaml", Found: true}},
		"plain/b.yaml": {{Path: "plain/b.yaml"}},
		"kustomized":   {{Path: "kustomized", Kustomization: true}},
		"init":         {{Path: "init/manifests/base", Kustomization: true}, {Path: "init/example.yaml", Found: true}},
		"empty":        nil,
		"nothing":      nil,
	} {
		got, err := Sources(filepath.Join(folder, path))
		for i := range want {
			want[i].Path = filepath.Join(folder, filepath.FromSlash(want[i].Path))
		}
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: got %v, %v, want %v", path, got, err, want)
		}
	}
}
