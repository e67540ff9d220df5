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
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"k8s.io/client-go/util/cert"
)

// Files are the Store of one server. What cannot be read is made again, but for the key of the authority: another authority needs
// another registration.
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

// open implements Store.
func (f Files) open(context.Context) (*authorities, func(), error) {
	unlock, err := lock(filepath.Dir(f.CAFile))
	if err != nil {
		return nil, nil, err
	}
	kept, err := f.read()
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return kept, unlock, nil
}

func (f Files) read() (*authorities, error) {
	signing, err := readPair(f.CAFile, f.caKeyFile)
	switch _, statErr := os.Stat(f.CAFile); {
	case signing.key != nil:
	case err != nil:
		err = fmt.Errorf("%w; restore the file, or remove it together with %s and register the server again", err, f.CAFile)
	case !errors.Is(statErr, os.ErrNotExist):
		// A certificate without its key must not be replaced: it is the one in a registration, or an operator put it there.
		err = fmt.Errorf("there is a certificate %s without its key %s; restore the key, or remove the certificate "+
			"and register the server again", f.CAFile, f.caKeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing certificate authority: %w", err)
	}
	if signing.certificate != nil && !signing.certificate.IsCA {
		// The key is what a registration trusts, so a damaged certificate can be made again.
		signing.certificate = nil
	}
	serving, err := readPair(f.CertFile, f.KeyFile)
	if err != nil && serving.key != nil {
		return nil, err
	}
	kept := &authorities{signing: signing, servingKey: serving.key}
	if serving.certificate != nil {
		kept.serving = &serving
	}
	return kept, nil
}

// save implements Store.
func (f Files) save(_ context.Context, following *authorities) error {
	if err := writePair(f.CAFile, f.caKeyFile, &following.signing); err != nil {
		return fmt.Errorf("preparing certificate authority: %w", err)
	}
	return nil
}

// serve implements Store. The API server sees that the files change.
func (f Files) serve(_ context.Context, serving *pair) error {
	return writePair(f.CertFile, f.KeyFile, serving)
}

// readPair returns what is in two files: no key if there is none that can be read, and no certificate that is not one for the key. It
// takes the rights of others to the key away, should a copy or a backup have given them.
func readPair(certFile, keyFile string) (pair, error) {
	key, err := readKey(keyFile)
	if err != nil || key == nil {
		return pair{}, err
	}
	p := pair{key: key}
	if err := os.Chmod(keyFile, 0o600); err != nil {
		return p, fmt.Errorf("restricting access to key %s: %w", keyFile, err)
	}
	if certificates, err := cert.CertsFromFile(certFile); err == nil && fits(certificates[0], key) {
		p.certificate = certificates[0]
	}
	return p, nil
}

// readKey returns the key in a file, and nil when there is no file.
func readKey(path string) (crypto.Signer, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return key, nil
}

// writePair writes a certificate, and first its key if that is another one than before.
func writePair(certFile, keyFile string, p *pair) error {
	certificate, key, err := p.encode()
	if err != nil {
		return err
	}
	if present, err := readKey(keyFile); err != nil || present == nil || !fits(p.certificate, present) {
		if err := replace(keyFile, key, 0o600); err != nil {
			return err
		}
	}
	return replace(certFile, certificate, 0o644)
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
	// So that the rename survives a crash of the machine.
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
