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

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// A Kustomization is what somebody builds on the manifests.
type Kustomization struct {
	// Resources and Components are folders below artifacts.
	Resources, Components []string
	// More are further lines, such as patches.
	More string
}

// Build writes the kustomization into a folder, with an image, and returns the objects that it makes.
func (k Kustomization) Build(folder, name, tag string) ([]*unstructured.Unstructured, error) {
	// Kustomize takes no absolute paths, and knows its own folder without symbolic links.
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, fmt.Errorf("finding the folder: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nimages:\n- {name: metacontroller-apiserver, newName: %s, newTag: %s}\n", name, tag)
	for _, list := range []struct {
		field   string
		folders []string
	}{{"resources", k.Resources}, {"components", k.Components}} {
		fmt.Fprintf(&b, "%s:\n", list.field)
		for _, one := range list.folders {
			relative, err := filepath.Rel(folder, filepath.Join(cluster.Root(), "artifacts", one))
			if err != nil {
				return nil, fmt.Errorf("finding %s: %w", one, err)
			}
			fmt.Fprintf(&b, "- %s\n", relative)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(b.String()+k.More), 0o600); err != nil {
		return nil, fmt.Errorf("writing the kustomization: %w", err)
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("building the kustomization: %w", err)
	}
	text, err := made.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("writing the objects of the kustomization: %w", err)
	}
	return decode(string(text))
}
