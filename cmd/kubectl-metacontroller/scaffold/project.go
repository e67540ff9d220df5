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

package scaffold

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/artifacts"
)

//go:embed templates
var templates embed.FS

// What a parent has that does not say.
const (
	defaultImage    = "nginx:1.29"
	defaultReplicas = 1
	exampleName     = "example"
)

// language is what init knows of a programming language.
type language struct {
	Name string
	// Run and Test are commands, in the folder of the project.
	Run, Test string
	// Hook is the file in which the hook is, and Main the one that serves it.
	Hook, Main string
	syntax     syntax
	// module is the folder of package artifacts that is copied, and Module where it is copied to.
	module, Module string
}

func languages() map[string]language {
	return map[string]language{
		"python": {
			Name: "python", Run: "python3 hook.py", Test: "python3 -m unittest", Hook: "hook.py", Main: "hook.py",
			syntax: syntax{object: "", list: "[", indent: "    "}, module: "sdk/python/metacontroller_hook", Module: "metacontroller_hook",
		},
		"javascript": {
			Name: "javascript", Run: "node main.js", Test: "node --test", Hook: "hook.js", Main: "main.js",
			syntax: syntax{object: "", list: "[", indent: "  ", bare: true}, module: "sdk/javascript", Module: "metacontroller-hook",
		},
		"go": {
			Name: "go", Run: "go run .", Test: "go test ./...", Hook: "hook.go", Main: "main.go",
			syntax: syntax{object: "map[string]any", list: "[]any{", indent: "\t"}, module: "sdk/go/metacontroller", Module: "metacontroller",
		},
	}
}

// inlineLanguage is that of hooks in the controller itself.
func inlineLanguage() language {
	return language{Name: "inline", Test: "kubectl metacontroller replay testdata -f .", Hook: "controller.yaml"}
}

// child is a kind of children.
type child struct {
	resource

	Method string
	// State is the field of its status that the hook reports, if there is one.
	State   field
	desired map[string]any
}

// Type is the kind of the child as requests name it.
func (c child) Type() string { return c.Kind + "." + c.APIVersion() }

// Variable is the name of a variable for an observed child.
func (c child) Variable() string { return strings.ToLower(c.Kind[:1]) + c.Kind[1:] }

// Function is the name of the function that returns a child, in languages that write such names.
func (c child) Function() string { return "desired" + c.Kind }

// SnakeFunction is the same in Python.
func (c child) SnakeFunction() string { return "desired_" + c.Singular() }

// Uses tells whether the desired child has a value of the parent: image, replicas or selector.
func (c child) Uses(name string) bool {
	return mentions(c.desired, variable(name)) || name == string(varSelector) && mentions(c.desired, varSelected)
}

// project is what the templates are filled with.
type project struct {
	Name      string
	Parent    resource
	Children  []child
	Fields    []field
	Decorator bool
	Port      int
	Language  language
	// Folder is where it was written.
	Folder string
}

// Path is that of the folder for a shell, wherever a command goes from there.
func (p *project) Path() string {
	if filepath.IsAbs(p.Folder) {
		return p.Folder
	}
	return "$PWD/" + filepath.ToSlash(p.Folder)
}

// complete makes whole objects of the desired state of the children. What a child of a decorator selects are the Pods of the parent, if it has
// some, and else those with its own name.
func (p *project) complete() {
	selects := p.Decorator && workload(p.Parent)
	for i, c := range p.Children {
		object := map[string]any{"apiVersion": c.APIVersion(), "kind": c.Kind, "metadata": map[string]any{"name": varName}}
		maps.Copy(object, c.desired)
		if !selects {
			object = evaluate(object, ownSelector()).(map[string]any) //nolint:forcetypeassert // It was made above.
		}
		p.Children[i].desired = object
	}
	if p.Decorator {
		return
	}
	for _, f := range usual() {
		others := slices.DeleteFunc(slices.Clone(p.Fields), func(given field) bool { return given.Name == f.Name })
		if p.Uses(f.Name) || len(others) < len(p.Fields) {
			others = append(others, f)
			p.Fields = others
		}
	}
}

// Uses tells whether a child has a value of the parent.
func (p *project) Uses(name string) bool {
	return slices.ContainsFunc(p.Children, func(c child) bool { return c.Uses(name) })
}

// Observed are the children whose state the status has: the first one that has a state.
func (p *project) Observed() []child {
	i := slices.IndexFunc(p.Children, func(c child) bool { return c.State.Name != "" })
	if p.Decorator || i < 0 {
		return nil
	}
	return p.Children[i : i+1]
}

// Desired writes a child in the language of the project, indented by so many steps.
func (p *project) Desired(c child, steps int) string {
	return p.Language.syntax.literal(c.desired, strings.Repeat(p.Language.syntax.indent, steps))
}

// Hooks are the hooks that the controller has.
func (p *project) Hooks() []string {
	if p.Decorator {
		return []string{"sync", "finalize"}
	}
	return []string{"sync"}
}

// Image and Replicas are what a parent has that does not say.
func (*project) Image() string { return defaultImage }

// Replicas is the other one.
func (*project) Replicas() int { return defaultReplicas }

// TrialPort is where a changed hook listens, beside the one that runs.
func (p *project) TrialPort() int {
	if p.Port == 65535 {
		return p.Port - 1
	}
	return p.Port + 1
}

