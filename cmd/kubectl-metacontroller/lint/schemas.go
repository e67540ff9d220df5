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
	_ "embed"
	"encoding/json"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// kubernetes is a document of OpenAPI with Kubernetes' own kinds, and their resources (hack/kubernetes-kinds).
//
//go:embed kubernetes.json
var kubernetes []byte

// resources are the kinds of Kubernetes' own resources, by "apiVersion resource".
var resources = sync.OnceValues(func() (map[string]string, error) { //nolint:gochecknoglobals // It is what is embedded.
	var document struct {
		Resources map[string]string `json:"resources"`
	}
	err := json.Unmarshal(kubernetes, &document)
	return document.Resources, err
})

// Schemas are the kinds that inline hooks are compiled against without a cluster: Kubernetes' own, and those of CustomResourceDefinitions. Create
// them with NewSchemas. They are for one goroutine.
type Schemas struct {
	kubernetes inline.Published
	defined    map[string]*inline.Kind
}

var _ inline.Schemas = &Schemas{}

// NewSchemas returns Kubernetes' own kinds.
func NewSchemas() *Schemas {
	return &Schemas{defined: map[string]*inline.Kind{}, kubernetes: inline.Published{
		Kind: func(apiVersion, resource string) (string, error) {
			kinds, err := resources()
			return kinds[apiVersion+" "+resource], err
		},
		Document: func(schema.GroupVersion) ([]byte, error) { return kubernetes, nil },
	}}
}

// Define adds the kind of a CustomResourceDefinition. Other objects, and what is wrong with one, are left out.
func (s *Schemas) Define(encoded []byte) { maps.Copy(s.defined, inline.Defined(encoded)) }

// Name names the kind of a resource that is not known, and returns whether it was not. Nothing is checked against it.
func (s *Schemas) Name(apiVersion, resource, kind string) bool {
	if _, known := s.Resource(apiVersion, resource); known {
		return false
	}
	s.defined[apiVersion+" "+resource] = &inline.Kind{APIVersion: apiVersion, Name: kind}
	return true
}

// Resource implements [inline.Schemas].
func (s *Schemas) Resource(apiVersion, resource string) (*inline.Kind, bool) {
	if kind, ok := s.defined[apiVersion+" "+resource]; ok {
		return kind, true
	}
	return s.kubernetes.Resource(apiVersion, resource)
}

// compile returns the findings about inline hooks.
func (l *linter) compile() []finding {
	var findings []finding
	for _, hooks := range l.inline {
		// What it warns of is about a cluster.
		_, _, errs := inline.Compile(hooks.definition, l.schemas)
		for _, err := range errs {
			findings = append(findings, hooks.at.saying(severityError, err.Error()))
		}
		named := map[string]bool{}
		for _, rule := range hooks.definition.Resources() {
			kind, ok := l.schemas.Resource(rule.APIVersion, rule.Resource)
			name := rule.Resource + " of " + rule.APIVersion
			if ok && kind.Schema != nil || named[name] {
				continue
			}
			named[name] = true
			findings = append(findings, hooks.at.saying(severityWarning,
				"spec.hooks: what inline hooks do with "+name+" is not checked: no file has a CustomResourceDefinition with their schema"))
		}
	}
	return findings
}
