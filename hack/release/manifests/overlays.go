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
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	// imageName is the image in the manifests: the one name that those who install replace.
	imageName = "metacontroller-apiserver"
	// overlays is the folder of what is rendered, in artifacts.
	overlays = "overlays"
)

// An Image is what the manifests of a release run.
type Image struct {
	// Repository is the image's name without a version, with a registry.
	Repository string
	// Version is its tag. Digest is the one of its index, sha256 and a colon in front: what a cluster pulls is what was released.
	Version, Digest string
}

// Overlays renders every overlay in a folder of artifacts, by the names of their folders.
func Overlays(artifacts string, image Image) (map[string][]byte, error) {
	sources, err := read(artifacts)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(os.DirFS(artifacts), path.Join(overlays, "*", "kustomization.yaml"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("there are no overlays in %s: %w", artifacts, err)
	}
	slices.Sort(names)
	rendered := map[string][]byte{}
	for _, name := range names {
		overlay := path.Base(path.Dir(name))
		if rendered[overlay], err = render(sources, overlay, image); err != nil {
			return nil, fmt.Errorf("rendering the overlay %s: %w", overlay, err)
		}
	}
	return rendered, nil
}

// read reads the files of a folder into memory, at /artifacts, so that a kustomization can stand beside them.
func read(artifacts string) (filesys.FileSystem, error) {
	sources := filesys.MakeFsInMemory()
	err := fs.WalkDir(os.DirFS(artifacts), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(filepath.Join(artifacts, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		return sources.WriteFile(path.Join("/artifacts", name), data)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the manifests: %w", err)
	}
	return sources, nil
}

// render renders one overlay as somebody does who names the image in a kustomization of his own.
func render(sources filesys.FileSystem, overlay string, image Image) ([]byte, error) {
	kustomization, err := yaml.Marshal(types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{path.Join("..", "artifacts", overlays, overlay)},
		Images:    []types.Image{{Name: imageName, NewName: image.Repository, NewTag: image.Version, Digest: image.Digest}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing a kustomization: %w", err)
	}
	const folder = "/release"
	if err := sources.WriteFile(path.Join(folder, "kustomization.yaml"), kustomization); err != nil {
		return nil, fmt.Errorf("writing a kustomization: %w", err)
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(sources, folder)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}
