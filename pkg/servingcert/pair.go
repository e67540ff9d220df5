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
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// A pair is a certificate and its private key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// readKey returns the key in a file, and nil when there is no file.
func readKey(path string) (crypto.Signer, error) {
	der, err := readBlock(path, keyBlock)
	if der == nil || err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parsing key %s: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parsing key %s: a %T cannot sign", path, key)
	}
	return signer, nil
}

// readCertificate returns the certificate in a file, and nil when there is no file.
func readCertificate(path string) (*x509.Certificate, error) {
	der, err := readBlock(path, certificateBlock)
	if der == nil || err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate %s: %w", path, err)
	}
	return certificate, nil
}

// readBlock returns the content of the PEM block in a file, and nil when there is no file.
func readBlock(path, kind string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s does not begin with a PEM block %q", path, kind)
	}
	return block.Bytes, nil
}

// newKey makes a key and writes it to a file.
func newKey(path string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making key %s: %w", path, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding key %s: %w", path, err)
	}
	return key, replace(path, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), 0o600)
}

// issue makes a certificate for a key from a template and writes it to a file. Without an issuer it signs itself.
func issue(path string, template *x509.Certificate, key crypto.Signer, issuer *pair) (*x509.Certificate, error) {
	if issuer == nil {
		issuer = &pair{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), issuer.key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %s: %w", path, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate %s: %w", path, err)
	}
	return certificate, replace(path, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), 0o644)
}

// belongs tells whether the certificate is one for the key.
func (p pair) belongs() bool {
	public, ok := p.key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(p.certificate.PublicKey)
}