// Template writes a child as the template of an inline hook.
func (p *project) Template(c child) (string, error) {
	parent := "parent"
	values := map[variable]any{varName: "${parent.metadata.name}", varImage: "${parent.spec.image}", varReplicas: "${parent.spec.replicas}"}
	if p.Decorator {
		parent = "object"
		values = map[variable]any{varName: "${object.metadata.name}-" + p.Name, varImage: defaultImage, varReplicas: defaultReplicas}
	}
	values[varSelector], values[varSelected] = "${"+parent+".spec.selector}", "${"+parent+".spec.selector.matchLabels}"
	text, err := yaml.Marshal(evaluate(c.desired, values))
	return strings.TrimRight(strings.ReplaceAll("\n"+string(text), "\n", "\n            "), "\n ")[1:], err
}

// inlineFiles returns the files of a project with inline hooks, without the recorded requests.
func (p *project) inlineFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{"inline/README.md", "all/example.yaml", "all/manifests/base/crd.yaml", "all/manifests/base/controller.yaml"} {
		text, err := p.render("templates/" + name + ".tmpl")
		if err != nil {
			return nil, fmt.Errorf("filling the templates: %w", err)
		}
		if len(bytes.TrimSpace(text)) > 0 { // A file that is empty for this project is not part of it.
			files[path.Base(name)] = text
		}
	}
	return files, nil
}

// files returns the files of the project by path.
func (p *project) files() (map[string][]byte, error) {
	if p.Language.Name == inlineLanguage().Name {
		files, err := p.inlineFiles()
		if err != nil {
			return nil, err
		}
		return files, p.record(files)
	}
	files := map[string][]byte{}
	for _, folder := range []string{"templates/all", "templates/" + p.Language.Name} {
		err := fs.WalkDir(templates, folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := p.render(name)
			if err != nil {
				return err
			}
			// A file that is empty for this project is not part of it.
			if len(bytes.TrimSpace(text)) > 0 {
				files[strings.TrimSuffix(strings.TrimPrefix(name, folder+"/"), ".tmpl")] = text
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("filling the templates: %w", err)
		}
	}
	entries, err := fs.ReadDir(artifacts.SDK, p.Language.module)
	if err != nil {
		return nil, fmt.Errorf("copying the module for hooks: %w", err)
	}
	for _, entry := range entries {
		text, err := fs.ReadFile(artifacts.SDK, path.Join(p.Language.module, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("copying the module for hooks: %w", err)
		}
		files[path.Join(p.Language.Module, entry.Name())] = text
	}
	return files, p.record(files)
}

// render fills a template.
func (p *project) render(name string) ([]byte, error) {
	text, err := fs.ReadFile(templates, name)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(path.Base(name)).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, p); err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".go.tmpl") {
		return format.Source(b.Bytes())
	}
	return b.Bytes(), nil
}

// record adds a request for each hook as the server would send it, and the response of the hook.
func (p *project) record(files map[string][]byte) error {
	name, values := exampleName, map[variable]any{varImage: "nginx:1.28", varReplicas: 2}
	metadata := map[string]any{"name": exampleName, "namespace": "default", "uid": "5d3c2f6e-0000-4000-8000-000000000000", "generation": 1}
	parent := map[string]any{"apiVersion": p.Parent.APIVersion(), "kind": p.Parent.Kind, "metadata": metadata}
	labels := map[string]any{"app": exampleName}
	values[varSelector], values[varSelected] = map[string]any{"matchLabels": labels}, labels
	kind, parentField, childrenField := "CompositeController", "parent", "children"
	if p.Decorator {
		kind, parentField, childrenField = "DecoratorController", "object", "attachments"
		name, values[varImage], values[varReplicas] = exampleName+"-"+p.Name, defaultImage, defaultReplicas
		metadata["annotations"] = map[string]any{p.Name: "enabled"}
		if p.Uses(string(varSelector)) {
			parent["spec"] = map[string]any{"selector": values[varSelector]}
		}
	} else {
		spec := map[string]any{}
		for _, f := range p.Fields {
			spec[f.Name] = f.Value
		}
		parent["spec"] = spec
	}
	values[varName] = name
	desired, observed, gone, status := []any{}, map[string]any{}, map[string]any{}, map[string]any{"children": len(p.Children)}
	for _, c := range p.Children {
		object := evaluate(c.desired, values)
		desired = append(desired, object)
		seen := maps.Clone(object.(map[string]any)) //nolint:forcetypeassert // The desired state is an object.
		seen["metadata"] = map[string]any{"name": name, "namespace": "default"}
		if c.State.Name != "" {
			seen["status"] = map[string]any{c.State.Name: c.State.Value}
		}
		observed[c.Type()], gone[c.Type()] = map[string]any{"default/" + name: seen}, map[string]any{}
	}
	for _, c := range p.Observed() {
		status[c.State.Name] = c.State.Value
	}
	responses := map[string]map[string]any{"sync": {childrenField: desired}, "finalize": {childrenField: []any{}, "finalized": true}}
	if !p.Decorator {
		responses["sync"]["status"] = status
	}
	for _, hook := range p.Hooks() {
		if hook == "finalize" {
			observed = gone // It is called until nothing is left.
		}
		request := map[string]any{
			"controller": map[string]any{"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": p.Name}},
			parentField:  parent, childrenField: observed, "related": map[string]any{}, "finalizing": hook == "finalize",
		}
		for file, value := range map[string]any{"request": request, "response": responses[hook]} {
			text, err := json.MarshalIndent(value, "", "  ")
			if err != nil {
				return fmt.Errorf("recording a request: %w", err)
			}
			files["testdata/"+hook+"-example."+file+".json"] = append(text, '\n')
		}
	}
	return nil
}
