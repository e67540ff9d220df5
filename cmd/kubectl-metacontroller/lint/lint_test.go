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
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// run runs the command.
func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &out})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// corpora are the manifests with which the server's own validation is tested. Their comments are what the server says.
const corpora = "../../../pkg/apis/metacontroller/validation/testdata"

// What the server says of each manifest is what the command says of it.
func TestTheServersCorpora(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpora, "*", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("there are %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, corpora+"/"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			linter := newLinter()
			for i, document := range strings.Split(string(text), "\n---\n") {
				var want []string
				for line := range strings.Lines(document) {
					for _, severity := range []string{severityError, severityWarning} {
						if message, ok := strings.CutPrefix(strings.TrimSpace(line), "# "+severity+": "); ok {
							want = append(want, severity+": "+strings.TrimPrefix(message, "strict decoding error: "))
						}
					}
				}
				found, _ := linter.lint(t.Context(), source{file, []byte(document)})
				var got []string
				for _, f := range found {
					got = append(got, f.Severity+": "+strings.ReplaceAll(f.Message, "\n", " "))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("document %d (-want +got):\n%s\n%s", i+1, diff, document)
				}
			}
		})
	}
}

const (
	right = `apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata: {name: web}
spec:
  generateSelector: true
  parentResource: {apiVersion: example.com/v1, resource: websites}
  childResources: [{apiVersion: v1, resource: configmaps, updateStrategy: {method: InPlace}}]
  hooks: {sync: {webhook: {url: 'https://hook.hooks/sync'}}}
`
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	// What lies in folders beside controllers, and is none.
	others = "- {op: replace, path: /spec/workers, value: 2}\n---\napiVersion: example.com/v1\nkind: Menu\nitems: {a: 1}\n---\n" +
		"apiVersion: example.com/v1\nkind: Page\nmetadata: text\n---\napiVersion: 1\nkind: Number\n---\ntext\n---\n# nothing\n---\n"
)

