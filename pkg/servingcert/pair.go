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
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// authorityName is the subject of the authority. A renewed authority must have the name of the old one.
	authorityName = "metacontroller-apiserver serving authority"
	// backdate is how far before now a validity begins: the clocks of clients may be late.
	backdate = time.Hour
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

// fits tells whether a certificate is one for a key.
func fits(certificate *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(certificate.PublicKey)
}

// signedBy tells whether clients that trust an authority accept a certificate as one of it.
func signedBy(certificate, authority *x509.Certificate) bool {
	return bytes.Equal(certificate.RawIssuer, authority.RawSubject) && certificate.CheckSignatureFrom(authority) == nil
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
	if !fits(p.certificate, p.key) {
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

// newAuthority makes an authority, which signs itself, for a key. Nil means a new key.
func newAuthority(key crypto.Signer, now, end time.Time) (*pair, error) {
	template := &x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, MaxPathLenZero: true,
	}
	template.Subject.CommonName = authorityName
	return sign(template, key, nil)
}

// newCertificate makes a serving certificate for DNS names and IP addresses and a key. Nil means a new key.
func newCertificate(key crypto.Signer, hosts []string, authority pair, now, end time.Time) (*pair, error) {
	template := &x509.Certificate{
		NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		switch ip := net.ParseIP(host); {
		case ip != nil && !slices.ContainsFunc(template.IPAddresses, ip.Equal):
			template.IPAddresses = append(template.IPAddresses, ip)
		case ip == nil && host != "" && !slices.Contains(template.DNSNames, host):
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	template.Subject.CommonName = hosts[0]
	return sign(template, key, &authority)
}

// covers tells whether a certificate is valid for all hosts. It may be valid for more.
func covers(certificate *x509.Certificate, hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool { return host != "" && certificate.VerifyHostname(host) != nil })
}

// sign makes a certificate from a template for a key, or for a new one. Without an issuer it signs itself.
func sign(template *x509.Certificate, key crypto.Signer, issuer *pair) (*pair, error) {
	var err error
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, fmt.Errorf("making a key: %w", err)
		}
	}
	if issuer == nil {
		issuer = &pair{certificate: template, key: key}
	}
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
	return &pair{certificate: certificate, key: key}, nil
}
