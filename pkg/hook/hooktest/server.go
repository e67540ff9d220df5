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
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http wants one, and it discards everything here
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Server is a running webhook. Make it with [NewServer]. It is safe for concurrent use.
type Server struct {
	http         *httptest.Server
	certificates *certificates // nil without TLS

	mu       sync.Mutex
	handlers map[string]http.Handler
	requests []Request
	// changed is closed and replaced with each recorded request.
	changed chan struct{}
}

// Request is a recorded request.
type Request struct {
	// Method, Path and Proto as they came, for example POST, /sync and HTTP/2.0.
	Method, Path, Proto string
	// Header of the request.
	Header http.Header
	// Body of the request, whole.
	Body []byte
	// Connection names the connection that the request came in on.
	Connection string
	// Time is when the request had been read.
	Time time.Time
}

// Option changes how a server is started.
type Option func(*options)

type options struct {
	tls                *certificateOptions
	clientCertificates bool
	http2              bool
}

// WithTLS serves HTTPS with a certificate of the server's own authority, see [Server.CABundle].
func WithTLS() Option {
	return func(o *options) { o.tls = &certificateOptions{} }
}

// WithHTTP2 serves HTTPS as [WithTLS], and offers HTTP/2.
func WithHTTP2() Option {
	return func(o *options) { o.tls, o.http2 = &certificateOptions{}, true }
}

// WithExpiredCertificate serves HTTPS with a certificate that has expired.
func WithExpiredCertificate() Option {
	return func(o *options) { o.tls = &certificateOptions{expired: true} }
}

// WithCertificateFor serves HTTPS with a certificate for that host name only.
func WithCertificateFor(host string) Option {
	return func(o *options) { o.tls = &certificateOptions{host: host} }
}

// WithClientCertificates serves HTTPS as [WithTLS], and rejects clients without a certificate of the server's authority, see
// [Server.ClientCertificate].
func WithClientCertificates() Option {
	return func(o *options) { o.tls, o.clientCertificates = &certificateOptions{}, true }
}

// NewServer starts a server on a free local port. It stops at the end of the test. Paths without a handler return 404.
func NewServer(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	var o options
	for _, option := range opts {
		option(&o)
	}
	s := &Server{handlers: map[string]http.Handler{}, changed: make(chan struct{})}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	// A hostile client is part of the script; what the server thinks of it is noise.
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	if o.tls == nil {
		s.http.Start()
	} else {
		certificates, err := newCertificates(*o.tls)
		if err != nil {
			tb.Fatalf("making certificates: %v", err)
		}
		s.certificates = certificates
		s.http.TLS = certificates.serverConfig(o.clientCertificates)
		s.http.EnableHTTP2 = o.http2
		s.http.StartTLS()
	}
	tb.Cleanup(s.Close)
	return s
}

// Close breaks all connections and stops the server. The end of the test does it too.
func (s *Server) Close() {
	// Handlers that hang wait for their client to go away.
	s.http.CloseClientConnections()
	s.http.Close()
}

// URL returns the address of a path, which begins with a slash.
func (s *Server) URL(path string) string { return s.http.URL + path }

// Host returns host and port of the server.
func (s *Server) Host() string { return s.http.Listener.Addr().String() }

// CABundle returns the PEM certificate of the authority that signed the server's certificate. It is empty without TLS.
func (s *Server) CABundle() string {
	if s.certificates == nil {
		return ""
	}
	return string(s.certificates.authorityPEM)
}

// ClientCertificate returns a PEM certificate and key that a server with client certificates accepts.
func (s *Server) ClientCertificate() (certificate, key []byte) {
	if s.certificates == nil {
		return nil, nil
	}
	return s.certificates.clientPEM, s.certificates.clientKeyPEM
}

// Handle sets what responses at a path from now on. The handler sees a request whose body can be read as usual, although it has
// been recorded.
func (s *Server) Handle(path string, handler http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[path] = handler
}

// Requests returns the requests of a path so far, in the order in which they had been read.
func (s *Server) Requests(path string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.matching(path)
}

// Await waits until a path has had at least n requests, and returns them. It returns what there is when ctx ends.
func (s *Server) Await(ctx context.Context, path string, n int) []Request {
	for {
		s.mu.Lock()
		requests, changed := s.matching(path), s.changed
		s.mu.Unlock()
		if len(requests) >= n {
			return requests
		}
		select {
		case <-ctx.Done():
			return requests
		case <-changed:
		}
	}
}

func (s *Server) matching(path string) []Request {
	return slices.DeleteFunc(slices.Clone(s.requests), func(r Request) bool { return r.Path != path })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{
		Method: r.Method, Path: r.URL.Path, Proto: r.Proto, Header: r.Header.Clone(), Body: body, Connection: r.RemoteAddr, Time: time.Now(),
	})
	close(s.changed)
	s.changed = make(chan struct{})
	handler, ok := s.handlers[r.URL.Path]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	handler.ServeHTTP(w, withBody(r, body))
}

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
