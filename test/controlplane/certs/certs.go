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

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 30 * 24 * time.Hour

// Authority is a certificate authority whose files are in a folder.
type Authority struct {
	folder string
	cert   *x509.Certificate
	key    crypto.Signer
	// File is the file of the authority's certificate.
	File string
}

// Pair is a certificate with its key.
type Pair struct {
	CertFile, KeyFile string
}

// NewAuthority makes an authority with files <name>.crt and <name>.key in folder.
func NewAuthority(folder, name string) (*Authority, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a := &Authority{folder: folder}
	pair, err := a.make(name, template)
	if err != nil {
		return nil, err
	}
	a.File = pair.CertFile
	return a, nil
}

// Client issues a client certificate for a user with groups.
func (a *Authority) Client(name, user string, groups ...string) (Pair, error) {
	return a.make(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Server issues a serving certificate for loopback and the names given.
func (a *Authority) Server(name string, hosts ...string) (Pair, error) {
	return a.make(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    append([]string{"localhost"}, hosts...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
	})
}

// make makes a key and a certificate. An authority without certificate signs for itself, once.
func (a *Authority) make(name string, template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of %s: %w", name, err)
	}
	if template.SerialNumber == nil {
		if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
			return Pair{}, fmt.Errorf("making a serial number for %s: %w", name, err)
		}
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(lifetime)
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing %s: %w", name, err)
	}
	if a.cert == template {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return Pair{}, fmt.Errorf("reading %s back: %w", name, err)
		}
	}
	pair := Pair{filepath.Join(a.folder, name+".crt"), filepath.Join(a.folder, name+".key")}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding the key of %s: %w", name, err)
	}
	if err := write(pair.KeyFile, "PRIVATE KEY", encoded); err != nil {
		return Pair{}, err
	}
	return pair, write(pair.CertFile, "CERTIFICATE", der)
}

// SigningKey makes a key pair that signs service account tokens, and returns the files of its halves.
func (a *Authority) SigningKey(name string) (private, public string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("making the key %s: %w", name, err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", "", fmt.Errorf("encoding the key %s: %w", name, err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", fmt.Errorf("encoding the public key %s: %w", name, err)
	}
	private, public = filepath.Join(a.folder, name+".key"), filepath.Join(a.folder, name+".pub")
	if err := write(private, "EC PRIVATE KEY", encoded); err != nil {
		return "", "", err
	}
	return private, public, write(public, "PUBLIC KEY", publicDER)
}

func write(file, kind string, der []byte) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(file), err)
	}
	return nil
}
