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

// Command definitions writes artifacts/definitions: CustomResourceDefinitions of the stored kinds, for clusters that serve them without an
// aggregated API server. Schemas are those of the OpenAPI document, limits those that the types declare for validation, and rules between fields
// are here.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
)

const (
	typesFolder  = "pkg/apis/metacontroller/v1alpha1"
	outputFolder = "artifacts/definitions"
	models       = "io.k8s.metacontroller.v1alpha1."
)

// typeField is the field of a schema with its type, which is object for most.
const typeField, object = "type", "object"

// A node is a part of a document, as JSON decodes it.
type node = map[string]any

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "writing definitions:", err)
		os.Exit(1)
	}
}

func run() error {
	limits, err := readLimits(typesFolder)
	if err != nil {
		return err
	}
	s := &schemas{
		limits:      limits,
		definitions: openapi.GetOpenAPIDefinitions(spec.MustCreateRef),
	}
	for _, k := range kinds() {
		definition, err := s.definition(k)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		text, err := yaml.Marshal(definition)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		file := filepath.Join(outputFolder, v1alpha1.GroupName+"_"+k.plural+".yaml")
		header := "# Written by hack/definitions (make generate).\n"
		if err := os.WriteFile(file, append([]byte(header), text...), 0o644); err != nil { //nolint:gosec // It is a file of the repository.
			return err
		}
	}
	return nil
}

// A kind is what its definition has beside the schema.
type kind struct {
	name, plural, singular, scope string
	short                         []string
	columns                       []node
}

// kinds have the columns of `kubectl get` that a path can say.
func kinds() []kind {
	condition := func(field string) string { return `.status.conditions[?(@.type=="Ready")].` + field }
	controllers := func(own ...node) []node {
		return append(own,
			column("Ready", "string", condition("status"), "Whether the controller runs: status of its condition Ready."),
			column("Reason", "string", condition("reason"), "Why the controller does or does not run: reason of its condition Ready."),
			column("Synced", "integer", ".status.counters.synced", "How many objects the controller has synced well when it last tried."),
			column("Failing", "integer", ".status.counters.failing", "How many objects could not be synced when the controller last tried."),
			column("Age", "date", ".metadata.creationTimestamp", "Time since the object was created."),
			wide(column("Service Account", "string", ".spec.serviceAccountRef.name", "Service account as which the controller acts.")),
			wide(column("Message", "string", condition("message"), "What the condition Ready says.")),
		)
	}
	return []kind{
		{
			name: v1alpha1.KindComposite, plural: "compositecontrollers", singular: "compositecontroller", scope: "Cluster", short: []string{"cc", "cctl"},
			columns: controllers(column("Parent", "string", ".spec.parentResource.resource", "Resource whose objects the controller handles.")),
		},
		{
			name: v1alpha1.KindDecorator, plural: "decoratorcontrollers", singular: "decoratorcontroller", scope: "Cluster", short: []string{"dc", "dec", "decorators"},
			columns: controllers(column("Resource", "string", ".spec.resources[0].resource", "First resource whose objects are decorated.")),
		},
		{
			name: "ControllerRevision", plural: "controllerrevisions", singular: "controllerrevision", scope: "Namespaced",
			columns: []node{
				column("Parent", "string", ".metadata.ownerReferences[?(@.controller==true)].name", "Object whose revision this is."),
				column("Age", "date", ".metadata.creationTimestamp", "Time since the object was created."),
			},
		},
	}
}

func column(name, of, path, description string) node {
	return node{"name": name, typeField: of, "jsonPath": path, "description": description}
}

// wide has a column be shown by kubectl get -o wide only.
func wide(c node) node {
	c["priority"] = 1
	return c
}

// definition makes the CustomResourceDefinition of a kind.
func (s *schemas) definition(k kind) (node, error) {
	schema, err := s.of(models + k.name)
	if err != nil {
		return nil, err
	}
	properties, _ := schema["properties"].(node)
	properties["metadata"] = node{typeField: object}
	version := node{
		"name": v1alpha1.SchemeGroupVersion.Version, "served": true, "storage": true,
		"additionalPrinterColumns": k.columns, "schema": node{"openAPIV3Schema": schema},
	}
	if _, has := properties["status"]; has {
		version["subresources"] = node{"status": node{}}
	}
	names := node{
		"kind": k.name, "listKind": k.name + "List", "plural": k.plural, "singular": k.singular, "categories": []string{"metacontroller"},
	}
	if len(k.short) > 0 {
		names["shortNames"] = k.short
	}
	return node{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": node{
			"name": k.plural + "." + v1alpha1.GroupName,
			// The group is one of those that Kubernetes protects; Metacontroller's definitions say the same.
			"annotations": node{"api-approved.kubernetes.io": "unapproved, request not yet submitted"},
		},
		"spec": node{"group": v1alpha1.GroupName, "scope": k.scope, "names": names, "versions": []node{version}},
	}, nil
}

// decoded returns a schema as JSON decodes it.
func decoded(definition common.OpenAPIDefinition) (node, error) {
	text, err := json.Marshal(definition.Schema)
	if err != nil {
		return nil, err
	}
	var schema node
	err = json.Unmarshal(text, &schema)
	return schema, err
}
