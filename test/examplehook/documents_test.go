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

package examplehook

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

var update = flag.Bool("update", false, "write what the controllers of the documents make")

const (
	inlinePage, kroPage, readme = "../../docs/how-to/inline.md", "../../docs/how-to/from-kro.md", "../../README.md"
	// madeFile has what the controllers and recipes of documents make.
	madeFile = "testdata/documents.txt"
)

var (
	fenced = regexp.MustCompile("(?s)\n```(\\w+)\n(.*?\n)```\n")
	// document is one that a command of a page is given.
	document = regexp.MustCompile(`(?s)<<'END'\n(.*?\n)END\n`)
	// row is a template with what it yields.
	row = regexp.MustCompile("(?m)^\\| (`+)(.*?)`+ \\| (?:`(.*)`|nothing.*) \\|$")
	// span is code within a text.
	span = regexp.MustCompile("`[^`\n]+`")
)

// A page is a document with inline hooks.
type page struct {
	// prose is the text without its blocks of code.
	prose string
	// manifests are those that commands apply, and recipes the blocks of YAML by the headings over them.
	manifests []unstructured.Unstructured
	headings  []string
	recipes   map[string][]string
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	text := string(read(t, path))
	p := page{prose: fenced.ReplaceAllString(text, "\n"), recipes: map[string][]string{}}
	for _, section := range strings.Split("\n"+text, "\n#")[1:] {
		heading, _, _ := strings.Cut(strings.TrimLeft(section, "# "), "\n")
		for _, block := range fenced.FindAllStringSubmatch(section, -1) {
			for _, applied := range document.FindAllStringSubmatch(block[2], -1) {
				for manifest := range strings.SplitSeq(applied[1], "---\n") {
					p.manifests = append(p.manifests, object(t, manifest))
				}
			}
			if block[1] == "yaml" {
				p.recipes[heading] = append(p.recipes[heading], block[2])
			}
		}
		if len(p.recipes[heading]) > 0 {
			p.headings = append(p.headings, heading)
		}
	}
	return p
}

func object(t *testing.T, manifest string) unstructured.Unstructured {
	t.Helper()
	var o unstructured.Unstructured
	if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
		t.Fatalf("%v:\n%s", err, manifest)
	}
	return o
}

