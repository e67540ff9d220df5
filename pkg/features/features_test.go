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

package features_test

import (
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	basecompatibility "k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"

	"github.com/metacontroller/metacontroller-apiserver/pkg/features"
)

func TestEveryServerHasItsOwnRegistry(t *testing.T) {
	first, err := features.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	second, err := features.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	first.AddFlags(flags)
	if err := flags.Parse([]string{"--emulated-version=metacontroller=" + features.BinaryVersion}); err != nil {
		t.Fatal(err)
	}
	for name, registry := range map[string]basecompatibility.ComponentGlobalsRegistry{"first": first, "second": second} {
		if err := registry.Set(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if errs := registry.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
		for component, version := range map[string]string{
			features.Component:                     features.BinaryVersion,
			basecompatibility.DefaultKubeComponent: baseversion.DefaultKubeBinaryVersion,
		} {
			if got := registry.EffectiveVersionFor(component).EmulationVersion().String(); got != version {
				t.Errorf("%s: %s emulates %s, want %s", name, component, got, version)
			}
		}
	}
}

// The libraries would take the version that is stamped into the binary for their own, and old policies would not compile.
func TestTheLibrariesKnowTheirVersion(t *testing.T) {
	if _, err := features.NewRegistry(); err != nil {
		t.Fatal(err)
	}
	// One release back, so that policies hold after a rollback.
	want := version.MustParse(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1)
	if got := environment.DefaultCompatibilityVersion(); !got.EqualTo(want) {
		t.Errorf("expressions are compiled for Kubernetes %s, want %s", got, want)
	}
}
