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

package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

const serviceHost = "metacontroller-apiserver.metacontroller.svc"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// issue writes a certificate that signs itself, and its key.
func issue(t *testing.T, template *x509.Certificate) certificateFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(365 * 24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	files := certificateFiles{cert: filepath.Join(folder, "tls.crt"), key: filepath.Join(folder, "tls.key")}
	for path, block := range map[string]*pem.Block{files.cert: {Type: "CERTIFICATE", Bytes: der}, files.key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestCertificatesAreJudged(t *testing.T) {
	made, err := servingcert.Ensure(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own := certificateFiles{cert: made.CertFile, key: made.KeyFile, authority: made.CAFile}
	named := []string{serviceHost}
	another := issue(t, &x509.Certificate{DNSNames: named})
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(f certificateFiles, authority string) certificateFiles {
		f.authority = authority
		return f
	}
	for name, test := range map[string]struct {
		files  certificateFiles
		bundle string
		later  time.Duration
		result Result
		want   string
	}{
		"the server's own":      {files: own, result: OK, want: "has its key, is valid for " + serviceHost},
		"no authority is known": {files: another, result: OK, want: "is valid for"},
		"the key of another":    {files: certificateFiles{cert: own.cert, key: another.key}, result: Failed, want: "are no certificate with its key"},
		"no file":               {files: certificateFiles{cert: "none", key: "none"}, result: Failed, want: "no such file"},
		"another name":          {files: issue(t, &x509.Certificate{DNSNames: []string{"example.org"}}), result: Failed, want: "is not valid for " + serviceHost},
		"no name":               {files: issue(t, &x509.Certificate{}), result: Failed, want: "is not valid for " + serviceHost},
		"expired":               {files: own, later: 91 * 24 * time.Hour, result: Failed, want: " is valid from "},
		"not valid yet":         {files: own, later: -48 * time.Hour, result: Failed, want: " is valid from "},
		"about to expire":       {files: own, later: 84 * 24 * time.Hour, result: Warning, want: " expires at "},
		"another authority":     {files: with(own, another.cert), result: Failed, want: "is not accepted by clients that trust " + another.cert},
		"an authority of the APIService": {
			files: with(own, ""), bundle: read(t, another.cert), result: Failed, want: "clients that trust the caBundle of the APIService",
		},
		"an empty authority": {files: with(another, empty), result: Failed, want: "holds no certificate"},
		"no authority there": {files: with(another, "none"), result: Failed, want: "Reading the certificate authority"},
		"for clients": {
			files: func() certificateFiles {
				f := issue(t, &x509.Certificate{DNSNames: named, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true})
				return with(f, f.cert)
			}(),
			result: Failed, want: "incompatible key usage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.files.check(serviceHost, []byte(test.bundle), time.Now().Add(test.later))[0]
			if got.Result != test.result || !strings.Contains(got.Message, test.want) {
				t.Errorf("got %+v, want %s and %q", got, test.result, test.want)
			}
			if got.Result != OK && got.Next == "" {
				t.Error("nobody says what to do")
			}
		})
	}
}

func TestCertificatesOfADataDirectoryAreFound(t *testing.T) {
	o := options{namespace: "metacontroller", service: "metacontroller-apiserver", dataDir: t.TempDir()}
	if got := o.certificates(nil, time.Now())[0]; got.Result != Skipped {
		t.Errorf("without a certificate: got %+v", got)
	}
	if _, err := servingcert.Ensure(t.Context(), servingcert.Directory(o.dataDir)); err != nil {
		t.Fatal(err)
	}
	if got := o.certificates(nil, time.Now())[0]; got.Result != OK {
		t.Errorf("with the server's own: got %+v", got)
	}
}
