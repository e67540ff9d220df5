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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// A Definition is a controller object as it was read.
type Definition struct {
	controllerobject.Object

	// Encoded is the object as it was written.
	Encoded []byte
	// Schemas are the kinds that are known without a cluster.
	Schemas *Schemas
}

// Hooks returns what the inline hooks of the controller depend on.
func (d Definition) Hooks() inline.Definition { return inline.DefinitionOf(d.Runtime()) }

// Controller reads the one controller object of a file or a folder, which may hold other objects, too. The server decides whether it is right.
func Controller(filename string, in io.Reader) (Definition, error) {
	files, err := open([]string{filename}, true, in)
	if err != nil {
		return Definition{}, fmt.Errorf("reading the definition: %w", err)
	}
	var definitions []Definition
	schemas := NewSchemas()
	for _, file := range files {
		found, err := schemas.definitionsIn(file)
		if err != nil {
			return Definition{}, err
		}
		definitions = append(definitions, found...)
	}
	switch len(definitions) {
	case 0:
		return Definition{}, fmt.Errorf("%s holds neither a CompositeController nor a DecoratorController: name another file with -f", filename)
	case 1:
		return definitions[0], nil
	}
	return Definition{}, fmt.Errorf("%s holds %s and %s: name a file with one controller; put them into files of their own",
		filename, definitions[0].Argument(), definitions[1].Argument())
}

// definitionsIn reads the controller objects of a file, and the kinds that it defines.
func (s *Schemas) definitionsIn(file source) (definitions []Definition, err error) {
	manifests, err := controllerobject.Manifests(bytes.NewReader(file.text), yaml.YAMLToJSON)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file.name, err)
	}
	for _, m := range manifests {
		object, err := controllerOf(m)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w: see 'kubectl metacontroller lint -f %s'", file.name, err, file.name)
		}
		if object != (controllerobject.Object{}) {
			definitions = append(definitions, Definition{object, m.JSON, s})
		} else {
			s.Define(m.JSON)
		}
	}
	return definitions, nil
}

// controllerOf reads a controller object. It is empty for another one, and for what is no object.
func controllerOf(m controllerobject.Manifest) (object controllerobject.Object, err error) {
	switch {
	case m.Err != nil:
		return object, m.Err
	case m.APIVersion != controllerobject.Version():
		return object, nil
	case m.Kind == v1alpha1.KindComposite:
		object.Composite = &v1alpha1.CompositeController{}
		err = json.Unmarshal(m.JSON, object.Composite)
	case m.Kind == v1alpha1.KindDecorator:
		object.Decorator = &v1alpha1.DecoratorController{}
		err = json.Unmarshal(m.JSON, object.Decorator)
	default:
		return object, nil
	}
	if err == nil && object.Name() == "" {
		err = errors.New("metadata.name is missing")
	}
	return object, err
}
