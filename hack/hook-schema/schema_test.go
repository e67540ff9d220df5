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

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/wire"
)

var (
	source    = filepath.Join("..", "..", "pkg", "hook")
	published = filepath.Join("..", "..", "docs", "reference", "hook-schema")
	requests  = filepath.Join(source, "wire", "testdata", "requests")
)

func load(t *testing.T, file string) any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return value
}

func loadSchema(t *testing.T, name string) *validator {
	t.Helper()
	root, ok := load(t, filepath.Join(published, name)).(map[string]any)
	if !ok {
		t.Fatalf("%s is no object", name)
	}
	return &validator{document: root, root: root}
}

func TestPublishedDocumentsAreCurrent(t *testing.T) {
	want, err := generate(source)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(published, name))
		if err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(strings.Split(string(content), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s is out of date; run go run ./hack/hook-schema (-want +got):\n%s", name, diff)
		}
	}
	files, err := filepath.Glob(filepath.Join(published, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(want) {
		t.Errorf("%d documents are published, %d are generated", len(files), len(want))
	}
}

func TestWritingReplacesAllDocuments(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	for range 2 {
		if err := run(source, folder); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "stale.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(source, folder); err != nil {
		t.Fatal(err)
	}
	names := func(in string) (found []string) {
		files, err := filepath.Glob(filepath.Join(in, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			found = append(found, filepath.Base(file))
		}
		return found
	}
	if diff := cmp.Diff(names(published), names(folder)); diff != "" {
		t.Errorf("documents (-published +written):\n%s", diff)
	}
	if err := run(t.TempDir(), folder); err == nil {
		t.Error("a folder without Go types gave documents")
	}
}

func TestEveryPropertyIsDescribed(t *testing.T) {
	for _, name := range []string{
		"composite-request.json", "composite-response.v1.json", "decorator-request.json", "decorator-response.v2.json",
		"customize-request.json", "customize-response.v1.json",
	} {
		root := loadSchema(t, name).root
		properties, _ := root["properties"].(map[string]any)
		if len(properties) == 0 {
			t.Errorf("%s has no properties", name)
		}
		for property, s := range properties {
			description, _ := s.(map[string]any)["description"].(string)
			if !strings.HasPrefix(description, property) {
				t.Errorf("%s: the description of %s is %q, want it to begin with the name", name, property, description)
			}
		}
	}
}

// TestExamplesOfTheHookReferenceAreValid holds the requests and responses of the hook reference against the published schemas, which stand
// beside the language of their blocks, and the responses against the server's own decoder.
func TestExamplesOfTheHookReferenceAreValid(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(published, "..", "hooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	strict := wire.ResponseOptions{Strict: true}
	seen := map[string]int{}
	for _, match := range regexp.MustCompile("(?s)```json ([a-z0-9.-]+)\n(.*?)```").FindAllSubmatch(page, -1) {
		schema, body := string(match[1]), match[2]
		seen[schema]++
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			t.Errorf("%s: %v in\n%s", schema, err, body)
			continue
		}
		for _, fault := range loadSchema(t, schema).validate(value) {
			t.Errorf("%s: %s in\n%s", schema, fault, body)
		}
		var err error
		switch schema {
		case "composite-response.v2.json":
			_, err = wire.DecodeComposite(body, strict)
		case "decorator-response.v2.json":
			_, err = wire.DecodeDecorator(body, strict)
		case "customize-response.v2.json":
			_, err = wire.DecodeCustomize(body, strict)
		}
		if err != nil {
			t.Errorf("%s: %v in\n%s", schema, err, body)
		}
	}
	want := map[string]int{
		"composite-request.json": 1, "composite-response.v2.json": 2, "customize-response.v2.json": 1,
		"decorator-request.json": 1, "decorator-response.v2.json": 2,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("bodies in the reference (-want +got):\n%s", diff)
	}
}

// TestRequestsOfTheServerAreValid holds the bodies that package wire builds against the published schemas.
func TestRequestsOfTheServerAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(requests, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 15 {
		t.Fatalf("only %d request bodies", len(files))
	}
	for _, file := range files {
		kind, rest, _ := strings.Cut(filepath.Base(file), "-")
		if strings.HasPrefix(rest, "customize") {
			kind = "customize"
		}
		request := load(t, file)
		if faults := loadSchema(t, kind+"-request.json").validate(request); len(faults) > 0 {
			t.Errorf("%s: %s", filepath.Base(file), strings.Join(faults, "\n"))
		}
		// The same body must fail against the other schemas, or the test shows nothing.
		for _, other := range []string{"composite", "decorator", "customize"} {
			// A composite's body has all that customize asks for, and unknown fields are allowed.
			if other == kind || (kind == "composite" && other == "customize") {
				continue
			}
			if faults := loadSchema(t, other+"-request.json").validate(request); len(faults) == 0 {
				t.Errorf("%s passes as a %s request", filepath.Base(file), other)
			}
		}
	}
}

// TestSchemaAndServerAgreeOnResponses shows that what a schema allows the server accepts, and that what it forbids the server
// rejects, but for what is checked later (a name, an apiVersion).
func TestSchemaAndServerAgreeOnResponses(t *testing.T) {
	decoders := map[string]func([]byte, wire.ResponseOptions) error{
		"composite": func(b []byte, o wire.ResponseOptions) error { return whole(wire.DecodeComposite(b, o)) },
		"decorator": func(b []byte, o wire.ResponseOptions) error { return whole(wire.DecodeDecorator(b, o)) },
		"customize": func(b []byte, o wire.ResponseOptions) error { _, err := wire.DecodeCustomize(b, o); return err },
	}
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":1}}`
	cases := []struct {
		hook, response string
		v1, v2         bool
	}{
		{"composite", `{}`, true, true},
		{"composite", `{"status":null,"children":null,"resyncAfterSeconds":null,"finalized":null}`, true, true},
		{"composite", `{"status":{"a":1},"children":[` + pod + `],"resyncAfterSeconds":0.5,"finalized":true}`, true, true},
		{"composite", `{"unknown":1}`, true, false},
		{"composite", `{"children":[null]}`, false, false},
		{"composite", `{"children":["a"]}`, false, false},
		{"composite", `{"children":{}}`, false, false},
		{"composite", `{"children":[{"apiVersion":"v1","metadata":{"name":"a"}}]}`, false, false},
		{"composite", `{"status":1}`, false, false},
		{"composite", `{"resyncAfterSeconds":"1"}`, false, false},
		{"composite", `{"finalized":"true"}`, false, false},
		{"composite", `[]`, false, false},
		{"composite", `null`, false, false},
		{"decorator", `{"labels":{"a":null,"b":"c"},"annotations":null,"status":{},"attachments":[` + pod + `]}`, true, true},
		{"decorator", `{"children":[]}`, true, false},
		{"decorator", `{"labels":{"a":1}}`, false, false},
		{"decorator", `{"annotations":[]}`, false, false},
		{"customize", `{"relatedResources":null}`, true, true},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"a":"b"}}}]}`, true, true},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","nmaes":[]}]}`, true, false},
		{"customize", `{"relatedResources":[{"resource":"pods"}]}`, false, false},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","names":"a"}]}`, false, false},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"a":1}}}]}`, false, false},
		{"customize", `[{"apiVersion":"v1","resource":"pods"}]`, false, false},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabel":{"a":"b"}}}]}`, true, false},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Exists","value":"b"}]}}]}`, true, false},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":null,"namespaceSelector":null,"namespace":null,"names":null}]}`, true, true},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":null,"matchExpressions":null}}]}`, true, true},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":null}]}}]}`, true, true},
		{"customize", `{"relatedResources":[{"apiVersion":null,"resource":"pods"}]}`, false, false},
		{"customize", `{"relatedResources":[{"apiVersion":"v1","resource":"pods","labelSelector":{"matchExpressions":[{"key":null,"operator":"Exists"}]}}]}`, false, false},
	}
	for _, tc := range cases {
		var response any
		if err := json.Unmarshal([]byte(tc.response), &response); err != nil {
			t.Fatal(err)
		}
		for version, want := range map[string]bool{"v1": tc.v1, "v2": tc.v2} {
			whole := loadSchema(t, "openapi.json")
			whole.root = map[string]any{"$ref": "#/components/schemas/" + strings.ToUpper(tc.hook[:1]) + tc.hook[1:] + "Response" + strings.ToUpper(version)}
			for document, v := range map[string]*validator{"schema": loadSchema(t, tc.hook+"-response."+version+".json"), "OpenAPI document": whole} {
				if faults := v.validate(response); (len(faults) == 0) != want {
					t.Errorf("%s %s %s: the %s finds %q, want valid: %v", tc.hook, version, tc.response, document, faults, want)
				}
			}
			if err := decoders[tc.hook]([]byte(tc.response), wire.ResponseOptions{Strict: version == "v2"}); (err == nil) != want {
				t.Errorf("%s %s %s: the server says %v, want accepted: %v", tc.hook, version, tc.response, err, want)
			}
		}
	}
}

// whole decodes the children of a response, too.
func whole(r wire.Response, err error) error {
	if err == nil {
		_, err = r.Children()
	}
	return err
}

// TestOpenAPIIsWhole follows every reference of the OpenAPI document, and holds a request against it.
func TestOpenAPIIsWhole(t *testing.T) {
	v := loadSchema(t, "openapi.json")
	webhooks, _ := v.root["webhooks"].(map[string]any)
	for _, id := range []string{"compositeSyncV1", "compositeFinalizeV2", "decoratorSyncV2", "decoratorFinalizeV1", "anyCustomizeV1", "anyCustomizeV2"} {
		if webhooks[id] == nil {
			t.Errorf("no webhook %s", id)
		}
	}
	if len(webhooks) != 10 {
		t.Errorf("%d webhooks, want 10", len(webhooks))
	}
	var follow func(value any)
	count := 0
	follow = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if reference, ok := value["$ref"].(string); ok {
				count++
				if _, err := v.resolve(reference); err != nil {
					t.Error(err)
				}
			}
			for _, item := range value {
				follow(item)
			}
		case []any:
			for _, item := range value {
				follow(item)
			}
		}
	}
	follow(v.document)
	if count < 50 {
		t.Errorf("only %d references", count)
	}
	v.root = map[string]any{"$ref": "#/components/schemas/CompositeRequest"}
	if faults := v.validate(load(t, filepath.Join(requests, "composite-sync-v2-namespaced.json"))); len(faults) > 0 {
		t.Error(strings.Join(faults, "\n"))
	}
}

// validator checks values against a JSON Schema. It knows the keywords that the generator writes, and reports all others, so
// that no check is passed over in silence.
type validator struct {
	// document is where references lead to.
	document map[string]any
	root     map[string]any
	faults   []string
}

// annotations are keywords that allow and forbid nothing.
var annotations = []string{"$schema", "$defs", "title", "description", "format", "required", "properties", "additionalProperties"}

func (v *validator) validate(value any) []string {
	v.faults = nil
	v.check("", v.root, value)
	return v.faults
}

func (v *validator) faultf(at, format string, args ...any) {
	v.faults = append(v.faults, "at "+at+"/: "+fmt.Sprintf(format, args...))
}

func (v *validator) resolve(reference string) (map[string]any, error) {
	var current any = v.document
	for part := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		object, _ := current.(map[string]any)
		current = object[part]
	}
	s, ok := current.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the reference %s leads nowhere", reference)
	}
	return s, nil
}

func (v *validator) check(at string, s map[string]any, value any) {
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		switch argument := s[keyword]; keyword {
		case "$ref":
			target, err := v.resolve(argument.(string))
			if err != nil {
				v.faultf(at, "%v", err)
				continue
			}
			v.check(at, target, value)
		case "type":
			types, ok := argument.([]any)
			if !ok {
				types = []any{argument}
			}
			if !slices.ContainsFunc(types, func(t any) bool { return isOfType(value, t.(string)) }) {
				v.faultf(at, "is %T, want %v", value, argument)
			}
		case "minLength":
			if text, ok := value.(string); ok && float64(utf8.RuneCountInString(text)) < argument.(float64) {
				v.faultf(at, "is shorter than %v", argument)
			}
		case "enum":
			if !slices.Contains(argument.([]any), value) {
				v.faultf(at, "is none of %v", argument)
			}
		case "oneOf":
			v.oneOf(at, argument.([]any), value)
		case "items":
			if list, ok := value.([]any); ok {
				for i, item := range list {
					v.check(fmt.Sprintf("%s/%d", at, i), argument.(map[string]any), item)
				}
			}
		default:
			if !slices.Contains(annotations, keyword) {
				v.faultf(at, "the keyword %s is not checked", keyword)
			}
		}
	}
	if object, ok := value.(map[string]any); ok {
		v.object(at, s, object)
	}
}

func (v *validator) oneOf(at string, alternatives []any, value any) {
	matching := 0
	for _, alternative := range alternatives {
		inner := &validator{document: v.document, root: alternative.(map[string]any)}
		if len(inner.validate(value)) == 0 {
			matching++
		}
	}
	if matching != 1 {
		v.faultf(at, "matches %d of %d alternatives, want one", matching, len(alternatives))
	}
}

func (v *validator) object(at string, s, object map[string]any) {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			v.faultf(at, "%s is missing", name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, item := range object {
		if property, ok := properties[name].(map[string]any); ok {
			v.check(at+"/"+name, property, item)
			continue
		}
		switch additional := s["additionalProperties"].(type) {
		case bool:
			if !additional {
				v.faultf(at, "%s is unknown", name)
			}
		case map[string]any:
			v.check(at+"/"+name, additional, item)
		}
	}
}

func isOfType(value any, name string) bool {
	switch value := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || (name == "integer" && value == math.Trunc(value))
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}
