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
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

func authority(t *testing.T, folder, name string) (*Authority, *x509.CertPool) {
	t.Helper()
	a, err := NewAuthority(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		t.Fatalf("%s holds no certificate", a.File)
	}
	return a, pool
}

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	loaded, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Leaf
}

func TestClientCertificateNamesTheUser(t *testing.T) {
	a, pool := authority(t, t.TempDir(), "client-ca")
	pair, err := a.Client("admin", "the-admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	certificate := leaf(t, pair)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the authority does not vouch for its client: %v", err)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client may act as a server")
	}
	if subject := certificate.Subject; subject.CommonName != "the-admin" || len(subject.Organization) != 1 || subject.Organization[0] != "system:masters" {
		t.Errorf("the certificate names %v", subject)
	}
	info, err := os.Stat(pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file has mode %v", info.Mode())
	}
}

func TestServerCertificateIsForLoopbackAndItsNames(t *testing.T) {
	a, pool := authority(t, t.TempDir(), "serving-ca")
	pair, err := a.Server("serving", "kubernetes.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	certificate := leaf(t, pair)
	for name, want := range map[string]bool{"127.0.0.1": true, "localhost": true, "kubernetes.default.svc": true, "example.com": false} {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: pool, DNSName: name})
		if got := err == nil; got != want {
			t.Errorf("the certificate is good for %s: %v, want %v", name, got, want)
		}
	}
}

func TestAuthoritiesDoNotVouchForEachOther(t *testing.T) {
	folder := t.TempDir()
	a, _ := authority(t, folder, "client-ca")
	_, other := authority(t, folder, "front-proxy-ca")
	pair, err := a.Client("client", "client")
	if err != nil {
		t.Fatal(err)
	}
	options := x509.VerifyOptions{Roots: other, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := leaf(t, pair).Verify(options); err == nil {
		t.Error("the front proxy's authority vouches for a user")
	}
}

func TestSigningKeyHasItsPublicHalf(t *testing.T) {
	a, _ := authority(t, t.TempDir(), "serving-ca")
	private, public, err := a.SigningKey("service-accounts")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParseECPrivateKey(decode(t, private))
	if err != nil {
		t.Fatal(err)
	}
	half, err := x509.ParsePKIXPublicKey(decode(t, public))
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(half) {
		t.Errorf("%s is not the public half of %s", filepath.Base(public), filepath.Base(private))
	}
}

func decode(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(content)
	if block == nil || len(rest) > 0 {
		t.Fatalf("%s is not one PEM block", file)
	}
	return block.Bytes
}
