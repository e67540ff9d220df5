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

package hooktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

type certificateOptions struct {
	// expired makes the server's certificate invalid by now.
	expired bool
	// host is the only name in the certificate. Empty: localhost and the loopback addresses.
	host string
}

// certificates are an authority with a certificate for the server and one for a client.
type certificates struct {
	authority               *x509.Certificate
	authorityPEM            []byte
	server                  tls.Certificate
	clientPEM, clientKeyPEM []byte
}

func newCertificates(o certificateOptions) (*certificates, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of the authority: %w", err)
	}
	root := template(1, "hooktest authority")
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the authority: %w", err)
	}
	c := &certificates{authority: authority, authorityPEM: encodePEM("CERTIFICATE", der)}

	certificate, certificateKey, err := c.issue(key, serverTemplate(o))
	if err != nil {
		return nil, err
	}
	if c.server, err = tls.X509KeyPair(certificate, certificateKey); err != nil {
		return nil, fmt.Errorf("pairing the server's certificate and key: %w", err)
	}
	c.clientPEM, c.clientKeyPEM, err = c.issue(key, clientTemplate())
	return c, err
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-2 * time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func serverTemplate(o certificateOptions) *x509.Certificate {
	t := template(2, "hooktest server")
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if o.expired {
		t.NotAfter = time.Now().Add(-time.Hour)
	}
	if o.host != "" {
		t.DNSNames = []string{o.host}
	} else {
		t.DNSNames, t.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	return t
}

func clientTemplate() *x509.Certificate {
	t := template(3, "hooktest client")
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return t
}

// issue signs a certificate with the authority's key, and returns it with its own key.
func (c *certificates) issue(authorityKey *ecdsa.PrivateKey, unsigned *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, unsigned, c.authority, private.Public(), authorityKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", encoded), nil
}

func (c *certificates) serverConfig(demandClientCertificates bool) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.server}}
	if demandClientCertificates {
		pool := x509.NewCertPool()
		pool.AddCert(c.authority)
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, pool
	}
	return config
}

func encodePEM(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}
