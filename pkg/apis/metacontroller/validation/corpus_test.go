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

package validation_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/install"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/validation"
)

// review decodes a manifest as the server does, and returns the errors and warnings of a POST of it.
func review(ctx context.Context, manifest []byte) (field.ErrorList, []string, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	hub, err := runtime.Decode(codecs.UniversalDecoder(metacontroller.SchemeGroupVersion), manifest)
	if err != nil {
		return nil, nil, err
	}
	version, err := scheme.ConvertToVersion(hub, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, nil, err
	}
	shape := scheme.Validate(ctx, nil, version)
	switch o := hub.(type) {
	case *metacontroller.CompositeController:
		o.Namespace = "" // Taken off by the registry.
		return append(validation.ValidateCompositeController(o), shape...), validation.WarningsForCompositeController(o), nil
	case *metacontroller.DecoratorController:
		return append(validation.ValidateDecoratorController(o), shape...), validation.WarningsForDecoratorController(o), nil
	case *metacontroller.ControllerRevision:
		return append(validation.ValidateControllerRevision(o), shape...), nil, nil
	}
	return nil, nil, nil
}

// What Metacontroller admits is admitted. The comments in a manifest are the warnings that it gets.
func TestManifestsThatMustBeAccepted(t *testing.T) {
	files, err := filepath.Glob("testdata/accepted/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(manifest)) {
				if warning, ok := strings.CutPrefix(line, "# warning: "); ok {
					want = append(want, strings.TrimSpace(warning))
				}
			}
			errs, warnings, err := review(t.Context(), manifest)
			if err != nil || len(errs) > 0 {
				t.Fatalf("refused: %v %v", err, errs)
			}
			if diff := cmp.Diff(want, warnings); diff != "" {
				t.Errorf("warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

// The examples of the repository are what users start from.
func TestExamplesAreAcceptedWithoutWarnings(t *testing.T) {
	found := 0
	for _, pattern := range []string{"*/controller.yaml", "*/*-controller.yaml"} {
		files, err := filepath.Glob("../../../../artifacts/examples/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if errs, warnings, err := review(t.Context(), manifest); err != nil || len(errs)+len(warnings) > 0 {
				t.Errorf("%s: %v %v %v", file, err, errs, warnings)
			}
		}
	}
	if found == 0 {
		t.Error("there are no examples")
	}
}