func TestWhatIsPrinted(t *testing.T) {
	t.Chdir(t.TempDir()) // Which is looked at when nothing is named.
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wrong := strings.Replace(right, "generateSelector: true", "workers: 0", 1)
	write("right/controller.yaml", right)
	write("right/notes.txt", "{")
	write("wrong/sub/controller.json", `{"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositController", "metadata": {"name": "web"}}`)
	for name, tc := range map[string]struct {
		in   string
		args []string
		want string
		err  string
	}{
		"a right one":      {right, []string{"-f", "-"}, "The server would accept this: 0 warnings in 1 object.\n", ""},
		"a folder":         {"", []string{"-f", filepath.Join(folder, "right")}, "The server would accept this: 0 warnings in 1 object.\n", ""},
		"nothing":          {"", nil, "", "the folder . holds no file *.yaml"},
		"no such file":     {"", []string{"-f", filepath.Join(folder, "none")}, "", "reading manifests"},
		"another format":   {"", []string{"-f", "-", "-o", "xml"}, "", `"xml" is not known`},
		"an empty folder":  {"", []string{"-f", filepath.Join(folder, "wrong")}, "", "look into its folders with -R"},
		"of another group": {configMap, []string{"-f", "-"}, "", "there is no object of metacontroller.k8s.io to look at"},
		"beside others":    {others + right, []string{"-f", "-"}, "The server would accept this: 0 warnings in 1 object.\n", ""},
		"beside others in a list": {
			"apiVersion: v1\nkind: List\nitems: [text, 1, {apiVersion: example.com/v1, kind: Menu, items: 1}]\n---\n" + right,
			[]string{"-f", "-"},
			"The server would accept this: 0 warnings in 1 object.\n",
			"",
		},
		"others only":          {others, []string{"-f", "-"}, "", "there is no object of metacontroller.k8s.io to look at"},
		"a list without items": {"apiVersion: v1\nkind: List\nitems: {a: 1}\n", []string{"-f", "-"}, "-:3: error: List: items must be an array", "1 error"},
		"metadata that are text": {
			strings.Replace(right, "{name: web}", "text", 1), []string{"-f", "-"}, "-:1: error: CompositeController/: json: cannot unmarshal", "1 error",
		},
		"the second document": {
			configMap + "---\n" + wrong,
			[]string{"-f", "-"},
			"-:9: error: CompositeController/web: spec.workers: Invalid value: 0: must be greater than or equal to 1\n",
			"the server would refuse this: 1 error, 0 warnings in 1 object",
		},
		"no YAML": {"{", []string{"-f", "-"}, "-:1: error: error converting YAML to JSON", "1 error"},
		"a misspelled kind, in a folder of a folder": {
			"", []string{"-R", "-f", filepath.Join(folder, "wrong")}, `controller.json:1: error: CompositController/web: unknown kind CompositController: did you mean CompositeController?`, "1 error",
		},
		"a kind that is far from all": {
			strings.Replace(right, "kind: CompositeController", "kind: Website", 1),
			[]string{"-f", "-"},
			"unknown kind Website: use one of CompositeController, DecoratorController, ControllerRevision", "1 error",
		},
		"another version": {
			strings.Replace(right, "k8s.io/v1alpha1", "k8s.io/v1", 1),
			[]string{"-f", "-"},
			"unknown version metacontroller.k8s.io/v1: did you mean metacontroller.k8s.io/v1alpha1?", "1 error",
		},
		"an account by its name": {
			strings.Replace(right, "generateSelector: true", "serviceAccountRef: website", 1),
			[]string{"-f", "-"},
			`spec.serviceAccountRef: Invalid value: "website": must be {namespace: NAMESPACE, name: NAME}`, "1 error",
		},
		"a singular": {
			strings.Replace(right, "v1, resource: configmaps", "apps/v1, resource: deployment", 1),
			[]string{"-f", "-"},
			"warning: CompositeController/web: spec.childResources[0]: Kubernetes does not serve deployment in apps/v1: did you mean deployments in apps/v1?\n", "",
		},
		"a version of other kinds": {
			strings.Replace(right, "resource: configmaps", "resource: deployments", 1),
			[]string{"-f", "-"},
			"spec.childResources[0]: Kubernetes does not serve deployments in v1: did you mean deployments in apps/v1?\n", "",
		},
		"a name of Kubernetes in another group": {
			strings.Replace(right, "v1, resource: configmaps", "serving.knative.dev/v1, resource: services", 1), []string{"-f", "-"}, "0 warnings", "",
		},
		"a name that no object can have": {
			strings.Replace(right, "name: web", "name: a/b", 1), []string{"-f", "-"}, "metadata.name: Invalid value: \"a/b\": a lowercase RFC 1123 subdomain", "1 error",
		},
		"no name": {strings.Replace(right, "name: web", "labels: {}", 1), []string{"-f", "-"}, "metadata.name: Required value", "1 error"},
		"in a list": {
			`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorController","metadata":{"name":"web"},` +
				`"spec":{"resources":[],"hooks":{"sync":{"webhook":{"timeout":"1d"}}}}}]}`,
			[]string{"-f", "-"},
			"-:1: error: DecoratorController/web: spec.hooks.sync.webhook.timeout: Invalid value: \"1d\"", "1 error",
		},
		"in a list of its kind": {
			`{"apiVersion":"metacontroller.k8s.io/v1alpha1","kind":"DecoratorControllerList","items":[{"metadata":{"name":"web"},` +
				`"spec":{"resources":[],"hooks":{"sync":{"webhook":{"timeout":"1d"}}}}}]}`,
			[]string{"-f", "-"},
			"-:1: error: DecoratorController/web: spec.hooks.sync.webhook.timeout: Invalid value: \"1d\"", "1 error",
		},
		"another kind of the group": {
			"apiVersion: metacontroller.k8s.io/v1alpha1\nkind: ControllerPlan\nmetadata: {name: x}\n",
			[]string{"-f", "-"},
			`-:2: error: ControllerPlan/x: kind: Unsupported value: "ControllerPlan": supported values:`, "1 error",
		},
		"one after the other, as JSON": {
			`{"apiVersion": "v1", "kind": "ConfigMap"} {"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositController", "metadata": {"name": "web"}}`,
			[]string{"-f", "-"},
			`-:1: error: CompositController/web: unknown kind CompositController: did you mean CompositeController?`, "1 error",
		},
		"as JSON": {wrong, []string{"-f", "-", "-o", "json"}, `"message": "spec.workers: Invalid value: 0`, "1 error"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, tc.in, tc.args...)
			if !strings.Contains(got, tc.want) {
				t.Errorf("printed\n%s\nwant in it\n%s", got, tc.want)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("the error is %v, want %q", err, tc.err)
			}
		})
	}
}

