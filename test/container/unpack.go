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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// gunzip reads what was compressed.
func gunzip(r io.Reader) (io.Reader, error) {
	gz, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("uncompressing: %w", err)
	}
	return gz, nil
}

// unpack writes layers into a folder, with their modes, and with their owners where this process may.
func unpack(layers [][]byte, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("opening the folder of an image: %w", err)
	}
	for _, layer := range layers {
		if err := unpackLayer(root, tar.NewReader(bytes.NewReader(layer))); err != nil {
			return errors.Join(err, root.Close())
		}
	}
	return root.Close()
}

func unpackLayer(root *os.Root, r *tar.Reader) error {
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a layer: %w", err)
		}
		if err := unpackEntry(root, header, r); err != nil {
			return fmt.Errorf("unpacking %s: %w", header.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, header *tar.Header, data io.Reader) error {
	name := filepath.FromSlash(path.Clean(header.Name))
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, data); err != nil {
			return errors.Join(err, file.Close())
		}
		if err := file.Close(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("images of ours have no entries of type %q", header.Typeflag)
	}
	if os.Geteuid() == 0 {
		if err := root.Lchown(name, header.Uid, header.Gid); err != nil {
			return err
		}
	}
	// After the owner, whose change takes bits away.
	return root.Chmod(name, header.FileInfo().Mode())
}
