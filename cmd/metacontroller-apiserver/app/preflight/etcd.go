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
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// kubernetesPrefix is the root of a kube-apiserver's own keys, unless it was told another one.
const kubernetesPrefix = "/registry/"

// etcdOptions name an etcd cluster, as the flags of the server do.
type etcdOptions struct {
	servers              []string
	authority, cert, key string
	prefix               string
}

// check looks whether each member answers, and what is stored there already.
func (o *etcdOptions) check(ctx context.Context, timeout time.Duration) []Finding {
	const check = "etcd"
	if len(o.servers) == 0 {
		return []Finding{{Check: check, Result: Skipped, Message: "No --etcd-servers are given: the server has an etcd of its own."}}
	}
	encryption, err := o.encryption()
	if err != nil {
		return problemf(check, "--etcd-cafile, --etcd-certfile and --etcd-keyfile name them, in PEM form.", "The files for etcd are not usable: %v.", err)
	}
	var findings []Finding
	var answering []string
	for _, server := range o.servers {
		found, ok := o.member(ctx, server, encryption, timeout)
		findings = append(findings, found)
		if ok {
			answering = append(answering, server)
		}
	}
	if len(answering) > 0 {
		findings = append(findings, o.keys(ctx, answering, encryption, timeout))
	}
	return findings
}

// member asks one member for its status. ok says that it answers.
func (o *etcdOptions) member(ctx context.Context, server string, encryption *tls.Config, timeout time.Duration) (f Finding, ok bool) {
	f = Finding{Check: "etcd"}
	client, err := connect(ctx, []string{server}, encryption, timeout)
	var status *clientv3.StatusResponse
	if err == nil {
		defer client.Close() //nolint:errcheck // Nothing was written.
		asking, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer cancel()
		if status, err = client.Status(asking, server); err != nil && asking.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(asking), err)
		}
	}
	if err != nil {
		f.Result, f.Message = Failed, fmt.Sprintf("etcd at %s does not answer: %v.", server, err)
		f.Next = "Look at the address, at firewalls and NetworkPolicies on the way, and whether etcd trusts the client certificate."
		return f, false
	}
	f.Result, f.Message = OK, fmt.Sprintf("etcd %s at %s answers.", status.Version, server)
	if len(status.Errors) > 0 {
		f.Result, f.Message = Failed, fmt.Sprintf("etcd %s at %s answers, and complains: %s.", status.Version, server, strings.Join(status.Errors, "; "))
		f.Next = "Repair it: https://etcd.io/docs/latest/op-guide/maintenance/"
	} else if isPlain(server, encryption) {
		f.Result, f.Message = Warning, fmt.Sprintf("etcd %s at %s answers, without encryption: who reaches it reads and writes every controller.", status.Version, server)
		f.Next = "Write https:// before the address, and use client certificates."
	}
	return f, true
}

// isPlain reports whether etcd's client talks to an address without encryption: to http://, whatever the files are, and without files also
// to an address that says neither http nor https.
func isPlain(server string, encryption *tls.Config) bool {
	scheme, _, given := strings.Cut(server, "://")
	if !given {
		return encryption == nil && !strings.HasPrefix(server, "unix")
	}
	return strings.EqualFold(scheme, "http")
}

// keys looks at what is stored there.
func (o *etcdOptions) keys(ctx context.Context, servers []string, encryption *tls.Config, timeout time.Duration) Finding {
	f := Finding{Check: "etcd-keys", Result: OK}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	client, err := connect(ctx, servers, encryption, timeout)
	if err != nil {
		f.Result, f.Message = Failed, fmt.Sprintf("Connecting to etcd: %v.", err)
		return f
	}
	defer client.Close() //nolint:errcheck // Nothing was written.
	own, err := client.Get(ctx, strings.TrimRight(o.prefix, "/")+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		f.Result, f.Message = Failed, fmt.Sprintf("The keys below %s cannot be read: %v.", o.prefix, err)
		f.Next = "The user of the client certificate needs the right to read and write them."
		return f
	}
	if others, err := client.Get(ctx, kubernetesPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err == nil && others.Count > 0 {
		f.Result, f.Message = Failed, "This is the etcd of a kube-apiserver: controllers stored there would share its quota, and its backups and restores."
		f.Next = "Use an etcd cluster of the server's own."
		return f
	}
	f.Message = fmt.Sprintf("Nothing is stored below %s yet.", o.prefix)
	if own.Count > 0 {
		f.Message = fmt.Sprintf("%d objects are stored below %s; the server goes on with these.", own.Count, o.prefix)
	}
	return f
}

// connect makes a client. It connects when it is used.
func connect(ctx context.Context, servers []string, encryption *tls.Config, timeout time.Duration) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: servers, TLS: encryption, DialTimeout: timeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for etcd: %w", err)
	}
	return client, nil
}

// encryption reads the files. Nil: there are none.
func (o *etcdOptions) encryption() (*tls.Config, error) {
	if o.authority == "" && o.cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.authority != "" {
		bundle, err := os.ReadFile(o.authority)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, errors.New(o.authority + " holds no certificate in PEM form")
		}
	}
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", o.cert, o.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

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
	loaded, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return problemf(check, "The two files must be of one pair, in PEM form; the first may hold intermediate certificates after the server's.",
			"%s and %s are no certificate with its key: %v.", f.cert, f.key, err)
	}
	leaf := loaded.Leaf
	if now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return problemf(check, "Have it issued again, and look at the clocks.", "%s is valid from %s to %s, and now is %s.",
			f.cert, date(leaf.NotBefore), date(leaf.NotAfter), date(now))
	}
	if err := leaf.VerifyHostname(name); err != nil {
		return problemf(check, "The aggregation layer expects this name, whatever address it dials: have a certificate issued that has it as a DNS name.",
			"%s is not valid for %s: %v.", f.cert, name, err)
	}
	source := f.authority
	if source == "" {
		source = "the caBundle of the APIService"
	} else if bundle, err = os.ReadFile(f.authority); err != nil {
		return problemf(check, "Name the file with the authority's certificate.", "Reading the certificate authority: %v.", err)
	}
	if len(bundle) > 0 || f.authority != "" {
		if err := verify(&loaded, bundle, now); err != nil {
			return problemf(check, "The APIService needs the authority that has issued the certificate.", "%s is not accepted by clients that trust %s: %v.", f.cert, source, err)
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