// A folder is looked at with the folders in it, and the definition of a kind is compared with the controller of its objects.
func TestDefinitionsAreComparedWithControllers(t *testing.T) {
	const controller = `# CR
{apiVersion: metacontroller.k8s.io/v1alpha1, kind: CompositeController, metadata: {name: web}, spec: {%sparentResource: {apiVersion: example.com/VERSION,
		resource: websites}, childResources: [{apiVersion: v1, resource: pods, updateStrategy: {method: InPlace}}],
		hooks: {sync: {version: v2, webhook: {url: "http://localhost/sync"}}}}}`
	const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: websites.example.com}, spec: {versions: [
		{name: v1, served: true, %sschema: {openAPIV3Schema: {properties: {spec: {properties: {%s}}}}}}, {name: v1alpha1, served: false}]}}`
	for what, tc := range map[string]struct{ generated, version, subresources, fields, want string }{
		"all is well":          {"generateSelector: true, ", "v1", "subresources: {status: {}}, ", "", "0 warnings in 1 object"},
		"a selector":           {"", "v1", "subresources: {status: {}}, ", "selector: {}", "0 warnings in 1 object"},
		"no selector":          {"", "v1", "subresources: {status: {}}, ", "", "spec.generateSelector: websites.example.com has no field spec.selector"},
		"no status":            {"generateSelector: true, ", "v1", "", "", "websites.example.com has no subresource status in v1"},
		"an unserved version":  {"generateSelector: true, ", "v1alpha1", "", "", "the CustomResourceDefinition websites.example.com does not serve v1alpha1, only v1"},
		"a version of no kind": {"generateSelector: true, ", "v2", "", "", "does not serve v2, only v1"},
	} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range map[string]string{
				"base/controller.yaml": strings.ReplaceAll(fmt.Sprintf(controller, tc.generated), "VERSION", tc.version),
				"base/crd.yaml":        fmt.Sprintf(definition, tc.subresources, tc.fields), "testdata/sync.request.json": "{]", "package.json": "{}",
			} {
				path := filepath.Join(folder, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(folder)
			for _, args := range [][]string{nil, {"."}, {folder}} {
				if got, err := run(t, "", args...); err != nil || !strings.Contains(got, tc.want) {
					t.Errorf("%q: printed %q, error %v, want %q", args, got, err, tc.want)
				}
			}
			if got, err := run(t, "", "base", "-o", "yaml"); err != nil || strings.Contains(got, "severity: warning") == strings.HasPrefix(tc.want, "0") {
				t.Errorf("as YAML: printed %q, error %v", got, err)
			}
		})
	}
}

// Inline hooks are compiled as the server does, without a cluster; what cannot be checked is said.
func TestInlineHooksAreCompiled(t *testing.T) {
	const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: websites.example.com}
spec:
  group: example.com
  names: {kind: Website, plural: websites}
  versions:
  - name: v1
    served: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {image: {type: string}, selector: {type: object}}}, status: {type: object, properties: {ready: {type: integer}}}}}}
`
	const controller = `apiVersion: metacontroller.k8s.io/v1alpha1
kind: KIND
metadata: {name: web}
spec:
  PARENT
  hooks:
    sync:
      inline:
        CHILDREN:
        - template:
            apiVersion: apps/v1
            kind: Deployment
            metadata: {name: "${PARENTNAME.metadata.name}"}
            spec:
              replicas: REPLICAS
              selector: {matchLabels: {app: web}}
              template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: "${PARENTNAME.spec.IMAGE}"}]}}
`
	composite := strings.NewReplacer("KIND", "CompositeController", "CHILDREN", "children", "PARENTNAME", "parent",
		"PARENT\n", "parentResource: {apiVersion: example.com/v1, resource: websites}\n  childResources: [{apiVersion: apps/v1, resource: deployments, updateStrategy: {method: InPlace}}]\n")
	decorator := strings.NewReplacer("KIND", "DecoratorController", "CHILDREN", "attachments", "PARENTNAME", "object",
		"PARENT\n", "resources: [{apiVersion: example.com/v1, resource: websites}]\n  attachments: [{apiVersion: apps/v1, resource: deployments, updateStrategy: {method: InPlace}}]\n")
	const unknown = "spec.hooks: what inline hooks do with websites of example.com/v1 is not checked: no file has a CustomResourceDefinition with their schema\n"
	for what, tc := range map[string]struct {
		kind            *strings.Replacer
		definition      string
		replicas, image string
		want            []string
	}{
		"a right one":               {composite, definition, "2", "image", []string{"0 warnings in 1 object"}},
		"a right decorator":         {decorator, definition, "2", "image", []string{"0 warnings in 1 object"}},
		"no definition":             {composite, "", "2", "anything", []string{"-:8: warning: CompositeController/web: " + unknown, "1 warning in 1 object"}},
		"no definition, a mistake":  {decorator, "", "two", "anything", []string{"-:17: error: DecoratorController/web: ", "is string, Deployment wants integer", unknown}},
		"a definition with no kind": {composite, strings.Replace(definition, "kind: Website", "kind: ''", 1), "2", "image", []string{"0 warnings"}},
		"an unserved version":       {composite, strings.Replace(definition, "served: true", "served: false", 1), "2", "image", []string{unknown}},
		"no schema":                 {composite, strings.ReplaceAll(definition, "openAPIV3Schema", "other"), "2", "image", []string{unknown}},
		"an unknown field": {composite, definition, "2", "imag", []string{
			`-:31: error: CompositeController/web: spec.hooks.sync.inline.children[0].template.spec.template.spec.containers[0].image: Invalid value: "parent.spec.imag": ` +
				"Website.spec has no field imag; did you mean image? (line 1, column 12)\n",
		}},
		"a wrong type": {decorator, definition, `"${object.spec.image}"`, "image", []string{
			"-:29: error: DecoratorController/web: spec.hooks.sync.inline.attachments[0].template.spec.replicas: ", "yields string, Deployment wants integer (line 1, column 1)\n",
		}},
	} {
		t.Run(what, func(t *testing.T) {
			text := tc.definition + "---\n" + tc.kind.Replace(strings.NewReplacer("REPLICAS", tc.replicas, "IMAGE", tc.image).Replace(controller))
			got, err := run(t, text, "-f", "-")
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("printed\n%s\nwant in it\n%s", got, want)
				}
			}
			if wrong := strings.Contains(strings.Join(tc.want, ""), "error: "); wrong != (err != nil) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// The kinds of Kubernetes are those that it publishes.
func TestTheKindsOfKubernetes(t *testing.T) {
	kinds, err := resources()
	if err != nil || len(kinds) < 50 {
		t.Fatalf("there are %d, error %v", len(kinds), err)
	}
	schemas := NewSchemas()
	for name, want := range kinds {
		apiVersion, resource, _ := strings.Cut(name, " ")
		if kind, ok := schemas.Resource(apiVersion, resource); !ok || kind.Name != want || kind.APIVersion != apiVersion || kind.Schema == nil {
			t.Errorf("%s: got %v", name, kind)
		}
	}
	if err := schemas.kubernetes.Err(); err != nil {
		t.Error(err)
	}
}

// What others serve in groups of their own is not known.
func TestWhatOfKubernetesIsMeant(t *testing.T) {
	for argument, want := range map[string]string{
		"apps/v1 deployments": "apps/v1 deployments", "apps/v1 deployment": "apps/v1 deployments", "v1 Deployment": "apps/v1 deployments", "v1 pods": "v1 pods",
		"v1 websites": "", "serving.knative.dev/v1 services": "", "batch/v1beta1 cronjobs": "",
		"v1 hpa": "", "v1 horizontalpodautoscaler": "autoscaling/v1 horizontalpodautoscalers, autoscaling/v2 horizontalpodautoscalers",
	} {
		version, name, _ := strings.Cut(argument, " ")
		if got := strings.Join(served(version, name), ", "); got != want {
			t.Errorf("%s: got %q, want %q", argument, got, want)
		}
	}
}

// Editors jump to the line.
func TestFindingsHaveTheLineOfTheField(t *testing.T) {
	const text = "# one\n---\n# two\nspec:\n  childResources:\n  - resource: pods\n  - resource: jobs\n    updateStrategy:\n      method: Inplace\n  workers: 1\n  workers: 2\n" +
		"metadata:\n  annotations:\n    a.b/c: x\n"
	for message, want := range map[string]int{
		`spec.childResources[1].updateStrategy.method: Unsupported value: "Inplace"`: 9,
		"spec.childResources[1]: Kubernetes does not serve jobs":                     7,
		`unknown field "spec.childResources[0].updateStrategy"`:                      6,
		`duplicate field "spec.workers"`:                                             11,
		"spec.hooks: Required value":                                                 4,
		"metadata.annotations[a.b/c]: Invalid value":                                 14,
		"unknown kind Website: use one of CompositeController":                       4,
		"error converting YAML to JSON: yaml: line 5: did not find":                  7,
		"spec.childResources[7]: Invalid value":                                      5,
	} {
		findings := []finding{{File: "a.yaml", Document: 2, Message: message}}
		locate([]source{{"b.yaml", nil}, {"a.yaml", []byte(strings.TrimSuffix(text, "\n"))}}, findings)
		if findings[0].Line != want {
			t.Errorf("%s: got line %d, want %d", message, findings[0].Line, want)
		}
	}
}
