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
	"slices"
	"strings"
	"text/template"

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
	// Hook is the file in which the hook is.
	Hook   string
	syntax syntax
	// module is the folder of package artifacts that is copied, and Module where it is copied to.
	module, Module string
}

func languages() map[string]language {
	return map[string]language{
		"python": {
			Name: "python", Run: "python3 hook.py", Test: "python3 -m unittest", Hook: "hook.py",
			syntax: syntax{object: "", list: "[", indent: "    "}, module: "sdk/python/metacontroller_hook", Module: "metacontroller_hook",
		},
		"javascript": {
			Name: "javascript", Run: "node main.js", Test: "node --test", Hook: "hook.js",
			syntax: syntax{object: "", list: "[", indent: "  ", bare: true}, module: "sdk/javascript", Module: "metacontroller-hook",
		},
		"go": {
			Name: "go", Run: "go run .", Test: "go test ./...", Hook: "hook.go",
			syntax: syntax{object: "map[string]any", list: "[]any{", indent: "\t"}, module: "sdk/go/metacontroller", Module: "metacontroller",
		},
	}
}

// child is a kind of children.
type child struct {
	resource

	Method  string
	desired map[string]any
}

// Function is the name of the function that returns a child, in languages that write such names.
func (c child) Function() string { return "desired" + c.Kind }

// SnakeFunction is the same in Python.
func (c child) SnakeFunction() string { return "desired_" + c.Singular() }

// whole returns the child as the hook desires it.
func (c child) whole() map[string]any {
	object := map[string]any{"apiVersion": c.APIVersion(), "kind": c.Kind, "metadata": map[string]any{"name": varName}}
	maps.Copy(object, c.desired)
	return object
}

// selects tells whether the child is for Pods.
func (c child) selects() bool {
	return mentions(c.desired, varSelector) || mentions(c.desired, varSelected)
}

// project is what the templates are filled with.
type project struct {
	Name      string
	Parent    resource
	Children  []child
	Decorator bool
	Port      int
	Language  language
	// Folder is where it was written.
	Folder string
}

// Selects tells whether children are for the Pods of the parent, whose selector the hook then reads.
func (p *project) Selects() bool {
	return p.Decorator && workload(p.Parent) && slices.ContainsFunc(p.Children, child.selects)
}

// desired returns a child as the hook desires it, with the variables that the hook has.
func (p *project) desired(c child) any {
	if p.Selects() {
		return c.whole()
	}
	return evaluate(c.whole(), ownSelector())
}

// Desired writes a child in the language of the project, indented by so many steps.
func (p *project) Desired(c child, steps int) string {
	return p.Language.syntax.literal(p.desired(c), strings.Repeat(p.Language.syntax.indent, steps))
}

// Image and Replicas are what a parent has that does not say.
func (*project) Image() string { return defaultImage }

// TrialPort is where a changed hook listens, beside the one that runs.
func (p *project) TrialPort() int {
	if p.Port == 65535 {
		return p.Port - 1
	}
	return p.Port + 1
}

// Replicas is the other one.
func (*project) Replicas() int { return defaultReplicas }

// files returns the files of the project by path.
func (p *project) files() (map[string][]byte, error) {
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

// record adds a request as the server would send it, and the response of the hook.
func (p *project) record(files map[string][]byte) error {
	name, image, replicas := exampleName, "nginx:1.28", 2
	object := map[string]any{
		"apiVersion": p.Parent.APIVersion(), "kind": p.Parent.Kind,
		"metadata": map[string]any{"name": exampleName, "namespace": "default", "uid": "5d3c2f6e-0000-4000-8000-000000000000", "generation": 1},
	}
	observed := map[string]any{}
	children := []any{}
	labels := map[string]any{"app": exampleName}
	selector := map[string]any{"matchLabels": labels}
	if p.Decorator {
		name, image, replicas = exampleName+"-"+p.Name, defaultImage, defaultReplicas
		object["metadata"].(map[string]any)["annotations"] = map[string]any{p.Name: "enabled"} //nolint:forcetypeassert // It was made above.
		if p.Selects() {
			object["spec"] = map[string]any{"selector": selector}
		}
	} else {
		object["spec"] = map[string]any{"image": image, "replicas": replicas}
	}
	for _, c := range p.Children {
		observed[c.Kind+"."+c.APIVersion()] = map[string]any{}
		children = append(children, evaluate(p.desired(c), map[variable]any{
			varName: name, varImage: image, varReplicas: replicas, varSelector: selector, varSelected: labels,
		}))
	}
	controller := map[string]any{"apiVersion": "metacontroller.k8s.io/v1alpha1", "metadata": map[string]any{"name": p.Name}}
	request := map[string]any{"controller": controller, "related": map[string]any{}, "finalizing": false}
	response := map[string]any{}
	if p.Decorator {
		controller["kind"] = "DecoratorController"
		request["object"], request["attachments"] = object, observed
		response["attachments"] = children
	} else {
		controller["kind"] = "CompositeController"
		request["parent"], request["children"] = object, observed
		response["children"], response["status"] = children, map[string]any{"children": 0}
	}
	for file, value := range map[string]any{"sync-example.request.json": request, "sync-example.response.json": response} {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("recording a request: %w", err)
		}
		files["testdata/"+file] = append(text, '\n')
	}
	return nil
}
