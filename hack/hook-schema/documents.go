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
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
)

// A body is one kind of request or response.
type body struct {
	// file is the name of its document, without version.
	file     string
	goType   reflect.Type
	response bool
}

// A pair is a request and the response that belongs to it.
type pair struct {
	// name of the pair in the OpenAPI document.
	name              string
	hooks             []hook.Name
	request, response body
}

func pairs() []pair {
	return []pair{
		{
			"composite",
			[]hook.Name{hook.Sync, hook.Finalize},
			body{"composite-request", reflect.TypeFor[hook.CompositeRequest](), false},
			body{"composite-response", reflect.TypeFor[hook.CompositeResponse](), true},
		},
		{
			"decorator",
			[]hook.Name{hook.Sync, hook.Finalize},
			body{"decorator-request", reflect.TypeFor[hook.DecoratorRequest](), false},
			body{"decorator-response", reflect.TypeFor[hook.DecoratorResponse](), true},
		},
		{
			"any",
			[]hook.Name{hook.Customize},
			body{"customize-request", reflect.TypeFor[hook.CustomizeRequest](), false},
			body{"customize-response", reflect.TypeFor[hook.CustomizeResponse](), true},
		},
	}
}

func versions() []v1alpha1.HookVersion {
	return []v1alpha1.HookVersion{v1alpha1.HookVersionV1, v1alpha1.HookVersionV2}
}

// strict tells whether responses of a version are read strictly unless the webhook says otherwise.
func strict(version v1alpha1.HookVersion) bool { return version == v1alpha1.HookVersionV2 }

// generate returns the documents by file name.
func generate(source string) (map[string][]byte, error) {
	words, err := readComments(source)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, p := range pairs() {
		// Requests of both versions have the same schema: what differs are the keys of maps.
		if files[p.request.file+".json"], err = jsonSchema(words, p.request, false); err != nil {
			return nil, err
		}
		for _, version := range versions() {
			if files[p.response.file+"."+string(version)+".json"], err = jsonSchema(words, p.response, strict(version)); err != nil {
				return nil, err
			}
		}
	}
	files["openapi.json"], err = openAPI(words)
	return files, err
}

// jsonSchema returns the document of one body. Closed ones do not allow unknown fields.
func jsonSchema(words comments, b body, closed bool) ([]byte, error) {
	r := newReflector(words, "#/$defs/", "", closed, b.response)
	document, err := r.root(b.goType)
	if err != nil {
		return nil, err
	}
	document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	document["title"] = b.goType.Name()
	document["$defs"] = r.definitions
	return encode(document)
}

// openAPI returns the document of all hooks. A hook is called by the server, which OpenAPI calls a webhook.
func openAPI(words comments) ([]byte, error) {
	schemas := map[string]any{}
	add := func(b body, suffix string, closed bool) error {
		r := newReflector(words, "#/components/schemas/", suffix, closed, b.response)
		root, err := r.root(b.goType)
		if err != nil {
			return err
		}
		maps.Copy(schemas, r.definitions)
		schemas[b.goType.Name()+suffix] = root
		return nil
	}
	webhooks := map[string]any{}
	var names []string
	for _, version := range versions() {
		names = append(names, string(version))
		suffix := strings.ToUpper(string(version))
		for _, p := range pairs() {
			if err := add(p.request, "", false); err != nil {
				return nil, err
			}
			if err := add(p.response, suffix, strict(version)); err != nil {
				return nil, err
			}
			for _, name := range p.hooks {
				id := p.name + strings.ToUpper(string(name[:1])) + string(name[1:]) + suffix
				webhooks[id] = operation(id, name, version, p.request.goType.Name(), p.response.goType.Name()+suffix)
			}
		}
	}
	return encode(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title":        "Hook protocol of Metacontroller",
			"version":      strings.Join(names, ", "),
			keyDescription: "What the server posts to the webhooks of a CompositeController or DecoratorController, and what they response.",
			"license":      map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"webhooks":   webhooks,
		"components": map[string]any{"schemas": schemas},
	})
}

func operation(id string, name hook.Name, version v1alpha1.HookVersion, request, response string) map[string]any {
	content := func(schema string) map[string]any {
		return map[string]any{"application/json": map[string]any{"schema": map[string]any{keyRef: "#/components/schemas/" + schema}}}
	}
	text := func(description string) map[string]any { return map[string]any{keyDescription: description} }
	return map[string]any{"post": map[string]any{
		"operationId": id,
		"summary":     "The " + string(name) + " hook in version " + string(version) + ".",
		"requestBody": map[string]any{"required": true, "content": content(request)},
		"responses": map[string]any{
			"200": map[string]any{
				keyDescription: "The response. With etag enabled, a header ETag makes the server remember it.",
				"content":      content(response),
			},
			"304": text("With etag enabled, and when the request has If-None-Match: the response is the one of that tag."),
			"412": text("The same as 304."),
			"429": text("The server calls again later: after the time in the header Retry-After, or else with back-off."),
			"503": text("With the header Retry-After the same as 429; without it an error as any other status."),
		},
	}}
}

func encode(document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(document)
	return b.Bytes(), err
}
