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
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A file is one of an archive. name has slashes.
type file struct {
	name       string
	data       []byte
	executable bool
}

func (f *file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// sorted returns files in the order of their names, which is that of an archive.
func sorted(files []file) []file {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

// tarGz writes files as a compressed tar archive. Every file has the date, and nobody owns it.
func tarGz(out io.Writer, files []file, date time.Time) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	w := tar.NewWriter(compressed)
	for _, f := range sorted(files) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: f.mode(), ModTime: date.UTC().Truncate(time.Second), Format: tar.FormatPAX,
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("archiving %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return fmt.Errorf("archiving %s: %w", f.name, err)
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

// zipped writes files as a zip archive, in the same way.
func zipped(out io.Writer, files []file, date time.Time) error {
	w := zip.NewWriter(out)
	for _, f := range sorted(files) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date.UTC().Truncate(time.Second)}
		header.SetMode(0o644)
		if f.executable {
			header.SetMode(0o755)
		}
		entry, err := w.CreateHeader(header)
		if err != nil {
			return fmt.Errorf("archiving %s: %w", f.name, err)
		}
		if _, err := entry.Write(f.data); err != nil {
			return fmt.Errorf("archiving %s: %w", f.name, err)
		}
	}
	return w.Close()
}
