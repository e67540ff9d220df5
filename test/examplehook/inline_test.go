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
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// builtIn are the kinds of Kubernetes that examples and documents use.
var builtIn = map[string]string{
	"v1/pods": "Pod", "v1/services": "Service", "v1/configmaps": "ConfigMap", "v1/secrets": "Secret", "v1/namespaces": "Namespace", "v1/nodes": "Node",
	"v1/persistentvolumeclaims": "PersistentVolumeClaim", "apps/v1/deployments": "Deployment", "apps/v1/statefulsets": "StatefulSet",
	"batch/v1/jobs": "Job", "batch/v1/cronjobs": "CronJob",
	"networking.k8s.io/v1/networkpolicies": "NetworkPolicy", "networking.k8s.io/v1/ingresses": "Ingress",
}

// withoutDocument is a group whose schemas client-go has no copy of. The tests on a control plane have them.
const withoutDocument = "networking.k8s.io/v1 has no schema"

// served are the kinds of a cluster: those of Kubernetes as it publishes them, and those of CustomResourceDefinitions.
type served struct {
	published *inline.Published
	defined   map[string]*inline.Kind
}

// Resource implements [inline.Schemas].
func (s served) Resource(apiVersion, resource string) (*inline.Kind, bool) {
	if kind, ok := s.defined[apiVersion+"/"+resource]; ok {
		return kind, true
	}
	return s.published.Resource(apiVersion, resource)
}

var published = sync.OnceValue(func() *inline.Published {
	return &inline.Published{
		Kind: func(apiVersion, resource string) (string, error) { return builtIn[apiVersion+"/"+resource], nil },
		Document: func(version schema.GroupVersion) ([]byte, error) {
			apiVersion := version.String()
			paths, err := openapitest.NewEmbeddedFileClient().Paths()
			if err != nil {
				return nil, err
			}
			path := "apis/" + apiVersion
			if apiVersion == "v1" {
				path = "api/v1"
			}
			if document, ok := paths[path]; ok {
				return document.Schema("application/json")
			}
			return nil, nil
		},
	}
})

// clusterWith returns the kinds of a cluster with CustomResourceDefinitions.
func clusterWith(t *testing.T, definitions ...[]byte) served {
	t.Helper()
	s := served{published: published(), defined: map[string]*inline.Kind{}}
	for _, definition := range definitions {
		var crd struct {
			Spec struct {
				Group    string
				Names    struct{ Kind, Plural string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema *spec.Schema }
				}
			}
		}
		if err := yaml.Unmarshal(definition, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			apiVersion := crd.Spec.Group + "/" + version.Name
			s.defined[apiVersion+"/"+crd.Spec.Names.Plural] = &inline.Kind{
				APIVersion: apiVersion, Name: crd.Spec.Names.Kind, Schema: version.Schema.OpenAPIV3Schema,
			}
		}
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
func compile(t *testing.T, manifest []byte, schemas served) compiled {
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
	if err := schemas.published.Err(); err != nil || len(errs) > 0 {
		t.Fatalf("compiling the inline hooks: %v\n%s", err, manifest)
	}
	for _, warning := range warnings {
		if !strings.Contains(warning, withoutDocument) {
			t.Error(warning)
		}
	}
	c.programs = programs
	return c
}
