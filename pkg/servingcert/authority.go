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
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
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
		if key, err = newKey(files.caKeyFile); err != nil {
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
	template, err := m.template(authorityLife)
	if err != nil {
		return nil, err
	}
	template.Subject.CommonName = authorityName
	template.IsCA, template.MaxPathLenZero = true, true
	template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	certificate, err = issue(files.CAFile, template, key, nil)
	if err != nil {
		return nil, err
	}
	return &pair{certificate: certificate, key: key}, nil
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
		if key, err = newKey(files.KeyFile); err != nil {
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
	template, err := m.template(certificateLife)
	if err != nil {
		return err
	}
	template.Subject.CommonName = m.names.dns[0]
	template.DNSNames, template.IPAddresses = m.names.dns, m.names.ips
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	_, err = issue(files.CertFile, template, key, authority)
	return err
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

// template returns what both certificates have in common.
func (m *Manager) template(life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	now := m.clock.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}, nil
}

// restrict takes the rights of others to a key away, should a copy or a backup have given them.
func restrict(path string) error {
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("restricting access to key %s: %w", path, err)
	}
	return nil
}
