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
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

// candidate reads the one controller object of a file, which may hold other objects, too. The server decides whether it is right.
func candidate(filename string, in io.Reader) (object controllerobject.Object, body *runtime.RawExtension, err error) {
	var text []byte
	if filename == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(filename)
	}
	if err != nil {
		return object, nil, fmt.Errorf("reading the definition: %w", err)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return object, nil, fmt.Errorf("reading %s: %w", filename, err)
		}
		found, encoded, err := controllerOf(document)
		if err != nil {
			return object, nil, fmt.Errorf("reading %s: %w: see 'kubectl metacontroller lint -f %s'", filename, err, filename)
		}
		if encoded == nil {
			continue
		}
		if body != nil {
			return object, nil, fmt.Errorf("%s holds %s and %s: a plan has one candidate; put them into files of their own",
				filename, object.Argument(), found.Argument())
		}
		object, body = found, &runtime.RawExtension{Raw: encoded}
	}
	if body == nil {
		return object, nil, fmt.Errorf("%s holds neither a CompositeController nor a DecoratorController: name another file with -f", filename)
	}
	return object, body, nil
}

// controllerOf reads a document, which is nil if it is no controller object of a version that the plugin speaks.
func controllerOf(document []byte) (object controllerobject.Object, encoded []byte, err error) {
	encoded, err = yaml.YAMLToJSON(document)
	if err != nil {
		return object, nil, err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(encoded, &head); err != nil {
		return object, nil, nil //nolint:nilerr // What is no object is no controller.
	}
	if head.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		return object, nil, nil
	}
	switch head.Kind {
	case "CompositeController":
		object.Composite = &v1alpha1.CompositeController{}
		err = json.Unmarshal(encoded, object.Composite)
	case "DecoratorController":
		object.Decorator = &v1alpha1.DecoratorController{}
		err = json.Unmarshal(encoded, object.Decorator)
	default:
		return object, nil, nil
	}
	if err == nil && object.Name() == "" {
		err = errors.New("metadata.name is missing")
	}
	return object, encoded, err
}
