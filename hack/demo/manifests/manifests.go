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

package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
)

// group is the API group of controllers.
const group = "metacontroller.k8s.io"

// Set is the objects of a project, in the order in which they are applied.
type Set struct {
	// Definitions are Namespaces and CustomResourceDefinitions, which the others need.
	Definitions []*unstructured.Unstructured
	// Controllers are CompositeControllers and DecoratorControllers with hooks on this machine.
	Controllers []*unstructured.Unstructured
	// Samples are all others.
	Samples []*unstructured.Unstructured
	// Skipped are those that run the hook in a cluster: the Services to which hooks refer, and what has the name of one.
	Skipped []*unstructured.Unstructured
}

// Add adds the objects of another set.
func (s *Set) Add(other *Set) {
	s.Definitions, s.Controllers = append(s.Definitions, other.Definitions...), append(s.Controllers, other.Controllers...)
	s.Samples, s.Skipped = append(s.Samples, other.Samples...), append(s.Skipped, other.Skipped...)
}

// errNoManifest is that of a document which is for another program.
var errNoManifest = errors.New("an object has neither apiVersion nor kind")

// Foreign tells of the error of Decode for a source whether its file may be left out: one that was found in a folder, and is that of another
// program. JSON in such files may have comments, or be a list.
func Foreign(source Source, err error) bool {
	return source.Found && (errors.Is(err, errNoManifest) || filepath.Ext(source.Path) == ".json")
}

// Decode reads the objects of a file, YAML or JSON. Documents without content are left out, and Lists are taken apart.
func Decode(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)+1)
	for {
		var content map[string]any
		switch err := decoder.Decode(&content); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("reading YAML: %w", err)
		case len(content) == 0:
			continue
		}
		o := &unstructured.Unstructured{Object: content}
		switch {
		case o.GetKind() == "" && o.GetAPIVersion() == "":
			return nil, errNoManifest
		case o.GetKind() == "" || o.GetAPIVersion() == "":
			return nil, errors.New("an object has no apiVersion or no kind")
		}
		if !o.IsList() {
			objects = append(objects, o)
			continue
		}
		err := o.EachListItem(func(item runtime.Object) error {
			if single, ok := item.(*unstructured.Unstructured); ok {
				objects = append(objects, single)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading a list: %w", err)
		}
	}
}

// Encode writes an object as a line for `kubectl apply -f`.
func Encode(o *unstructured.Unstructured) (string, error) {
	encoded, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encoding %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return string(encoded) + "\n", nil
}

// Sort sorts the objects of a project and points the hooks of its controllers at an address, such as http://localhost:8080. The objects
// of controllers are changed in place. A project without a controller is an error.
func Sort(objects []*unstructured.Unstructured, address string) (*Set, error) {
	var s Set
	services := map[string]bool{}
	for _, o := range objects {
		if IsController(o) {
			names, err := localhook.PointAt(o.Object, address)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
			for _, name := range names {
				services[name] = true
			}
			s.Controllers = append(s.Controllers, o)
		}
	}
	if len(s.Controllers) == 0 {
		return nil, errors.New("there is no CompositeController and no DecoratorController among the manifests")
	}
	for _, o := range objects {
		switch {
		case IsController(o):
		case o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition":
			s.Definitions = append(s.Definitions, o)
		case services[o.GetName()] && slices.Contains([]string{"Service", "Deployment", "StatefulSet", "ConfigMap"}, o.GetKind()):
			s.Skipped = append(s.Skipped, o)
		default:
			s.Samples = append(s.Samples, o)
		}
	}
	return &s, nil
}

// IsController tells whether an object is a controller.
func IsController(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == group && (o.GetKind() == "CompositeController" || o.GetKind() == "DecoratorController")
}

// Argument is how the plugin of kubectl names a controller.
func Argument(controller *unstructured.Unstructured) string {
	if controller.GetKind() == "DecoratorController" {
		return "dc/" + controller.GetName()
	}
	return "cc/" + controller.GetName()
}

// Namespaces returns the namespaces of the samples, sorted, without "default" and those among the definitions.
func (s *Set) Namespaces() []string {
	var names []string
	for _, o := range s.Samples {
		name := o.GetNamespace()
		defined := slices.ContainsFunc(s.Definitions, func(d *unstructured.Unstructured) bool { return d.GetKind() == "Namespace" && d.GetName() == name })
		if name != "" && name != "default" && !defined {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