// kind returns the manifests of a kind.
func (p page) kind(kind string) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(p.manifests), func(o unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// schemas are those of a cluster with the kinds that the page defines.
func (p page) schemas(t *testing.T) *lint.Schemas {
	t.Helper()
	var definitions [][]byte
	for _, crd := range p.kind("CustomResourceDefinition") {
		definitions = append(definitions, encode(t, crd.Object))
	}
	return clusterWith(t, definitions...)
}

// Each template in the tables of the page yields what the page says.
func TestTemplatesOfTheInlinePage(t *testing.T) {
	p := readPage(t, inlinePage)
	schemas := p.schemas(t)
	blog, _ := schemas.Resource("example.com/v1", "blogs")
	blog.Schema.Properties["status"] = spec.Schema{}
	parent := p.kind("Blog")[0]
	rows := row.FindAllStringSubmatch(p.prose, -1)
	for _, found := range rows {
		template, want := found[2], map[string]any{}
		if found[3] != "" {
			want["result"] = value(t, []byte(found[3]))
		}
		t.Run(template, func(t *testing.T) {
			hooks := compile(t, controllerOf(t, map[string]any{"hooks": map[string]any{"sync": map[string]any{
				"inline": map[string]any{"status": map[string]any{"result": template}},
			}}}), schemas)
			var response struct {
				Status map[string]any `json:"status"`
			}
			if err := json.Unmarshal(hooks.call(t, hook.Sync, encode(t, map[string]any{"parent": parent.Object})), &response); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(response.Status, want) {
				t.Errorf("%s yields %s, and the page has %s", template, encode(t, response.Status), found[3])
			}
		})
	}
	if len(rows) < 30 {
		t.Errorf("the page has %d templates in tables", len(rows))
	}
	for _, rest := range span.FindAllString(row.ReplaceAllString(p.prose, ""), -1) {
		if strings.Contains(rest, "${") && rest != "`${`" && rest != "`${…}`" {
			t.Errorf("%s is not run: move it to a table", rest)
		}
	}
}

// controllerOf returns the manifest of a controller with a spec, which is that of the page's parents.
func controllerOf(t *testing.T, s map[string]any) []byte {
	t.Helper()
	kind := "DecoratorController"
	if s["resources"] == nil {
		kind = "CompositeController"
		s["generateSelector"] = true
		s["parentResource"] = map[string]any{"apiVersion": "example.com/v1", "resource": "blogs"}
	}
	return encode(t, map[string]any{"kind": kind, "spec": s})
}

// The controllers of the documents, and the recipes, make what testdata has.
func TestControllersOfTheDocuments(t *testing.T) {
	var made strings.Builder
	note := func(heading string, hooks compiled, parent unstructured.Unstructured, others []unstructured.Unstructured) {
		w := &world{parent: parent, others: others}
		w.settle(t, hooks)
		fmt.Fprintf(&made, "## %s\n%s\n", heading, w.log.String())
	}
	for _, document := range [][2]string{{readme, "HelloWorld"}, {kroPage, "Application"}, {inlinePage, "Blog"}} {
		path, kind := document[0], document[1]
		p := readPage(t, path)
		if path == readme {
			p.manifests = append(p.manifests, object(t, string(read(t, examplesFolder+"/hello-world/crd.yaml"))))
		}
		controllers := p.kind("CompositeController")
		if len(controllers) != 1 {
			t.Errorf("%s has %d controllers", path, len(controllers))
		}
		for _, controller := range controllers {
			note(kind, compile(t, encode(t, controller.Object), p.schemas(t)), p.kind(kind)[0], nil)
		}
	}
	recipes := recipes(t, note)
	if recipes < 10 {
		t.Errorf("the page has %d recipes", recipes)
	}
	if *update {
		if err := os.WriteFile(madeFile, []byte(made.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if string(read(t, madeFile)) != made.String() {
		t.Errorf("%s is stale: run this test with -update. The documents make\n%s", madeFile, made.String())
	}
}

// recipes notes what each block of YAML of the page makes, and returns how many of them are recipes.
func recipes(t *testing.T, note func(heading string, hooks compiled, parent unstructured.Unstructured, others []unstructured.Unstructured)) int {
	t.Helper()
	p := readPage(t, inlinePage)
	schemas := p.schemas(t)
	parent := p.kind("Blog")[0]
	recipes := 0
	for _, heading := range p.headings {
		var others []unstructured.Unstructured
		for _, block := range p.recipes[heading] {
			content := object(t, block).Object
			switch {
			case content["kind"] != nil:
				others = append(others, unstructured.Unstructured{Object: content})
			case content["forEach"] != nil:
				content["template"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "${domain}-${i}"}}
				hooks := compile(t, controllerOf(t, map[string]any{
					"childResources": []any{map[string]any{"apiVersion": "v1", "resource": "configmaps"}},
					"hooks":          map[string]any{"sync": map[string]any{"inline": map[string]any{"children": []any{content}}}},
				}), schemas)
				note(heading, hooks, parent, nil)
			case content["resources"] != nil:
				recipes++
				note(heading, compile(t, controllerOf(t, content), schemas), object(t, deployment), others)
			default:
				recipes++
				note(heading, compile(t, controllerOf(t, content), schemas), parent, others)
			}
		}
	}
	return recipes
}

// deployment is what the recipe of a DecoratorController decorates.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: main, image: nginx, ports: [{containerPort: 8080}]}]}}
`

// A world is a cluster with one parent and its children, in which everything succeeds at once.
type world struct {
	parent   unstructured.Unstructured
	others   []unstructured.Unstructured
	children []unstructured.Unstructured
	// log has what was made, step by step.
	log strings.Builder
}

// settle calls the sync hook until it wants what there is, and then the finalize hook until the parent is finalized.
func (w *world) settle(t *testing.T, hooks compiled) {
	t.Helper()
	const most = 6
	if program := hooks.programs[hook.Customize]; program != nil {
		fmt.Fprintf(&w.log, "customize: %s\n", hooks.call(t, hook.Customize, w.request(t, hooks)))
	}
	before := ""
	for range most {
		response := w.step(t, hooks, hook.Sync)
		if response == before {
			break
		}
		fmt.Fprintf(&w.log, "sync: %s\n", response)
		before = response
	}
	for range most {
		if hooks.programs[hook.Finalize] == nil {
			return
		}
		response := w.step(t, hooks, hook.Finalize)
		fmt.Fprintf(&w.log, "finalize: %s\n", response)
		if strings.Contains(response, `"finalized":true`) {
			return
		}
	}
	t.Errorf("the parent is not finalized:\n%s", w.log.String())
}

// step calls a hook, and makes its children.
func (w *world) step(t *testing.T, hooks compiled, name hook.Name) string {
	t.Helper()
	body := hooks.call(t, name, w.request(t, hooks))
	var response struct {
		Children    []map[string]any `json:"children"`
		Attachments []map[string]any `json:"attachments"`
	}
	if err := json.Unmarshal(body, &response); err != nil {
		t.Fatal(err)
	}
	w.children = nil
	for _, desired := range slices.Concat(response.Children, response.Attachments) {
		child := unstructured.Unstructured{Object: desired}
		if child.GetNamespace() == "" {
			child.SetNamespace(w.parent.GetNamespace())
		}
		succeed(child.Object, child.GetKind())
		w.children = append(w.children, child)
	}
	return string(body)
}

// succeed gives an object the status that it has soon.
func succeed(o map[string]any, kind string) {
	switch kind {
	case "Deployment":
		o["status"] = map[string]any{"availableReplicas": 1, "conditions": []any{map[string]any{
			"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability.",
			"lastTransitionTime": "2026-01-02T03:04:05Z",
		}}}
	case "Job":
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
	case "Pod":
		o["status"] = map[string]any{"phase": "Running"}
	}
}

// request is the request to a hook in version v2.
func (w *world) request(t *testing.T, hooks compiled) []byte {
	t.Helper()
	group := func(objects []unstructured.Unstructured) map[string]map[string]any {
		byKind := map[string]map[string]any{}
		for _, o := range objects {
			key := o.GetKind() + "." + o.GetAPIVersion()
			if byKind[key] == nil {
				byKind[key] = map[string]any{}
			}
			byKind[key][o.GetNamespace()+"/"+o.GetName()] = o.Object
		}
		return byKind
	}
	parent, children := "parent", "children"
	if hooks.decorator {
		parent, children = "object", "attachments"
	}
	body := encode(t, map[string]any{
		"controller": map[string]any{}, parent: w.parent.Object, children: group(w.children), "related": group(w.others),
	})
	if _, err := inline.ParseRequest(body); err != nil {
		t.Fatal(err)
	}
	return body
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
