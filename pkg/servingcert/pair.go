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
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// A pair is a certificate and its private key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// Expiration returns when the first of the certificates in PEM ends, and false if there is none. A chain is as good as its weakest link.
func Expiration(chain []byte) (end time.Time, ok bool) {
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return time.Time{}, false
	}
	return slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter, true
}

// belongs tells whether the certificate is one for the key.
func (p pair) belongs() bool {
	public, ok := p.key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(p.certificate.PublicKey)
}

// encode returns certificate and key as PEM.
func (p pair) encode() (certificate, key []byte, err error) {
	if certificate, err = cert.EncodeCertificates(p.certificate); err != nil {
		return nil, nil, fmt.Errorf("encoding a certificate: %w", err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(p.key); err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return certificate, key, nil
}

// parsePair is the opposite of encode. The certificate must be one for the key.
func parsePair(certificate, key []byte) (*pair, error) {
	certificates, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		return nil, fmt.Errorf("parsing a certificate: %w", err)
	}
	signer, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	p := &pair{certificate: certificates[0], key: signer}
	if !p.belongs() {
		return nil, errors.New("certificate and key do not belong together")
	}
	return p, nil
}

func parseKey(text []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, fmt.Errorf("parsing a key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parsing a key: a %T cannot sign", key)
	}
	return signer, nil
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

// readCertificate returns the certificate in a file, and nil when there is no file.
func readCertificate(path string) (*x509.Certificate, error) {
	certificates, err := cert.CertsFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return certificates[0], nil
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

// newKeyFile makes a key and writes it to a file.
func newKeyFile(path string) (crypto.Signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding key %s: %w", path, err)
	}
	return key, replace(path, text, 0o600)
}

// newAuthority makes the certificate of an authority for a key. It signs itself.
func newAuthority(key crypto.Signer, now, end time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, MaxPathLenZero: true,
	}
	template.Subject.CommonName = authorityName
	return sign(template, key, pair{certificate: template, key: key})
}

// newCertificate makes a serving certificate for a key.
func newCertificate(key crypto.Signer, n names, authority pair, now, end time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: n.dns, IPAddresses: n.ips,
	}
	template.Subject.CommonName = n.dns[0]
	return sign(template, key, authority)
}

// sign makes a certificate for a key from a template.
func sign(template *x509.Certificate, key crypto.Signer, issuer pair) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template.SerialNumber, template.BasicConstraintsValid = serial, true
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), issuer.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing a certificate that was just signed: %w", err)
	}
	return certificate, nil
}
