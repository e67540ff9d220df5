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
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	yamlvalues "sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/test/cluster"
)

// notes is the file with what Helm prints after an installation.
const notes = "NOTES.txt"

// folder is that of the chart.
func folder() string {
	return filepath.Join(cluster.Root(), "artifacts", "chart", "metacontroller-apiserver")
}

// A Rendered chart is what Helm makes of it.
type Rendered struct {
	// Text is all objects as YAML, and Objects the same, decoded.
	Text    string
	Objects []*unstructured.Unstructured
	// Notes are printed after the installation.
	Notes string
}

// Render renders the chart with values, as a new release in a namespace.
func Render(ctx context.Context, values, namespace string) (*Rendered, error) {
	return render(ctx, engine.Engine{Strict: true}, values, common.ReleaseOptions{Name: "release", Namespace: namespace})
}

// render does the same for a release of any name. Helm's own engine is not strict: values that are missing are empty.
func render(ctx context.Context, renderer engine.Engine, values string, release common.ReleaseOptions) (*Rendered, error) {
	loaded, err := loader.LoadDir(folder())
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	given := map[string]any{}
	if err := yamlvalues.Unmarshal([]byte(values), &given); err != nil {
		return nil, fmt.Errorf("reading values: %w", err)
	}
	release.Revision, release.IsInstall = 1, true
	all, err := util.ToRenderValues(loaded, given, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := renderer.RenderWithContext(ctx, loaded, all)
	if err != nil {
		return nil, err
	}
	r := &Rendered{}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) == notes {
			r.Notes = files[name]
		} else if strings.TrimSpace(files[name]) != "" {
			text.WriteString("---\n" + strings.TrimSpace(files[name]) + "\n")
		}
	}
	r.Text = text.String()
	r.Objects, err = decode(r.Text)
	return r, err
}

// decode returns the objects in YAML.
func decode(text string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading objects: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

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
