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
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// composite is a CompositeController, and where it is.
type composite struct {
	at         finding
	controller *metacontroller.CompositeController
}

// addDefinition remembers a CustomResourceDefinition. What is wrong with it, another server says.
func (l *linter) addDefinition(encoded []byte) {
	var definition inline.CustomResource
	if json.Unmarshal(encoded, &definition) == nil {
		l.definitions = append(l.definitions, definition)
	}
}

// definitionFindings are what the syncs of controllers would meet in the definitions of their parents, which the server cannot say of the controllers.
func (l *linter) definitionFindings() []finding {
	var findings []finding
	for _, c := range l.controllers {
		parent := c.controller.Spec.ParentResource
		version, err := schema.ParseGroupVersion(parent.APIVersion)
		if err != nil {
			continue
		}
		for i := range l.definitions {
			if d := &l.definitions[i]; d.Metadata.Name == parent.Resource+"."+version.Group {
				for _, message := range compare(d, version.Version, ptr.Deref(c.controller.Spec.GenerateSelector, false)) {
					findings = append(findings, c.at.saying(severityWarning, message))
				}
			}
		}
	}
	return findings
}

// compare says what is missing for a controller that reads a version, and whose selectors are generated or in the parents.
func compare(d *inline.CustomResource, version string, generated bool) []string {
	var served []string
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Served {
			continue
		}
		if served = append(served, v.Name); v.Name != version {
			continue
		}
		var messages []string
		if _, ok := v.Subresources["status"]; !ok {
			messages = append(messages, fmt.Sprintf("spec.parentResource: %s has no subresource status in %s: a write of the status is one of the whole object; "+
				"add subresources: {status: {}} to its CustomResourceDefinition", d.Metadata.Name, version))
		}
		spec, found, _ := unstructured.NestedMap(v.Schema, "openAPIV3Schema", "properties", "spec")
		_, selector, _ := unstructured.NestedFieldNoCopy(spec, "properties", "selector")
		open, _, _ := unstructured.NestedBool(spec, "x-kubernetes-preserve-unknown-fields")
		if found && !selector && !open && !generated {
			messages = append(messages, fmt.Sprintf("spec.generateSelector: %s has no field spec.selector, by which children would be found: set generateSelector: true, "+
				"or add the field to its CustomResourceDefinition", d.Metadata.Name))
		}
		return messages
	}
	return []string{fmt.Sprintf("spec.parentResource.apiVersion: the CustomResourceDefinition %s does not serve %s, only %s", d.Metadata.Name, version, strings.Join(served, ", "))}
}
