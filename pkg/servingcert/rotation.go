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
	"cmp"
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

	corev1 "k8s.io/api/core/v1"
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

// authorities are what a Store keeps: who signs the serving certificate, whom clients shall trust, and what is served.
type authorities struct {
	// source is the Secret that they are from; nil for files.
	source *corev1.Secret
	// signing signs, since the time. It has no certificate if there is none or it was lost, and no key if there is none.
	signing      pair
	signingSince time.Time
	// next will sign; nil if there is none. nextTrusted is since when the registration trusts it; zero if it does not yet.
	next        *pair
	nextTrusted time.Time
	// former have signed what may still be served. There may be others that an operator has added.
	former []*x509.Certificate
	// rotate is set by an operator who wants another authority now.
	rotate bool
	// serving is what the server uses, nil if there is nothing of use. servingKey is the key of the next one, nil for a new key.
	serving    *pair
	servingKey crypto.Signer
}

// bundle returns whom clients shall trust: who signs first.
func (a *authorities) bundle() []*x509.Certificate {
	all := []*x509.Certificate{a.signing.certificate}
	if a.next != nil {
		all = append(all, a.next.certificate)
	}
	return append(all, a.former...)
}

// outlive tells whether the signing authority outlives what it signs now.
func (a *authorities) outlive(l Lifetimes, now time.Time) bool {
	return now.Add(l.Certificate).Before(a.signing.certificate.NotAfter)
}

// begin makes the certificate of the signing authority, with the key that there is: what it signed before, and registrations that trust
// it, stay good. Whom clients trusted until now they trust on: servers that serve other certificates are replaced one after the other.
func (a *authorities) begin(l Lifetimes, trusted []*x509.Certificate, now time.Time) error {
	signing, err := newAuthority(a.signing.key, now, now.Add(l.Authority))
	if err != nil {
		return err
	}
	a.signing, a.signingSince, a.former = *signing, now, unexpired(trusted, now)
	return nil
}

// advance takes the next step of a rotation if it is time for one, and reports whether it did. trusted says that the registration
// trusts all of the bundle.
func (a *authorities) advance(l Lifetimes, trusted bool, now time.Time) (moved bool, err error) {
	switch {
	case a.next == nil && (a.rotate || !now.Before(a.signing.certificate.NotAfter.Add(-l.authorityRenewBefore()))):
		if a.next, err = newAuthority(nil, now, now.Add(l.Authority)); err != nil {
			return false, err
		}
		a.nextTrusted, a.rotate = time.Time{}, false
	case a.next != nil && trusted && a.nextTrusted.IsZero():
		a.nextTrusted = now
	case a.next != nil && trusted && a.mayReplace(l, now):
		a.former = append([]*x509.Certificate{a.signing.certificate}, a.former...)
		a.signing, a.signingSince = *a.next, now
		a.next, a.nextTrusted = nil, time.Time{}
	default:
		former := unexpired(a.former, now)
		// What former authorities have signed before has ended since, with what a late replica may have signed meanwhile.
		if now.After(a.signingSince.Add(l.Certificate + l.Propagation)) {
			former = nil
		}
		if len(former) == len(a.former) {
			return false, nil
		}
		a.former = former
	}
	return true, nil
}

// mayReplace tells whether the next authority may sign. When the present one has expired, no client accepts what is served, so that
// there is nothing to wait for.
func (a *authorities) mayReplace(l Lifetimes, now time.Time) bool {
	return !now.Before(a.nextTrusted.Add(l.Propagation)) || now.After(a.signing.certificate.NotAfter)
}

func unexpired(certificates []*x509.Certificate, now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(certificates), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}

const (
	// authorityLife is the validity of the authority.
	authorityLife = 10 * 365 * 24 * time.Hour
	// certificateLife is the validity of the serving certificate.
	certificateLife = 90 * 24 * time.Hour
)

// Lifetimes say how long certificates are valid, and when they are replaced.
type Lifetimes struct {
	// Certificate is the validity of a serving certificate, and CertificateRenewBefore how long before its end it is replaced: 0 means
	// a third of Certificate.
	Certificate, CertificateRenewBefore time.Duration
	// Authority is the validity of the authority, and AuthorityRenewBefore how long before its end the next one is made: 0 means a
	// third of Authority.
	Authority, AuthorityRenewBefore time.Duration
	// Propagation is how long the registration must have trusted an authority before that signs: until then every kube-apiserver of
	// the cluster has seen it.
	Propagation time.Duration
}

// DefaultLifetimes are 90 days for certificates, 10 years for the authority, and an hour for the kube-apiservers.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{Certificate: certificateLife, Authority: authorityLife, Propagation: time.Hour}
}

func (l Lifetimes) certificateRenewBefore() time.Duration {
	return cmp.Or(l.CertificateRenewBefore, l.Certificate/3)
}

func (l Lifetimes) authorityRenewBefore() time.Duration {
	return cmp.Or(l.AuthorityRenewBefore, l.Authority/3)
}

// interval is the pause between two looks at the certificates: a minute, or a small part of what there is to wait for.
func (l Lifetimes) interval() time.Duration {
	shortest := min(l.Certificate-l.certificateRenewBefore(), l.Authority-l.authorityRenewBefore())
	if l.Propagation > 0 {
		shortest = min(shortest, l.Propagation)
	}
	return min(time.Minute, max(shortest/10, 50*time.Millisecond))
}

// Validate returns everything that is wrong with the lifetimes, as one error.
func (l Lifetimes) Validate() error {
	var problems []error
	if l.Certificate <= 0 || l.Authority <= 0 {
		problems = append(problems, fmt.Errorf("the validities %s of certificates and %s of the authority must be positive", l.Certificate, l.Authority))
	}
	if l.CertificateRenewBefore < 0 || l.certificateRenewBefore() >= l.Certificate {
		problems = append(problems, fmt.Errorf("a certificate of %s cannot be renewed %s before its end", l.Certificate, l.CertificateRenewBefore))
	}
	if l.AuthorityRenewBefore < 0 || l.authorityRenewBefore() >= l.Authority {
		problems = append(problems, fmt.Errorf("an authority of %s cannot be renewed %s before its end", l.Authority, l.AuthorityRenewBefore))
	}
	if l.Propagation < 0 {
		problems = append(problems, fmt.Errorf("the time %s for kube-apiservers must not be negative", l.Propagation))
	}
	if needed := l.Certificate + l.Propagation; len(problems) == 0 && l.authorityRenewBefore() < needed {
		problems = append(problems, fmt.Errorf("the next authority must be made %s before the end of the former one, so that this one outlives "+
			"what it has signed; that is the validity of a certificate and the time for kube-apiservers", needed))
	}
	return errors.Join(problems...)
}
