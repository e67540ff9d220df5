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

package archive

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

// A File is a file or a folder of an archive.
type File struct {
	// Name has slashes. That of a folder ends with one, and archives for people need no folders.
	Name string
	Data []byte
	// Link has the file be a symbolic link to this path, without data. Zip archives have none.
	Link string
	// Mode is the permissions and the sticky bit as Unix numbers them. 0: 0644.
	Mode int64
	// Owner is the number of the user and of the group. Zip archives have none.
	Owner int
}

// mode is the file's mode.
func (f *File) mode() int64 {
	if f.Mode == 0 {
		return 0o644
	}
	return f.Mode
}

// sorted returns files in the order of their names, so that a folder is before what is in it.
func sorted(files []File) []File {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files
}

// TarGz writes files as a tar archive, compressed as well as gzip can.
func TarGz(out io.Writer, files []File, date time.Time) error {
	return compressed(out, gzip.BestCompression, files, date)
}

// Layer writes files as a compressed tar archive like TarGz, in a third of the time and some percent larger: images are large, and are
// built by every run of the tests.
func Layer(out io.Writer, files []File, date time.Time) error {
	return compressed(out, gzip.DefaultCompression, files, date)
}

func compressed(out io.Writer, level int, files []File, date time.Time) error {
	gz, err := gzip.NewWriterLevel(out, level)
	if err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	return errors.Join(Tar(gz, files, date), gz.Close())
}

// Tar writes files as a tar archive.
func Tar(out io.Writer, files []File, date time.Time) error {
	w := tar.NewWriter(out)
	for _, f := range sorted(files) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Size: int64(len(f.Data)), Mode: f.mode(), Uid: f.Owner, Gid: f.Owner,
			ModTime: date.UTC().Truncate(time.Second), Format: tar.FormatPAX,
		}
		if strings.HasSuffix(f.Name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if f.Link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
	}
	return w.Close()
}

// Zip writes files as a zip archive.
func Zip(out io.Writer, files []File, date time.Time) error {
	w := zip.NewWriter(out)
	for _, f := range sorted(files) {
		header := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: date.UTC().Truncate(time.Second)}
		header.SetMode(0o644)
		if f.mode()&0o111 != 0 {
			header.SetMode(0o755)
		}
		entry, err := w.CreateHeader(header)
		if err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
		if _, err := entry.Write(f.Data); err != nil {
			return fmt.Errorf("archiving %s: %w", f.Name, err)
		}
	}
	return w.Close()
}
