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
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/util/cert"
)

// authorityName is the subject of the authority. A renewed authority must have the name of the old one.
const authorityName = "metacontroller-apiserver serving authority"

// ensureAuthority returns the authority of the directory, new when there was none.
func (m *Manager) ensureAuthority(files Files) (*pair, error) {
	key, err := readKey(files.caKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w; restore the file, or remove it together with %s and register the server again", err, files.CAFile)
	}
	if key == nil {
		// A certificate without its key must not be replaced: it is the one in a registration, or an operator put it there.
		if _, err := os.Stat(files.CAFile); !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("there is a certificate %s without its key %s; restore the key, or remove the certificate "+
				"and register the server again", files.CAFile, files.caKeyFile)
		}
		if key, err = newKeyFile(files.caKeyFile); err != nil {
			return nil, err
		}
	}
	if err := restrict(files.caKeyFile); err != nil {
		return nil, err
	}
	certificate, err := readCertificate(files.CAFile)
	if err == nil && certificate != nil && m.goodAuthority(pair{certificate: certificate, key: key}) {
		return &pair{certificate: certificate, key: key}, nil
	}
	// The key is what a registration trusts, so a damaged certificate can be made again.
	now := m.clock.Now()
	if certificate, err = newAuthority(key, now, now.Add(authorityLife)); err != nil {
		return nil, err
	}
	return &pair{certificate: certificate, key: key}, write(files.CAFile, certificate)
}

// goodAuthority tells whether the authority outlives the certificates that it signs now.
func (m *Manager) goodAuthority(p pair) bool {
	return p.certificate.IsCA && p.belongs() && m.clock.Now().Add(certificateLife).Before(p.certificate.NotAfter)
}

// ensureCertificate makes the serving certificate when the one in the directory is not good for long enough.
func (m *Manager) ensureCertificate(files Files, authority *pair) error {
	key, err := readKey(files.KeyFile)
	if err != nil || key == nil {
		// The certificate of a lost key is made again below: it does not belong to the new one.
		if key, err = newKeyFile(files.KeyFile); err != nil {
			return err
		}
	}
	if err := restrict(files.KeyFile); err != nil {
		return err
	}
	certificate, err := readCertificate(files.CertFile)
	if err == nil && certificate != nil && m.goodCertificate(pair{certificate: certificate, key: key}, authority) {
		return nil
	}
	now := m.clock.Now()
	if certificate, err = newCertificate(key, m.names, *authority, now, now.Add(certificateLife)); err != nil {
		return err
	}
	return write(files.CertFile, certificate)
}

// goodCertificate tells whether clients of the authority accept the certificate under all names, for at least another third
// of its life.
func (m *Manager) goodCertificate(p pair, authority *pair) bool {
	if !p.belongs() || !m.names.coveredBy(p.certificate) {
		return false
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	now := m.clock.Now()
	for _, moment := range []time.Time{now, now.Add(certificateLife / 3)} {
		if _, err := p.certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: moment}); err != nil {
			return false
		}
	}
	return true
}

// write writes a certificate to a file.
func write(path string, certificate *x509.Certificate) error {
	text, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return fmt.Errorf("encoding certificate %s: %w", path, err)
	}
	return replace(path, text, 0o644)
}

// restrict takes the rights of others to a key away, should a copy or a backup have given them.
func restrict(path string) error {
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("restricting access to key %s: %w", path, err)
	}
	return nil
}
