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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var date = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// objects reads the objects of a rendered overlay.
func objects(t *testing.T, rendered []byte) []map[string]any {
	t.Helper()
	var all []map[string]any
	for text := range strings.SplitSeq(string(rendered), "\n---\n") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	return all
}

// imagesOf returns the values of all fields of the name image, at any depth.
func imagesOf(value any) []string {
	var found []string
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if text, ok := field.(string); ok && name == "image" {
				found = append(found, text)
			}
			found = append(found, imagesOf(field)...)
		}
	case []any:
		for _, item := range v {
			found = append(found, imagesOf(item)...)
		}
	}
	return found
}

// The image has one name in all manifests, so that one setting names it.
func TestOneSettingNamesTheImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		image Image
		want  string
	}{
		"as the manifests have it": {image: Image{Repository: imageName}, want: imageName},
		"a repository and a tag":   {image: Image{Repository: "example.org/a/b", Version: "v1"}, want: "example.org/a/b:v1"},
		"with a digest":            {image: Image{Repository: "example.org/a/b", Version: "v1", Digest: digest}, want: "example.org/a/b:v1@" + digest},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := Overlays(filepath.Join("..", "..", "..", "artifacts"), c.image)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := slices.Sorted(maps.Keys(rendered)), []string{"definitions", "least-privilege", "production", "single-node"}; !slices.Equal(got, want) {
				t.Errorf("the overlays are %v, want %v", got, want)
			}
			for overlay, text := range rendered {
				var images []string
				for _, object := range objects(t, text) {
					images = append(images, imagesOf(object)...)
				}
				if len(images) == 0 {
					t.Errorf("%s runs nothing", overlay)
				}
				for _, got := range images {
					if got != c.want {
						t.Errorf("%s runs %s, want %s", overlay, got, c.want)
					}
				}
			}
		})
	}
}

func TestOverlaysOfAnEmptyFolder(t *testing.T) {
	if _, err := Overlays(t.TempDir(), Image{}); err == nil || !strings.Contains(err.Error(), "there are no overlays") {
		t.Errorf("the error is %v", err)
	}
}

// unpack reads the files of a chart.
func unpack(t *testing.T, data []byte) map[string]string {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(gz); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

func TestCharts(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"one/Chart.yaml":             "apiVersion: v2\n# A release sets these.\nname: example\nversion: 0.0.0\nappVersion: v0.0.0\n",
		"one/values.yaml":            "image:\n  # There is no published image yet: name yours.\n  repository: metacontroller-apiserver\n  tag: \"\"\n",
		"one/templates/service.yaml": "kind: Service\n",
		"one/.helmignore":            "*.swp\n",
	} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	charts, err := Charts(folder, "example.org/server", "v1.2.3", date)
	if err != nil || len(charts) != 1 || charts[0].Name != "example-1.2.3.tgz" {
		t.Fatalf("got %v, %v", charts, err)
	}
	want := map[string]string{
		"example/Chart.yaml":             "apiVersion: v2\nappVersion: v1.2.3\nname: example\nversion: 1.2.3\n",
		"example/values.yaml":            "image:\n  repository: example.org/server\n  tag: \"\"\n",
		"example/templates/service.yaml": "kind: Service\n",
	}
	if got := unpack(t, charts[0].Data); !maps.Equal(got, want) {
		t.Errorf("the chart has %q, want %q", got, want)
	}
	again, err := Charts(folder, "example.org/server", "v1.2.3", date)
	if err != nil || !bytes.Equal(again[0].Data, charts[0].Data) {
		t.Errorf("the chart is another one the second time: %v", err)
	}
}

func TestFoldersWithoutCharts(t *testing.T) {
	const named = "name: a\nversion: 1\n"
	if charts, err := Charts(filepath.Join(t.TempDir(), "missing"), "a", "v1", date); err != nil || len(charts) > 0 {
		t.Errorf("got %v, %v", charts, err)
	}
	for name, text := range map[string]string{"no chart": "", "a chart without a name": "version: 1\n", "no YAML": "{", "values without the image": named} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.Mkdir(filepath.Join(folder, "one"), 0o750); err != nil {
				t.Fatal(err)
			}
			if text != "" {
				if err := os.WriteFile(filepath.Join(folder, "one", "Chart.yaml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if text == named {
				if err := os.WriteFile(filepath.Join(folder, "one", "values.yaml"), []byte("a: 1\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if charts, err := Charts(folder, "a", "v1", date); err == nil {
				t.Errorf("got %v without an error", charts)
			}
		})
	}
}
