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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// soon is when the end of a certificate is near: that of the alert on it.
const soon = 7 * 24 * time.Hour

// certificateFiles name a serving certificate, its key and its authority.
type certificateFiles struct {
	cert, key, authority string
}

// check looks whether the aggregation layer would accept the certificate for a name, now. The authority is that of the file, else the
// bundle, else it is not looked at.
func (f certificateFiles) check(name string, bundle []byte, now time.Time) []Finding {
	const check = "certificate"
	failed := func(next, format string, arguments ...any) []Finding {
		return []Finding{{Check: check, Result: Failed, Message: fmt.Sprintf(format, arguments...), Next: next}}
	}
	loaded, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return failed("The two files must be of one pair, in PEM form; the first may hold intermediate certificates after the server's.",
			"%s and %s are no certificate with its key: %v.", f.cert, f.key, err)
	}
	leaf := loaded.Leaf
	if now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return failed("Have it issued again, and look at the clocks.", "%s is valid from %s to %s, and now is %s.",
			f.cert, date(leaf.NotBefore), date(leaf.NotAfter), date(now))
	}
	if err := leaf.VerifyHostname(name); err != nil {
		return failed("The aggregation layer expects this name, whatever address it dials: have a certificate issued that has it as a DNS name.",
			"%s is not valid for %s: %v.", f.cert, name, err)
	}
	source := f.authority
	if source == "" {
		source = "the caBundle of the APIService"
	} else if bundle, err = os.ReadFile(f.authority); err != nil {
		return failed("Name the file with the authority's certificate.", "Reading the certificate authority: %v.", err)
	}
	if len(bundle) > 0 || f.authority != "" {
		if err := verify(&loaded, bundle, now); err != nil {
			return failed("The APIService needs the authority that has issued the certificate.", "%s is not accepted by clients that trust %s: %v.", f.cert, source, err)
		}
	}
	if left := leaf.NotAfter.Sub(now); left < soon {
		return []Finding{{
			Check: check, Result: Warning, Message: fmt.Sprintf("%s expires at %s.", f.cert, date(leaf.NotAfter)),
			Next: "Have it issued again in time; the server reads the files again when they change.",
		}}
	}
	return []Finding{{
		Check: check, Result: OK, Message: fmt.Sprintf("%s has its key, is valid for %s, and expires at %s.", f.cert, name, date(leaf.NotAfter)),
	}}
}

// verify looks whether a client accepts a certificate as that of a server.
func verify(loaded *tls.Certificate, bundle []byte, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("it holds no certificate in PEM form")
	}
	for _, der := range loaded.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(certificate)
		}
	}
	_, err := loaded.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
