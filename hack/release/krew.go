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

package main

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

// krewName is the plugin's name: `kubectl metacontroller`.
const krewName = "metacontroller"

// krewPlugin is the manifest of a plugin, as krew reads it: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
type krewPlugin struct {
	metav1.TypeMeta `json:",inline"`

	Metadata krewMetadata `json:"metadata"`
	Spec     krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector metav1.LabelSelector `json:"selector"`
	URI      string               `json:"uri"`
	SHA256   string               `json:"sha256"`
	// Bin is the path of the program in the archive.
	Bin string `json:"bin"`
}

// krewManifest is the manifest for the archives of the plugin, whose checksums are given by the names of archives.
func (r *release) krewManifest(sums map[string]string) (string, error) {
	p := krewPlugin{
		TypeMeta: metav1.TypeMeta{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"},
		Metadata: krewMetadata{Name: krewName},
		Spec: krewSpec{
			Version:          r.version,
			Homepage:         "https://github.com/metacontroller/metacontroller-apiserver",
			ShortDescription: "Write, try and run controllers made of webhooks",
			Description: "For those who write and run CompositeControllers and DecoratorControllers: begin with a controller, validate it without\n" +
				"a server, see what a change would do to live objects, try a hook from your machine, record tests, and see how it is doing.\n",
			Caveats: "Commands that ask the cluster need a server of the API group metacontroller.k8s.io in it.\n",
		},
	}
	for _, t := range targets() {
		if t.name != program.Plugin {
			continue
		}
		name := t.archive(r.version)
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"os": t.platform.OS, "arch": t.platform.Arch}},
			URI:      strings.TrimSuffix(r.uri, "/") + "/" + name,
			SHA256:   sums[name],
			Bin:      program.Binary(t.name, t.platform),
		})
	}
	encoded, err := yaml.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encoding the manifest for krew: %w", err)
	}
	return string(encoded), nil
}
