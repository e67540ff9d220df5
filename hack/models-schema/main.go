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

// Command models-schema prints the OpenAPI v2 document of the API types, from which applyconfiguration-gen learns which
// fields are keyed lists. It asks for them by the names of their Go types, and not by those of their models.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/metacontroller/metacontroller-apiserver/pkg/generated/openapi"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(document()); err != nil {
		fmt.Fprintln(os.Stderr, "writing the OpenAPI document:", err)
		os.Exit(1)
	}
}

const (
	// models begins the names of the models of the API types, as openapi-model-package of their package says.
	models = "io.k8s.metacontroller.v1alpha1."
	types  = "github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1."
)

// goName returns the name of a model as applyconfiguration-gen makes it of a Go type.
func goName(model string) string {
	if name, ok := strings.CutPrefix(model, models); ok {
		return util.ToRESTFriendlyName(types + name)
	}
	return model
}

// document gathers every definition, in its v2 form where a definition has two.
func document() *spec.Swagger {
	definitions := openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + goName(name))
	})
	schemas := make(spec.Definitions, len(definitions))
	for name, definition := range definitions {
		name = goName(name)
		schemas[name] = definition.Schema
		if v2, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
			schemas[name] = v2
		}
	}
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "metacontroller", Version: "v1alpha1"}},
		Definitions: schemas,
	}}
}
