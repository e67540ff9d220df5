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

// Command kubernetes-kinds writes the schemas of Kubernetes' own kinds, of their stable versions, without descriptions, for the plugin to
// check inline hooks offline. It reads the folder of the module k8s.io/kubernetes:
//
//	go run ./hack/kubernetes-kinds FOLDER > cmd/kubectl-metacontroller/lint/kubernetes.json
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const groupVersionKind = "x-kubernetes-group-version-kind"

// kept are the extensions that say something of values.
var kept = []string{groupVersionKind, "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"}

// stable are the documents of stable versions.
var stable = regexp.MustCompile(`__v\d+_openapi\.json$`)

// document is what is read of a document of OpenAPI, version 3.
type document struct {
	Paths      map[string]map[string]any `json:"paths"`
	Components struct {
		Schemas map[string]map[string]any `json:"schemas"`
	} `json:"components"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Usage: kubernetes-kinds FOLDER-OF-K8S.IO/KUBERNETES")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes-kinds:", err)
		os.Exit(1)
	}
}

func run(folder string, out io.Writer) error {
	files, err := filepath.Glob(filepath.Join(folder, "api", "openapi-spec", "v3", "*_openapi.json"))
	if err != nil {
		return err
	}
	resources, schemas := map[string]string{}, map[string]map[string]any{}
	for _, file := range files {
		if !stable.MatchString(file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var d document
		if err := json.Unmarshal(text, &d); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		add(d, resources, schemas)
	}
	return write(out, resources, schemas)
}

// add adds the resources that can be created, and the schemas of their kinds.
func add(d document, resources map[string]string, schemas map[string]map[string]any) {
	for path, operations := range d.Paths {
		post, _ := operations["post"].(map[string]any)
		kind, ok := post[groupVersionKind].(map[string]any)
		steps := strings.Split(path, "/")
		if !ok || strings.Contains(path, "/{name}") {
			continue
		}
		apiVersion := strings.TrimPrefix(fmt.Sprint(kind["group"], "/", kind["version"]), "/")
		resources[apiVersion+" "+steps[len(steps)-1]] = fmt.Sprint(kind["kind"])
		for name, schema := range d.Components.Schemas {
			kinds, _ := schema[groupVersionKind].([]any)
			if len(kinds) == 1 && fmt.Sprint(kinds[0]) == fmt.Sprint(kind) {
				keep(name, d, schemas)
			}
		}
	}
}

// keep keeps a schema, and those that it refers to.
func keep(name string, d document, schemas map[string]map[string]any) {
	schema, ok := d.Components.Schemas[name]
	if _, kept := schemas[name]; kept || !ok {
		return
	}
	schemas[name] = schema
	strip(schema, func(ref string) { keep(ref[strings.LastIndex(ref, "/")+1:], d, schemas) })
}

// strip takes what is for people out of a schema, and what this plugin does not use.
func strip(schema map[string]any, refersTo func(string)) {
	for field, value := range schema {
		if field == "description" || strings.HasPrefix(field, "x-") && !slices.Contains(kept, field) {
			delete(schema, field)
		}
		switch v := value.(type) {
		case string:
			if field == "$ref" {
				refersTo(v)
			}
		case map[string]any:
			if field != "properties" {
				strip(v, refersTo)
				continue
			}
			for _, property := range v {
				strip(property.(map[string]any), refersTo) //nolint:forcetypeassert // As OpenAPI has it.
			}
		case []any:
			for _, element := range v {
				if element, ok := element.(map[string]any); ok {
					strip(element, refersTo)
				}
			}
		}
	}
}

// write writes one line for each resource and schema, so that changes can be read.
func write(out io.Writer, resources map[string]string, schemas map[string]map[string]any) error {
	if len(resources) == 0 {
		return errors.New("there is no document of a stable version")
	}
	lines := func(names []string, value func(string) any) (string, error) {
		var written []string
		for _, name := range names {
			text, err := json.Marshal(value(name))
			if err != nil {
				return "", err
			}
			written = append(written, fmt.Sprintf("%q: %s", name, text))
		}
		return strings.Join(written, ",\n"), nil
	}
	kinds, err := lines(slices.Sorted(maps.Keys(resources)), func(name string) any { return resources[name] })
	if err != nil {
		return err
	}
	definitions, err := lines(slices.Sorted(maps.Keys(schemas)), func(name string) any { return schemas[name] })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "{\"resources\": {\n%s\n}, \"components\": {\"schemas\": {\n%s\n}}}\n", kinds, definitions)
	return err
}
