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

package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/lint"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// candidate reads the one controller object of a file or a folder, which may hold other objects, too. The server decides whether it is right.
func candidate(filename string, in io.Reader) (object controllerobject.Object, body *runtime.RawExtension, err error) {
	files := []string{filename}
	if filename != "-" {
		if files, err = lint.Files(filename, true); err != nil {
			return object, nil, fmt.Errorf("reading the definition: %w", err)
		}
	}
	var definitions []definition
	for _, file := range files {
		found, err := definitionsIn(file, in)
		if err != nil {
			return object, nil, err
		}
		definitions = append(definitions, found...)
	}
	switch len(definitions) {
	case 0:
		return object, nil, fmt.Errorf("%s holds neither a CompositeController nor a DecoratorController: name another file with -f", filename)
	case 1:
		return definitions[0].object, &runtime.RawExtension{Raw: definitions[0].encoded}, nil
	}
	return object, nil, fmt.Errorf("%s holds %s and %s: a plan has one candidate; put them into files of their own",
		filename, definitions[0].object.Argument(), definitions[1].object.Argument())
}

// definitionsIn reads the controller objects of a file.
func definitionsIn(filename string, in io.Reader) (definitions []definition, err error) {
	var text []byte
	if filename == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(filename)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	documents, err := controllerobject.Documents(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filename, err)
	}
	for _, document := range documents {
		found, err := controllersOf(document)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w: see 'kubectl metacontroller lint -f %s'", filename, err, filename)
		}
		definitions = append(definitions, found...)
	}
	return definitions, nil
}

// definition is a controller object as it was read, and as it was written.
type definition struct {
	object  controllerobject.Object
	encoded []byte
}

// controllersOf reads the controller objects in a document, which is an object, or a list as kubectl prints it. Others are left out.
func controllersOf(document []byte) ([]definition, error) {
	encoded, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	err = json.Unmarshal(encoded, &head)
	switch list := head.APIVersion == "v1" && head.Kind == "List"; {
	case list && err != nil:
		return nil, errors.New("items of a List must be an array")
	case list:
		var all []definition
		for _, item := range head.Items {
			found, err := controllersOf(item)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	case head.APIVersion != v1alpha1.SchemeGroupVersion.String(): // What is no object is no controller, either.
		return nil, nil
	}
	object, err := controllerOf(head.Kind, encoded)
	if err != nil || object == (controllerobject.Object{}) {
		return nil, err
	}
	return []definition{{object, encoded}}, nil
}

// controllerOf reads an object of the group. It is empty for another kind.
func controllerOf(kind string, encoded []byte) (object controllerobject.Object, err error) {
	switch kind {
	case "CompositeController":
		object.Composite = &v1alpha1.CompositeController{}
		err = json.Unmarshal(encoded, object.Composite)
	case "DecoratorController":
		object.Decorator = &v1alpha1.DecoratorController{}
		err = json.Unmarshal(encoded, object.Decorator)
	default:
		return object, nil
	}
	if err == nil && object.Name() == "" {
		err = errors.New("metadata.name is missing")
	}
	return object, err
}
