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

package servingcert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// Files are the paths of the files that Ensure takes care of.
type Files struct {
	// CertFile and KeyFile are the serving certificate and its key: --tls-cert-file and --tls-private-key-file.
	CertFile, KeyFile string
	// CAFile is the certificate of the authority that clients must trust.
	CAFile string
	// caKeyFile is the authority's key.
	caKeyFile string
}

// Directory returns the directory with the certificates of a server whose data directory is given. The server that makes
// them and the registration that reads them agree by calling it.
func Directory(dataDir string) string { return filepath.Join(dataDir, "serving-certificates") }

// FilesIn returns the paths in a directory, whether the files exist or not.
func FilesIn(dir string) Files {
	return Files{
		CertFile:  filepath.Join(dir, "tls.crt"),
		KeyFile:   filepath.Join(dir, "tls.key"),
		CAFile:    filepath.Join(dir, "ca.crt"),
		caKeyFile: filepath.Join(dir, "ca.key"),
	}
}

// lock makes the directory if necessary, and keeps other processes from it until unlock is called.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making directory for certificates: %w", err)
	}
	// Waiting is fine: it is held for the time that two signatures take.
	f, err := fileutil.LockFile(filepath.Join(dir, "LOCK"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking certificates in %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// replace writes a file so that readers find the old content or the new one, and never a part, whatever happens meanwhile.
func replace(path string, content []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory makes a rename survive a crash of the machine.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
