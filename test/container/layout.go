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

package container

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// A descriptor names a blob of a layout.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// index is an index of images or of indexes.
type index struct {
	Manifests []descriptor `json:"manifests"`
}

// manifest is an image for one platform.
type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

// Config is what an image says of how it is run.
type Config struct {
	User       string            `json:"User"`
	Entrypoint []string          `json:"Entrypoint"`
	Env        []string          `json:"Env"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels"`
}

// A layout is a folder with images.
type layout string

// blob returns a blob whose size and digest are those of its descriptor.
func (l layout) blob(d descriptor) ([]byte, error) {
	algorithm, sum, found := strings.Cut(d.Digest, ":")
	if !found || algorithm != "sha256" || !filepath.IsLocal(sum) {
		return nil, fmt.Errorf("the digest %q is none of SHA-256", d.Digest)
	}
	data, err := os.ReadFile(filepath.Join(string(l), "blobs", algorithm, sum))
	if err != nil {
		return nil, fmt.Errorf("reading a blob: %w", err)
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum || int64(len(data)) != d.Size {
		return nil, fmt.Errorf("the blob %s has other content", d.Digest)
	}
	return data, nil
}

// read decodes a blob.
func (l layout) read(d descriptor, into any) error {
	data, err := l.blob(d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decoding the blob %s: %w", d.Digest, err)
	}
	return nil
}

// image returns the image for this machine: its configuration and its layers, the lowest first.
func (l layout) image() (*Config, [][]byte, error) {
	var top, platforms index
	data, err := os.ReadFile(filepath.Join(string(l), "index.json"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading an image layout: %w", err)
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, nil, fmt.Errorf("decoding the index of a layout: %w", err)
	}
	if len(top.Manifests) != 1 {
		return nil, nil, fmt.Errorf("the layout has %d entries, where tools that push it expect one", len(top.Manifests))
	}
	if err := l.read(top.Manifests[0], &platforms); err != nil {
		return nil, nil, err
	}
	for _, d := range platforms.Manifests {
		if d.Platform.OS == runtime.GOOS && d.Platform.Architecture == runtime.GOARCH {
			return l.ofPlatform(d)
		}
	}
	return nil, nil, fmt.Errorf("the layout has no image for %s/%s", runtime.GOOS, runtime.GOARCH)
}

func (l layout) ofPlatform(d descriptor) (*Config, [][]byte, error) {
	var m manifest
	if err := l.read(d, &m); err != nil {
		return nil, nil, err
	}
	var file struct {
		Config Config `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := l.read(m.Config, &file); err != nil {
		return nil, nil, err
	}
	if len(file.RootFS.DiffIDs) != len(m.Layers) {
		return nil, nil, fmt.Errorf("the image has %d layers, and its configuration names %d", len(m.Layers), len(file.RootFS.DiffIDs))
	}
	if len(file.Config.Entrypoint) == 0 {
		return nil, nil, errors.New("the image has no entrypoint")
	}
	var layers [][]byte
	for i, of := range m.Layers {
		compressed, err := l.blob(of)
		if err != nil {
			return nil, nil, err
		}
		layer, err := uncompressed(compressed, file.RootFS.DiffIDs[i])
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, layer)
	}
	return &file.Config, layers, nil
}

// uncompressed returns a layer, whose digest must be the one that the configuration has.
func uncompressed(data []byte, digest string) ([]byte, error) {
	r, err := gunzip(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	layer, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading a layer: %w", err)
	}
	if got := sha256.Sum256(layer); "sha256:"+hex.EncodeToString(got[:]) != digest {
		return nil, fmt.Errorf("the layer %s has other content", digest)
	}
	return layer, nil
}
