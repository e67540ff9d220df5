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
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// clusterWith returns the kinds of a cluster with CustomResourceDefinitions.
func clusterWith(t *testing.T, definitions ...[]byte) *lint.Schemas {
	t.Helper()
	s := lint.NewSchemas()
	for _, definition := range definitions {
		encoded, err := yaml.YAMLToJSON(definition)
		if err != nil {
			t.Fatal(err)
		}
		s.Define(encoded)
	}
	return s
}

// compiled are the inline hooks of a controller.
type compiled struct {
	programs  map[hook.Name]*inline.Program
	decorator bool
	parent    v1alpha1.ResourceRule
}

// compile compiles the inline hooks of a controller, all kinds of which are served and have schemas.
func compile(t *testing.T, manifest []byte, schemas *lint.Schemas) compiled {
	t.Helper()
	var controller struct {
		Kind string
		Spec json.RawMessage
	}
	if err := yaml.Unmarshal(manifest, &controller); err != nil {
		t.Fatal(err)
	}
	c := compiled{decorator: controller.Kind == "DecoratorController"}
	var d inline.Definition
	if c.decorator {
		var s v1alpha1.DecoratorControllerSpec
		if err := yaml.UnmarshalStrict(controller.Spec, &s); err != nil {
			t.Fatal(err)
		}
		d, c.parent = inline.Decorator(&s), s.Resources[0].ResourceRule
	} else {
		var s v1alpha1.CompositeControllerSpec
		if err := yaml.UnmarshalStrict(controller.Spec, &s); err != nil {
			t.Fatal(err)
		}
		d, c.parent = inline.Composite(&s), s.ParentResource.ResourceRule
	}
	programs, warnings, errs := inline.Compile(d, schemas)
	for _, err := range errs {
		t.Error(err)
	}
	for _, warning := range warnings {
		t.Error(warning)
	}
	if len(errs) > 0 {
		t.Fatalf("compiling the inline hooks:\n%s", manifest)
	}
	c.programs = programs
	return c
}
