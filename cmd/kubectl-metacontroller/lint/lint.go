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
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
	"github.com/metacontroller/metacontroller-apiserver/pkg/hook/inline"
)

// What a finding means.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// finding is what the server would say of one object.
type finding struct {
	File string `json:"file"`
	// Document and Line count the documents and the lines of the file from 1.
	Document int `json:"document"`
	Line     int `json:"line"`
	// Object is KIND/NAME, as far as the document says it.
	Object   string `json:"object,omitempty"`
	Severity string `json:"severity"`
	// Message begins with the path of the field.
	Message string `json:"message"`
}

// String is a line such as controller.yaml:12: error: CompositeController/web: spec.workers: ...
func (f finding) String() string {
	object := ""
	if f.Object != "" {
		object = f.Object + ": "
	}
	return fmt.Sprintf("%s:%d: %s: %s%s", f.File, f.Line, f.Severity, object, strings.ReplaceAll(f.Message, "\n", " "))
}

// linter says what the server would say.
type linter struct {
	scheme  *runtime.Scheme
	decoder runtime.Decoder

	// controllers and definitions are those that were found so far, and at is where the linter is.
	controllers []composite
	definitions []inline.CustomResource
	at          finding

	// inline are the controllers with inline hooks, to be compiled against the schemas when all are read.
	inline  []inlineHooks
	schemas *Schemas
}

// inlineHooks are those of one controller.
type inlineHooks struct {
	at         finding
	definition inline.Definition
}

func newLinter() *linter {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return &linter{scheme: scheme, schemas: NewSchemas(), decoder: serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(metacontroller.SchemeGroupVersion)}
}

// lint returns what there is to say of a file, and how many objects of the group it holds.
func (l *linter) lint(ctx context.Context, s source) ([]finding, int) {
	manifests, err := controllerobject.Manifests(bytes.NewReader(s.text), yaml.YAMLToJSON)
	if err != nil {
		return []finding{{File: s.name, Document: 1, Severity: severityError, Message: err.Error()}}, 1
	}
	var findings []finding
	objects := 0
	for _, m := range manifests {
		l.at = finding{File: s.name, Document: m.Document, Object: m.Kind}
		var errs, warnings []string
		switch {
		case m.Err != nil:
			errs = []string{m.Err.Error()}
			objects++
		case m.Kind == "CustomResourceDefinition":
			l.addDefinition(m.JSON)
			l.schemas.Define(m.JSON)
		case m.Ours():
			l.at.Object += "/" + nameOf(m.JSON)
			errs, warnings = l.object(ctx, m)
			objects++
		}
		for _, message := range errs {
			findings = append(findings, l.at.saying(severityError, message))
		}
		for _, message := range warnings {
			findings = append(findings, l.at.saying(severityWarning, message))
		}
	}
	return findings, objects
}

// saying returns a finding at the same place.
func (f finding) saying(severity, message string) finding {
	f.Severity, f.Message = severity, message
	return f
}

// nameOf returns the name of an object, or what its name begins with, as far as it has one.
func nameOf(encoded []byte) string {
	var named struct {
		Metadata struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(encoded, &named) // The decoder says what is wrong with metadata.
	return cmp.Or(named.Metadata.Name, named.Metadata.GenerateName)
}

// object returns the errors of an object of the group, and without errors its warnings, as the server does.
func (l *linter) object(ctx context.Context, m controllerobject.Manifest) (errs, warnings []string) {
	object, _, err := l.decoder.Decode(m.Text, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			errs = append(errs, e.Error())
		}
	} else if err != nil {
		for _, e := range validation.Malformed(m.Text) {
			errs = append(errs, e.Error())
		}
		if runtime.IsNotRegisteredError(err) {
			errs = append(errs, unknown(m))
		}
		if len(errs) == 0 {
			errs = append(errs, err.Error())
		}
		return errs, nil
	}
	if object == nil {
		return errs, nil
	}
	invalid, warnings := l.review(ctx, object, m.Kind)
	for _, e := range invalid {
		errs = append(errs, e.Error())
	}
	if len(errs) > 0 {
		return errs, nil
	}
	if d := inline.DefinitionOf(object); d.Has() {
		l.inline = append(l.inline, inlineHooks{l.at, d})
	}
	return nil, warnings
}

// review validates a decoded object of a kind.
func (l *linter) review(ctx context.Context, object runtime.Object, kind string) (errs field.ErrorList, warnings []string) {
	switch o := object.(type) {
	case *metacontroller.CompositeController:
		o.Namespace = "" // The server takes it off.
		errs, warnings = validation.ValidateCompositeController(o), validation.WarningsForCompositeController(o)
		warnings = append(warnings, unservedOfComposite(o)...)
		l.controllers = append(l.controllers, composite{l.at, o})
	case *metacontroller.DecoratorController:
		o.Namespace = ""
		errs, warnings = validation.ValidateDecoratorController(o), validation.WarningsForDecoratorController(o)
		warnings = append(warnings, unservedOfDecorator(o)...)
	case *metacontroller.ControllerRevision:
		errs, warnings = validation.ValidateControllerRevision(o), validation.WarningsForControllerRevision(o)
	default:
		return field.ErrorList{field.NotSupported(field.NewPath("kind"), kind, manifestKinds())}, nil
	}
	versioned, err := l.scheme.ConvertToVersion(object, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return append(errs, field.InternalError(nil, err)), nil
	}
	return append(errs, l.scheme.Validate(ctx, nil, versioned)...), warnings
}
