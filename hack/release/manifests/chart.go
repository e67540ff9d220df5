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
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/archive"
)

// chartFile is what a chart says of itself, and valuesFile has its values.
const (
	chartFile  = "Chart.yaml"
	valuesFile = "values.yaml"
)

// repositoryLine is the image in the values of a chart, with what they say of it.
const repositoryLine = `  # There is no published image yet: name yours.
  repository: metacontroller-apiserver
`

// A Chart is a chart that is packed as Helm expects it.
type Chart struct {
	// Name is that of the file.
	Name string
	Data []byte
}

// Charts packs every chart in a folder, each in a folder of its own, with the image that clusters pull, and a version that is the chart's own
// and that of what it installs. A folder that does not exist has no charts.
func Charts(folder, repository, version string, date time.Time) ([]Chart, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for charts: %w", err)
	}
	var charts []Chart
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		chart, err := pack(filepath.Join(folder, entry.Name()), repository, version, date)
		if err != nil {
			return nil, fmt.Errorf("packing the chart %s: %w", entry.Name(), err)
		}
		charts = append(charts, *chart)
	}
	return charts, nil
}

func pack(folder, repository, version string, date time.Time) (*Chart, error) {
	var name string
	var files []archive.File
	err := fs.WalkDir(os.DirFS(folder), ".", func(file string, entry fs.DirEntry, err error) error {
		// Files that begin with a dot are for those who write the chart.
		if err != nil || entry.IsDir() || strings.HasPrefix(path.Base(file), ".") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		switch file {
		case chartFile:
			name, data, err = versioned(data, version)
		case valuesFile:
			data, err = located(data, repository)
		}
		if err != nil {
			return err
		}
		files = append(files, archive.File{Name: file, Data: data})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fmt.Errorf("there is no %s in %s", chartFile, folder)
	}
	// A chart's archive has one folder, of its name.
	for i := range files {
		files[i].Name = path.Join(name, files[i].Name)
	}
	var b bytes.Buffer
	if err := archive.TarGz(&b, files, date); err != nil {
		return nil, err
	}
	return &Chart{Name: name + "-" + strings.TrimPrefix(version, "v") + ".tgz", Data: b.Bytes()}, nil
}

// located sets the image in the values of a chart. Comments stay, as values are documented by them.
func located(data []byte, repository string) ([]byte, error) {
	if bytes.Count(data, []byte(repositoryLine)) != 1 {
		return nil, fmt.Errorf("%s does not have the image as it is written in a checkout: %q", valuesFile, repositoryLine)
	}
	return bytes.Replace(data, []byte(repositoryLine), []byte("  repository: "+repository+"\n"), 1), nil
}

// versioned sets the versions in what a chart says of itself, and returns its name. Helm wants a version without v; the version of what is
// installed is the tag of the image.
func versioned(data []byte, version string) (string, []byte, error) {
	fields := map[string]any{}
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return "", nil, fmt.Errorf("reading %s: %w", chartFile, err)
	}
	name, ok := fields["name"].(string)
	if !ok || name == "" {
		return "", nil, fmt.Errorf("%s has no name", chartFile)
	}
	fields["version"], fields["appVersion"] = strings.TrimPrefix(version, "v"), version
	encoded, err := yaml.Marshal(fields)
	if err != nil {
		return "", nil, fmt.Errorf("writing %s: %w", chartFile, err)
	}
	return name, encoded, nil
}
