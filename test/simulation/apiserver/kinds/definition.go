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

package kinds

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	versionutil "k8s.io/apimachinery/pkg/version"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

// defined is a kind, or why there is none.
type defined struct {
	kind *Kind
	err  error
}

var definitions memo[defined]

// FromDefinition returns the kind that a CustomResourceDefinition defines, which must have passed its validation.
func FromDefinition(crd value.Object) (*Kind, error) {
	spec := value.Map(crd, "spec")
	d := definitions.get(string(value.Encode(spec)), func() defined {
		kind, err := fromSpec(spec)
		return defined{kind, err}
	})
	return d.kind, d.err
}

func fromSpec(content value.Object) (*Kind, error) {
	var spec apiextensionsv1.CustomResourceDefinitionSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
		return nil, fmt.Errorf("decoding a definition: %w", err)
	}
	k := &Kind{
		Group: spec.Group, Kind: spec.Names.Kind, ListKind: spec.Names.ListKind, Plural: spec.Names.Plural, Singular: spec.Names.Singular,
		ShortNames: spec.Names.ShortNames, Categories: spec.Names.Categories,
		Namespaced: spec.Scope == apiextensionsv1.NamespaceScoped, Custom: true, rules: custom{},
	}
	if k.ListKind == "" {
		k.ListKind = k.Kind + "List"
	}
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Kind)
	}
	for i := range spec.Versions {
		if err := k.addVersion(&spec, &spec.Versions[i]); err != nil {
			return nil, fmt.Errorf("version %s of %s: %w", spec.Versions[i].Name, k.GroupResource(), err)
		}
	}
	k.fieldsFromDefinition(&spec)
	sort.SliceStable(k.Versions, func(i, j int) bool {
		return versionutil.CompareKubeAwareVersionStrings(k.Versions[i].Name, k.Versions[j].Name) > 0
	})
	return k, nil
}

func (k *Kind) addVersion(spec *apiextensionsv1.CustomResourceDefinitionSpec, d *apiextensionsv1.CustomResourceDefinitionVersion) error {
	v := &Version{Kind: k, Name: d.Name, Served: d.Served}
	if d.Subresources != nil && d.Subresources.Status != nil {
		v.Subresources = append(v.Subresources, "status")
	}
	if d.Deprecated {
		v.Warning = deprecation(spec, d)
	}
	var props *apiextensionsv1.JSONSchemaProps
	if d.Schema != nil {
		props = d.Schema.OpenAPIV3Schema
	}
	var err error
	if v.schema, err = newCustomSchema(v, props); err != nil {
		return err
	}
	k.Versions = append(k.Versions, v)
	if d.Storage {
		k.Storage = v
	}
	return nil
}

// deprecation returns the warning of a deprecated version.
func deprecation(spec *apiextensionsv1.CustomResourceDefinitionSpec, d *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if d.DeprecationWarning != nil {
		return *d.DeprecationWarning
	}
	var better []string
	for _, other := range spec.Versions {
		if other.Served && !other.Deprecated && versionutil.CompareKubeAwareVersionStrings(d.Name, other.Name) < 0 {
			better = append(better, other.Name)
		}
	}
	warning := fmt.Sprintf("%s/%s %s is deprecated", spec.Group, d.Name, spec.Names.Kind)
	if len(better) == 0 {
		return warning
	}
	newest := slices.MaxFunc(better, versionutil.CompareKubeAwareVersionStrings)
	return fmt.Sprintf("%s; use %s/%s %s", warning, spec.Group, newest, spec.Names.Kind)
}
