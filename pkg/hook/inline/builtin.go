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

package inline

import "k8s.io/kube-openapi/pkg/validation/spec"

// apiVersionField and kindField say of which kind an object is, and metadataField has what all objects have.
const apiVersionField, kindField, metadataField = "apiVersion", "kind", "metadata"

func properties(fields map[string]spec.Schema, required ...string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{typeObject}, Properties: fields, Required: required}}
}

// embeddedMetadata are the fields of metadata that schemas of CustomResourceDefinitions may restrict.
var embeddedMetadata = []string{"name", "generateName"}

// metadataSchema is what an object's metadata has, without managedFields.
var metadataSchema = properties(map[string]spec.Schema{ //nolint:gochecknoglobals // It does not change.
	"name": *spec.StringProperty(), "generateName": *spec.StringProperty(), "namespace": *spec.StringProperty(),
	"labels": *spec.MapProperty(spec.StringProperty()), "annotations": *spec.MapProperty(spec.StringProperty()),
	"uid": *spec.StringProperty(), "resourceVersion": *spec.StringProperty(), "selfLink": *spec.StringProperty(), "generation": *spec.Int64Property(),
	"creationTimestamp": *spec.StringProperty(), "deletionTimestamp": *spec.StringProperty(),
	"deletionGracePeriodSeconds": *spec.Int64Property(), "finalizers": *spec.ArrayProperty(spec.StringProperty()),
	"ownerReferences": *spec.ArrayProperty(&ownerSchema), "managedFields": *spec.ArrayProperty(&spec.Schema{}),
})

var ownerSchema = properties(map[string]spec.Schema{ //nolint:gochecknoglobals // It does not change.
	apiVersionField: *spec.StringProperty(), kindField: *spec.StringProperty(), "name": *spec.StringProperty(), "uid": *spec.StringProperty(),
	"controller": *spec.BooleanProperty(), "blockOwnerDeletion": *spec.BooleanProperty(),
}, apiVersionField, kindField, "name", "uid")

var selectorSchema = properties(map[string]spec.Schema{ //nolint:gochecknoglobals // It does not change.
	"matchLabels": *spec.MapProperty(spec.StringProperty()),
	"matchExpressions": *spec.ArrayProperty(new(properties(map[string]spec.Schema{
		"key": *spec.StringProperty(), "operator": *spec.StringProperty(), "values": *spec.ArrayProperty(spec.StringProperty()),
	}, "key", "operator"))),
})

// ruleKind is that of the rules in the response of a customize hook.
var ruleKind = &Kind{Name: "rule", Schema: new(properties(map[string]spec.Schema{ //nolint:gochecknoglobals // It does not change.
	apiVersionField: *spec.StringProperty(), "resource": *spec.StringProperty(), "namespace": *spec.StringProperty(),
	"names": *spec.ArrayProperty(spec.StringProperty()), "labelSelector": selectorSchema, "namespaceSelector": selectorSchema,
}, apiVersionField, "resource"))}

// someObject is what is known of an object of any kind.
var someObject = &Kind{Name: typeObject, Schema: &spec.Schema{ //nolint:gochecknoglobals // It does not change.
	VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true}},
	SchemaProps: spec.SchemaProps{Type: []string{typeObject}, Properties: map[string]spec.Schema{
		metadataField: metadataSchema, apiVersionField: *spec.StringProperty(), kindField: *spec.StringProperty(),
	}},
}}
