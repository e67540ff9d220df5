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

package features

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
)

const (
	// Component is the name of this server in --feature-gates and --emulated-version.
	Component = "metacontroller"
	// BinaryVersion is the version whose features this source has, as major.minor. It is that of the next release, and goes up before it:
	// hack/release refuses another one.
	BinaryVersion = "0.1"
)

// gates are this server's own feature gates. Each has a comment with its purpose and the version in which it came.
func gates() map[featuregate.Feature]featuregate.VersionedSpecs {
	return map[featuregate.Feature]featuregate.VersionedSpecs{}
}

// addLoggingGates is for the gates that no other package adds, once for the process.
var addLoggingGates = sync.OnceValue(func() error { return logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate) })

// NewRegistry returns a registry of its own for every server, so that several may live in one process. The gates of the
// Kubernetes libraries are process-wide by their design.
func NewRegistry() (basecompatibility.ComponentGlobalsRegistry, error) {
	ours := version.MustParse(BinaryVersion)
	gate := featuregate.NewVersionedFeatureGate(ours)
	if err := gate.AddVersioned(gates()); err != nil {
		return nil, fmt.Errorf("adding feature gates: %w", err)
	}
	registry := basecompatibility.NewComponentGlobalsRegistry()
	effective := basecompatibility.NewEffectiveVersionFromString(BinaryVersion, "", "")
	if err := registry.Register(Component, effective, gate); err != nil {
		return nil, fmt.Errorf("registering component %s: %w", Component, err)
	}
	if err := addLoggingGates(); err != nil {
		return nil, fmt.Errorf("adding the feature gates of logging: %w", err)
	}
	kube := version.MustParse(baseversion.DefaultKubeBinaryVersion)
	libraries := basecompatibility.NewEffectiveVersionFromString(baseversion.DefaultKubeBinaryVersion, "", "")
	if err := registry.Register(basecompatibility.DefaultKubeComponent, libraries, utilfeature.DefaultMutableFeatureGate); err != nil {
		return nil, fmt.Errorf("registering component %s: %w", basecompatibility.DefaultKubeComponent, err)
	}
	mapping := func(v *version.Version) *version.Version {
		return kube.OffsetMinor(int(v.Minor()) - int(ours.Minor()))
	}
	if err := registry.SetVersionMapping(Component, basecompatibility.DefaultKubeComponent, mapping); err != nil {
		return nil, fmt.Errorf("mapping versions to those of Kubernetes: %w", err)
	}
	pinLibraries(kube)
	return registry, nil
}

// pinLibraries tells the libraries their own version. They take it from the version stamped into the binary, which is ours,
// and would offer the CEL of that version to admission policies: none.
func pinLibraries(kube *version.Version) {
	process := compatibility.DefaultComponentGlobalsRegistry
	effective, _ := process.ComponentGlobalsOrRegister(basecompatibility.DefaultKubeComponent,
		basecompatibility.NewEffectiveVersionFromString(kube.String(), "", ""), utilfeature.DefaultMutableFeatureGate)
	effective.SetEmulationVersion(kube)
	effective.SetMinCompatibilityVersion(kube.SubtractMinor(1))
}
